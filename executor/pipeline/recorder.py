"""Notes how the time of a rank passes; what the ranks exchange about it."""

from __future__ import annotations

import time

import torch

from arachne_opt.executor.distributed import gather, synchronize
from arachne_opt.executor.pipeline.report import RankSpan
from arachne_opt.executor.pipeline.runner import Phase
from arachne_opt.executor.pipeline.schedule import Action

# In the order of the columns of ``sums_us``.
PHASES = (Phase.COMPUTE, Phase.SEND, Phase.WAIT, Phase.SYNC, Phase.UPDATE)

_NUMBERS = 5


class Recorder:
    """An observer that keeps the spans of the step at hand.

    On a GPU a true clock waits for all queued work, at the cost of what would overlap; so it is
    used in some steps only, and other steps have no spans there.

    Args:
        rank: of the layout; changes where the training moves to another plan.
        device: whose queued work counts.
    """

    def __init__(self, rank: int, device: torch.device) -> None:
        self.rank, self._device = rank, device
        self._zero_s = 0.0
        self.watching = True
        self._spans: list[tuple[int, bool, int, float, float]] = []

    def begin(self, *, watch: bool) -> None:
        """Starts a step, from now.

        Args:
            watch: note spans, whatever that costs; on a CPU it costs nothing and is always done.
        """
        self._spans.clear()
        self.watching = watch or self._device.type == "cpu"
        synchronize(self._device)
        self._zero_s = time.perf_counter()

    def now_s(self) -> float:
        """Seconds since the step's start; with all queued work done where the step is watched."""
        if self.watching:
            synchronize(self._device)
        return time.perf_counter() - self._zero_s

    def end_s(self) -> float:
        """Seconds since the step's start, with all queued work done."""
        synchronize(self._device)
        return time.perf_counter() - self._zero_s

    def note(self, phase: Phase, action: Action | None, begin_s: float, end_s: float) -> None:
        """Keeps a span of a step that is watched."""
        if not self.watching:
            return
        forward = action is not None and action.forward
        microbatch = -1 if action is None else action.microbatch
        self._spans.append((PHASES.index(phase), forward, microbatch, begin_s, end_s))

    def sums_us(self) -> list[float]:
        """Time in each phase."""
        sums = [0.0] * len(PHASES)
        for phase, _, _, begin_s, end_s in self._spans:
            sums[phase] += 1e6 * (end_s - begin_s)
        return sums

    def gather_spans(self) -> tuple[RankSpan, ...]:
        """The spans of all ranks in this step; all ranks ask together."""
        longest = max(int(count) for (count,) in gather([len(self._spans)]))
        flat = [float(number) for span in self._spans for number in span]
        padding = [-1.0] * (_NUMBERS * longest - len(flat))
        rows = gather([self.rank, *flat, *padding])
        return tuple(span for row in rows for span in _spans(round(row[0]), row[1:]))


def _spans(rank: int, numbers: list[float]) -> list[RankSpan]:
    found = []
    for at in range(0, len(numbers), _NUMBERS):
        phase, forward, microbatch, begin_s, end_s = numbers[at : at + _NUMBERS]
        if phase >= 0:
            found.append(
                RankSpan(
                    rank=rank,
                    phase=PHASES[round(phase)].value,
                    forward=bool(forward),
                    microbatch=round(microbatch),
                    start_us=round(1e6 * begin_s),
                    end_us=round(1e6 * end_s),
                )
            )
    return found
