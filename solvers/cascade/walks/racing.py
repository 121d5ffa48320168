"""Many walks: the better half goes on, round by round, until one is left that cools down."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from arachne_opt.solvers.cascade.walks.choice import Choice
from arachne_opt.solvers.cascade.walks.cooling import Heat, Progress, cooled
from arachne_opt.solvers.cascade.walks.place import Place
from arachne_opt.solvers.cascade.walks.quick_list import ANY_US
from arachne_opt.solvers.cascade.walks.walker import Walker

STARTS = 32
"""So many starts are enough: more find nothing shorter in the same time."""

# Shares of the time: for making starts, at most, and until one is left. From one round to the next
# walks cool down to this.
_MAKING, _SHARE, _COOLER = 0.2, 0.6, 0.8
# A stride is cut into so many parts, as the first walks are short.
_PARTS = 8


def raced(
    walker: Walker, starts: Iterable[Choice], heat: Heat, progress: Progress
) -> Iterator[Place]:
    """Walks from all choices until ``progress`` reaches 1; yields the best so far again and again.

    Each round takes equally long, and ranks by where the walks are then. One choice alone cools
    down from the beginning. Where choices take long to be made, only the first ones are.
    """
    live: list[Choice] = []
    for start in starts:
        live.append(start)
        share = progress(0)
        if share >= _MAKING:
            break
    # No round waits for more than the end of the time, which the last start may have passed.
    made = min(share, _SHARE)
    rounds, hot = (len(live) - 1).bit_length(), heat.hot
    for turn in range(rounds):
        ends = []
        for k, start in enumerate(live):
            until = made + (_SHARE - made) * (turn + (k + 1) / len(live)) / rounds
            walker.begin(start, ANY_US)
            steps = max(1, walker.stride // _PARTS)
            while True:
                walker.walk(steps, hot)
                share = progress(steps * len(start.picks))
                if share >= until:
                    break
            ends.append(walker.now)
            yield walker.best
            if share >= 1:
                return
        ends.sort(key=lambda place: place.key)
        live = [place.choice for place in ends[: (len(ends) + 1) // 2]]
        hot *= _COOLER

    def rest(placed: int) -> float:
        now = progress(placed)
        return 1.0 if now >= 1 else (now - share) / (1 - share)

    yield from cooled(walker, live[0], Heat(hot, heat.cold), rest)
