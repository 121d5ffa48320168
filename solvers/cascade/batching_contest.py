"""A contest of batchings: all are placed for a while, and the best ones for twice as long.

The winner meets its neighbours in the next round: batchings that a walk with other cuts comes
across. Threads search different batchings at a time, as walks in C leave the interpreter to others.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor

from arachne_opt.cascade.batching import Batching
from arachne_opt.solvers.base import Limits
from arachne_opt.solvers.cascade.batching_search import HEAT, BatchingSearch, State
from arachne_opt.solvers.cascade.batching_trial import Trial
from arachne_opt.solvers.cascade.walks.cooling import Progress
from arachne_opt.solvers.cascade.walks.walker import MOST_BESIDE
from arachne_opt.solvers.clock import Clock
from arachne_opt.solvers.seeds.policy_file import PolicyFile

# A first turn, as a share of the time of all threads, and in seconds at most; a walk, in turns.
_TURN_SHARE, _TURN_S, _WALK_TURNS = 0.025, 1.0, 1.5
# Neighbours of a winner in a round, at least, and for each thread; batchings with a second turn.
_NEIGHBOURS, _FOR_EACH, _FIRST_AGAIN, _AGAIN = 4, 3, 4, 2

Over = Callable[[], bool]


class Contest:
    """Rounds among batchings until it is over.

    Args:
        search: finds neighbours.
        policy: draws beginnings of walks, None for none.
        clock: of the whole solve.
        limits: of the whole solve.
        over: whether to end; asked on the calling thread.
        until: what may be spent of the clock.
    """

    def __init__(
        self,
        search: BatchingSearch,
        policy: PolicyFile | None,
        clock: Clock,
        limits: Limits,
        over: Over,
        until: float,
    ) -> None:
        self._search, self._policy = search, policy
        self._clock, self._seed = clock, limits.seed
        self._ask, self._until = over, until
        self._count = 1 if limits.deterministic else min(limits.workers, 1 + MOST_BESIDE)
        self._length = min(_TURN_SHARE * limits.time_limit_s * self._count, _TURN_S)
        self._trials: dict[Batching, Trial] = {}
        self._ended = False

    def begin(self, batchings: Sequence[Batching]) -> None:
        """Takes batchings in, as many as there is time for, with a list schedule for each."""
        for batching in batchings:
            self.trial(batching)
            if self._over():
                break

    def run(self) -> None:
        """Rounds that begin with what was taken in."""
        with ThreadPoolExecutor(max(1, self._count - 1), thread_name_prefix="batching") as threads:
            self._threads = threads
            try:
                self._round(list(self._trials.values()), _FIRST_AGAIN)
                while not self._over():
                    self._round([self.best, *self._neighbours()], _AGAIN)
            finally:
                self._ended = True  # whatever happens here, no thread goes on

    def trial(self, batching: Batching) -> Trial:
        """What is known of a batching."""
        if batching not in self._trials:
            problem = self._search.digest.problem.placement_problem(batching)
            self._trials[batching] = Trial(batching, problem, self._policy, self._seed)
        return self._trials[batching]

    @property
    def tried(self) -> int:
        """Batchings that were searched."""
        return len(self._trials)

    @property
    def best(self) -> Trial:
        """The one with the shortest schedule; there has to be one."""
        return min(self._trials.values(), key=_makespan_us)

    def _over(self, *, ask: bool = True) -> bool:
        if ask and self._ask():
            self._ended = True
        return self._ended or self._clock.interrupted or self._clock.elapsed() >= self._until

    def _round(self, trials: Sequence[Trial], again: int) -> None:
        """A turn for each of some batchings, and one twice as long for the best ones."""
        self._search_all(trials, self._length)
        # No thread waits for the others.
        again = max(again, self._count)
        self._search_all(sorted(trials, key=_makespan_us)[:again], 2 * self._length)

    def _search_all(self, trials: Sequence[Trial], length: float) -> None:
        """A turn for each."""
        waiting = deque(trials)
        others = self._beside(waiting, length)
        self._search_some(waiting, length, ask=True)
        for other in others:
            other.result()

    def _beside(self, waiting: deque[Trial], length: float) -> list[Future[None]]:
        """The other threads, which give turns to trials that wait."""
        return [
            self._threads.submit(self._search_some, waiting, length, ask=False)
            for _ in range(self._count - 1)
        ]

    def _search_some(self, waiting: deque[Trial], length: float, *, ask: bool) -> None:
        while waiting and not self._over(ask=ask):
            try:
                trial = waiting.popleft()
            except IndexError:  # another thread took the last one
                return
            if not trial.done:
                trial.turn(self._progress(trial.placed_per_unit, length, ask=ask))

    def _progress(self, placed_per_unit: int, length: float, *, ask: bool) -> Progress:
        begin = self._clock.elapsed()

        def share(placed: int) -> float:
            self._clock.spend(placed / placed_per_unit)
            return 1.0 if self._over(ask=ask) else (self._clock.elapsed() - begin) / length

        return share

    def _neighbours(self) -> list[Trial]:
        """Batchings that were not searched yet, from a walk that begins with the best."""
        best = self.best
        at = self._search.start(best.problem, best.plan)
        length = _WALK_TURNS * self._length
        # Meanwhile other threads go on with the best ones.
        known = sorted(self._trials.values(), key=_makespan_us)
        others = self._beside(deque(known[: self._count - 1]), length)
        progress = self._progress(self._search.placed_per_unit, length, ask=True)
        states = self._search.walk(at, HEAT, progress)
        for other in others:
            other.result()
        return self._new(states, max(_NEIGHBOURS, _FOR_EACH * self._count - 1))

    def _new(self, states: Sequence[State], most: int) -> list[Trial]:
        found: list[Trial] = []
        for state in states:
            batching = self._search.batching(state)
            if len(found) < most and batching not in self._trials:
                trial = self.trial(batching)
                trial.know(self._search.plan(state, trial.problem))
                found.append(trial)
        return found


def _makespan_us(trial: Trial) -> int:
    return trial.makespan_us
