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
from arachne_opt.solvers.pipeline.priced_fills import PricedFills
from arachne_opt.solvers.pipeline.stage_facts import Stages
from arachne_opt.solvers.pipeline.workbench import Workbench

Span = tuple[float, float]

# What there is between limits of the exchange, as a part of the time. With devices counted: splits
# of a stage, and whether sends are exact; first for all batches, then for what is left open.
_STEP = 0.004
_LOOKS = ((8, False, _STEP), (None, True, 0.0005))
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
    bound, limits = WorkBound(bench.space), bench.place_limits
    most_s = seconds - bound.seconds(bench.problem.global_batch)
    whole = (0.0, max(most_s, 0.0))
    fills = PricedFills(stages.priced(batch), limits, bench.space.in_stages, bound.prices)
    if not fills.count:
        return []
    spans = list(proof.open_spans(fills, whole, _STEP))
    for most, exact, step in _LOOKS if stages.countable else ():
        if not spans:
            break
        split = stages.split(batch, limits, most)
        chains = Chains(split, limits, bench.space.in_stages, exact=exact)
        spans = [s for span in spans for s in proof.open_spans(chains, span, step)]
    return spans


@dataclass(frozen=True, slots=True)
class _Proof:
    """What is to be proven: that so many rounds take no less time."""

    rounds: int
    seconds: float

    def open_spans(self, chains: Chains | PricedFills, span: Span, step: float) -> Iterator[Span]:
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

    def is_open(self, chains: Chains | PricedFills, span: Span) -> bool:
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
