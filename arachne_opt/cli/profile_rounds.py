"""Measures in rounds under a time budget: each round the points that are the least sure."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import numpy as np

from arachne_opt.cli.progress import ProgressLine
from arachne_opt.costs.learned.active import (
    FEWEST_GROUPS,
    disagreement,
    most_unsure,
    spread_out,
)
from arachne_opt.costs.learned.cascade import points_of, targets_of
from arachne_opt.costs.learned.cascade_features import TASKS, TaskPoint, task_samples
from arachne_opt.device_types import device_type
from arachne_opt.units import US_PER_S

if TYPE_CHECKING:
    from arachne_opt.costs.learned.samples import Floats
    from arachne_opt.executor.launch import ProgressCallback
    from arachne_opt.models import ModelSpec
    from arachne_opt.records import Measurement
    from arachne_opt.workload import MicroBatch

FIRST_ROUND = 5
ROUND = 3

# Measures some candidates, by their numbers.
Measure = Callable[[Sequence[int], "ProgressCallback"], "tuple[Measurement, ...]"]
# Candidates to measure next, given those that were measured and what that gave.
Choose = Callable[[Sequence[int], "Sequence[Measurement]", int], "tuple[int, ...]"]


def in_rounds(
    count: int, budget_s: float, choose: Choose, measure: Measure
) -> tuple[Measurement, ...]:
    """What was measured until the budget or the candidates ran out.

    A round is begun as long as the budget is expected to last for one; the first one always is.
    The first rank decides for all.
    """
    begin, line = time.monotonic(), ProgressLine()
    measured: list[int] = []
    rows: list[Measurement] = []
    longest = 0.0
    try:
        while len(measured) < count:
            spent = time.monotonic() - begin
            enough = bool(measured) and spent + longest > budget_s
            wanted = FIRST_ROUND if not measured else ROUND
            chosen = _agreed(() if enough else choose(measured, rows, wanted))
            if not chosen:
                break
            head = f"{len(measured)}/{count} points"
            bar = _bar(spent, budget_s, head)
            rows += measure(chosen, lambda p, bar=bar: line.show(f"{bar}  {p.text}"))  # type: ignore[misc]  # a default binds the loop's value
            measured += chosen
            longest = max(longest, time.monotonic() - begin - spent)
    finally:
        line.clear()
    return tuple(rows)


def choose_shapes(
    spec: ModelSpec, batches: Sequence[MicroBatch], degrees: Sequence[int], kind: str
) -> Choose:
    """The shapes whose tasks a committee is the least sure of, over all degrees."""
    places = np.log(
        [[b.size, b.shape.frames, b.shape.height * b.shape.width, spec.tokens(b.shape)]
         for b in batches]
    )  # fmt: skip

    def choose(
        measured: Sequence[int], rows: Sequence[Measurement], wanted: int
    ) -> tuple[int, ...]:
        if len(measured) < FEWEST_GROUPS:
            return spread_out(places, measured, wanted)
        unsure = np.zeros(len(batches))
        for task in TASKS:
            mine = [m for m in rows if m.task == task and not m.recompute]
            if mine:
                unsure += _unsure(spec, task, mine, batches, degrees, kind)
        return most_unsure(places, unsure, measured, wanted)

    return choose


def _unsure(
    spec: ModelSpec,
    task: str,
    rows: Sequence[Measurement],
    batches: Sequence[MicroBatch],
    degrees: Sequence[int],
    kind: str,
) -> Floats:
    """Summed disagreement of each shape over its degrees."""
    sheet = device_type(kind)
    asked = [
        (i, TaskPoint(clips=b.size, shape=b.shape, text_tokens=b.text_tokens, degree=k,
                      device_type=sheet))
        for i, b in enumerate(batches)
        for k in degrees
        if task != "denoise" or k in spec.legal_degrees(k)
    ]  # fmt: skip
    known = task_samples(spec, task, points_of(rows), degrees)
    targets = targets_of(rows, [m.duration_us / US_PER_S for m in rows])
    spread = disagreement(known, targets, task_samples(spec, task, [p for _, p in asked], degrees))
    unsure = np.zeros(len(batches))
    np.add.at(unsure, [i for i, _ in asked], spread)
    return unsure


def under_torchrun() -> bool:
    """Whether torchrun has started this process as one of several ranks."""
    return "TORCHELASTIC_RUN_ID" in os.environ and "RANK" in os.environ


def is_first_rank() -> bool:
    """Whether this process prints and stores."""
    return not under_torchrun() or os.environ["RANK"] == "0"


def finish() -> None:
    """Ends a rank that torchrun has started; returns where there is none."""
    if under_torchrun():
        from arachne_opt.executor.measure_here import leave

        leave()


def _agreed(chosen: tuple[int, ...]) -> tuple[int, ...]:
    if not under_torchrun():
        return chosen
    from arachne_opt.executor.measure_here import agreed

    return agreed(chosen)


def _bar(spent_s: float, budget_s: float, head: str) -> str:
    width = 20
    full = min(width, round(width * spent_s / budget_s)) if np.isfinite(budget_s) else 0
    return f"[{'#' * full}{'.' * (width - full)}] {spent_s:.0f}/{budget_s:.0f} s  {head}"
