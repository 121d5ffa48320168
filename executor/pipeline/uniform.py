"""Which plans torch.distributed.pipelining can run; knows no torch."""

from __future__ import annotations

import enum

from arachne_opt.errors import InputError
from arachne_opt.pipeline.layout import Layout
from arachne_opt.pipeline.problem import Schedule


class Engine(enum.StrEnum):
    """What runs the forwards and backwards of a rank."""

    TABLES = "tables"
    TORCH = "torch"


def refuse_engine(layout: Layout, engine: Engine, schedule: Schedule) -> None:
    """Refuses a schedule that an engine does not know, and a plan that torch's cannot run.

    Raises:
        InputError: says why.
    """
    interleaved = schedule is Schedule.INTERLEAVED
    if (layout.chunks > 1) is not interleaved:
        what = f"{layout.chunks} chunks with schedule {schedule}"
        raise InputError(what, hint="two chunks or more, interleaved; one, otherwise")
    if engine is Engine.TABLES:
        if interleaved:
            raise InputError("only torch's engine interleaves stages", hint="engine torch")
        return
    if (why := why_not_torch(layout, schedule)) is not None:
        what = f"torch.distributed.pipelining cannot run the plan: {why}"
        raise InputError(what, hint="engine tables, which runs every plan")


def why_not_torch(layout: Layout, schedule: Schedule) -> str | None:
    """Why torch's schedules cannot run a plan; None where they can."""
    for number, (pipeline, count) in enumerate(
        zip(layout.plan.pipelines, layout.plan.counts, strict=True)
    ):
        stages, where = pipeline.stages, f"pipeline {number}"
        if len(stages) < 2:
            return f"{where} has one stage"
        shapes = {tuple((r.kind.tp, r.kind.ep) for r in s.replicas) for s in stages}
        if len(shapes) > 1 or len(set(shapes.pop())) > 1:
            return f"{where} has stages of unlike replicas"
        if schedule is Schedule.ONE_F_ONE_B and count < len(stages):
            return f"{where} has fewer micro-batches than stages"
        if schedule is Schedule.INTERLEAVED and count % max(1, count // len(stages)):
            return f"{where} has {count} micro-batches, which {len(stages)} stages cannot share"
    return None


def chains_of_ranks(layout: Layout) -> tuple[tuple[int, ...], ...]:
    """Ranks that pass micro-batches on to each other: equal members of all stages."""
    found = []
    for p, pipeline in enumerate(layout.plan.pipelines):
        for n, replica in enumerate(pipeline.stages[0].replicas):
            for t in range(replica.kind.tp):
                found.append(tuple(layout.rank_of(p, i, n, t) for i in range(len(pipeline.stages))))
    return tuple(found)
