"""Proofs that no plan of one pipeline takes less than some time.

A plan of M micro-batches takes (M - 1) · load + fill + update + exchange. For a time T, and
exchanges between x and y, its load is at most (T - x - fill) / (M - 1) with the least fill that
``Chains`` finds under that load and the exchange y. A lower load asks for more fill, and so on: in
the end no plan is left, or the exchanges stay open: there may be a plan.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator

from arachne_opt.solvers.pipeline.bounds import WorkBound
from arachne_opt.solvers.pipeline.chains import Chains
from arachne_opt.solvers.pipeline.workbench import Workbench

Span = tuple[float, float]

_STEP = 0.004  # of the time, between limits of the exchange
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
    rounds = -(-bench.problem.global_batch // batch)
    quick = Chains(bench, batch, exact=False)
    if not quick.count or not math.isfinite(
        quick.least_fill_s(seconds / rounds, math.inf, seconds)
    ):
        return []
    most_s = seconds - WorkBound(bench.space).seconds(bench.problem.global_batch)
    step = _STEP * seconds
    spans = [(n * step, (n + 1) * step) for n in range(math.ceil(max(most_s, 0) / step))]
    spans = [s for s in spans if _is_open(quick, rounds, seconds, s)]
    if spans:
        exact = Chains(bench, batch, exact=True)
        spans = [s for s in spans if _is_open(exact, rounds, seconds, s)]
    return spans


def _is_open(chains: Chains, rounds: int, seconds: float, span: Span) -> bool:
    low, high = span
    left = seconds - low
    load = left / rounds  # no fill is less than the load
    for _ in range(_ROUNDS):
        fill = chains.least_fill_s(load, high, left)
        if fill >= left:
            return False
        if rounds == 1:
            return True
        lower = (left - fill) / (rounds - 1)
        if lower > load * _SAME:
            return True
        load = lower
    return True
