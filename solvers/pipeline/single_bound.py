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
from arachne_opt.solvers.pipeline.workbench import Workbench

Span = tuple[float, float]

_STEP = 0.004  # of the time, between limits of the exchange
_FINEST = 0.0005  # the same where the exact sends are known
_SAME = 1 - 2e-4  # a load that falls by less has come to rest
_ROUNDS = 30


def open_batches(bench: Workbench, seconds: float, over: Callable[[], bool]) -> Iterator[int]:
    """Batches at which a pipeline may take less than ``seconds``: none is a proof.

    The proof holds for the stages that the workbench has as options, any number of them, in any
    order and with any rows. A search that is over leaves the rest of the batches open.
    """
    for batch in bench.ranking.batches(bench.problem.global_batch):
        if over() or open_exchanges(bench, batch, seconds):
            yield batch


def open_exchanges(bench: Workbench, batch: int, seconds: float) -> list[Span]:
    """Spans of the gradient exchange at which a pipeline of the batch may take less time."""
    quick = Chains(bench, batch, exact=False)
    if not quick.count:
        return []
    proof = _Proof(-(-bench.problem.global_batch // batch), seconds)
    most_s = seconds - WorkBound(bench.space).seconds(bench.problem.global_batch)
    spans = list(proof.open_spans(quick, (0.0, max(most_s, 0.0)), _STEP))
    if spans:
        exact = Chains(bench, batch, exact=True)
        spans = [s for span in spans for s in proof.open_spans(exact, span, _FINEST)]
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
