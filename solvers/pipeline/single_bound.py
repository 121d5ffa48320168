"""Proofs that no plan of one pipeline takes less than some time.

A plan of M micro-batches takes (M - 1) · load + fill + update + exchange. For a time T, and
exchanges between x and y, its load is at most (T - x - fill) / (M - 1) with the least fill that
``Chains`` finds under that load and the exchange y. A lower load asks for more fill, and so on: in
the end no plan is left, or the exchanges stay open: there may be a plan.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from arachne_opt.solvers.pipeline.bounds import WorkBound
from arachne_opt.solvers.pipeline.chains import Chains
from arachne_opt.solvers.pipeline.stage_facts import Stages
from arachne_opt.solvers.pipeline.workbench import Workbench

Span = tuple[float, float]

# Splits of a stage, whether sends are exact, and what there is between limits of the exchange, as a
# part of the time: first for all batches, then for what is left open.
_LOOKS = ((8, False, 0.004), (None, True, 0.0005))
_SAME = 1 - 2e-4  # a load that falls by less has come to rest
_ROUNDS = 30


def open_batches(
    bench: Workbench, stages: Stages, seconds: float, over: Callable[[], bool]
) -> Iterator[int]:
    """Batches at which a pipeline may take less than ``seconds``: none is a proof.

    The proof holds for these stages, any number of them, in any order and with any rows. A search
    that is over leaves the rest of the batches open.
    """
    for batch in stages.batches:
        if over() or open_exchanges(bench, stages, batch, seconds):
            yield batch


def open_exchanges(bench: Workbench, stages: Stages, batch: int, seconds: float) -> list[Span]:
    """Spans of the gradient exchange at which a pipeline of the batch may take less time."""
    proof = _Proof(-(-bench.problem.global_batch // batch), seconds)
    most_s = seconds - WorkBound(bench.space).seconds(bench.problem.global_batch)
    spans, limits = [(0.0, max(most_s, 0.0))], bench.place_limits
    if not stages.countable:
        return spans
    for most, exact, step in _LOOKS:
        split = stages.split(batch, limits, most)
        if not split.facts.count:
            return []
        chains = Chains(split, limits, bench.space.in_stages, exact=exact)
        spans = [s for span in spans for s in proof.open_spans(chains, span, step)]
        if not spans:
            break
    return spans


@dataclass(frozen=True, slots=True)
class _Proof:
    """What is to be proven: that so many rounds take no less time."""

    rounds: int
    seconds: float

    def open_spans(self, chains: Chains, span: Span, step: float) -> Iterator[Span]:
        """The parts of a span of exchanges that stay open, of lengths down to a step."""
        low, high = span
        if not self.is_open(chains, span):
            return
        if high - low <= step * self.seconds:
            yield span
            return
        middle = (low + high) / 2
        yield from self.open_spans(chains, (low, middle), step)
        yield from self.open_spans(chains, (middle, high), step)

    def is_open(self, chains: Chains, span: Span) -> bool:
        """Whether there may be a plan with an exchange in the span."""
        low, high = span
        left = self.seconds - low
        load = left / self.rounds  # no fill is less than the load
        for _ in range(_ROUNDS):
            fill = chains.least_fill_s(load, high, left)
            if fill >= left:
                return False
            if self.rounds == 1:
                return True
            lower = (left - fill) / (self.rounds - 1)
            if lower > load * _SAME:
                return True
            load = lower
        return True
