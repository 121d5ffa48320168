"""Pipeline plans as other trainers can run them: one grid of tp, dp and stages for all devices.

A *grid* is what Megatron-LM, torchtitan, accelerate and DeepSpeed start: every stage has the same
tensor-parallel degree, the same number of replicas and the same expert degree. Plans of ours may do
more; ``losses`` says what a trainer would lose, and ``grid_of`` gives the grid where nothing is.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from arachne_opt.pipeline.plan import PipelinePlan, Stage

# Cuts that a trainer makes of some rows for some stages; None where it cannot divide them.
CutRule = Callable[[int, int], tuple[int, ...] | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Abilities:
    """What a trainer can be told.

    Args:
        trainer: its name, for messages.
        cuts: the only cuts that it makes; None where it takes any.
        experts: it knows expert parallelism.
        recompute: it can rebuild all activations of a block.
        zero1: it can shard optimizer state alone over the replicas.
    """

    trainer: str
    cuts: CutRule | None = None
    experts: bool = True
    recompute: bool = True
    zero1: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Grid:
    """A plan that a trainer can run.

    Args:
        cuts: first row of every stage, and the number of rows.
        dp: replicas of every stage.
        global_batch: samples of an iteration, those beyond the one that was asked for included.
        stages: each with all its replicas.
        recompute: activations are rebuilt, in all stages or in none.
    """

    model: str
    cuts: tuple[int, ...]
    tp: int
    dp: int
    ep: int
    microbatch: int
    microbatches: int
    global_batch: int
    stages: tuple[Stage, ...]
    recompute: bool
    zero1: bool

    @property
    def pp(self) -> int:
        """Number of stages."""
        return len(self.stages)

    @property
    def rows(self) -> int:
        """Rows of the model: embedding, blocks and head."""
        return self.cuts[-1]

    @property
    def blocks(self) -> int:
        """Transformer blocks."""
        return self.rows - 2

    @property
    def world_size(self) -> int:
        """Devices."""
        return self.tp * self.dp * self.pp

    def blocks_of(self, stage: int) -> int:
        """Transformer blocks of a stage."""
        first, end = self.cuts[stage], self.cuts[stage + 1]
        return end - first - (first == 0) - (end == self.rows)


def losses(plan: PipelinePlan, abilities: Abilities) -> tuple[str, ...]:
    """What a trainer cannot be told of a plan; nothing where it can run it as it is."""
    trainer = abilities.trainer
    lost = [*_of_pipelines(plan, trainer), *_of_degrees(plan, trainer)]
    stages = [stage for _, _, stage in plan.stages()]
    rebuilt = [stage.recompute for stage in stages]
    if any(rebuilt) and not abilities.recompute:
        lost.append(f"activations are rebuilt: {trainer} can rebuild those of attention alone")
    elif len(set(rebuilt)) > 1:
        text = f"activations are rebuilt in {sum(rebuilt)} of {len(rebuilt)} stages"
        lost.append(f"{text}: {trainer} rebuilds them in all stages or in none")
    if not abilities.experts and any(k.ep > 1 for s in stages for k in s.kinds):
        lost.append(f"experts are spread over replicas: {trainer} cannot be told so")
    if plan.zero1 and not abilities.zero1:
        lost.append(f"optimizer state is shared (ZeRO-1): {trainer} cannot share it alone")
    if abilities.cuts is not None:
        lost += _of_cuts(plan, abilities, abilities.cuts)
    return tuple(lost)


def grid_of(plan: PipelinePlan) -> Grid:
    """The grid of a plan without losses; equal pipelines become replicas of one."""
    first = plan.pipelines[0]
    stages = tuple(
        replace(
            stage,
            replicas=tuple(r for p in plan.pipelines for r in p.stages[i].replicas),
        )
        for i, stage in enumerate(first.stages)
    )
    kind = stages[0].replicas[0].kind
    return Grid(
        model=plan.model,
        cuts=(0, *(stage.end for stage in stages)),
        tp=kind.tp,
        dp=len(stages[0].replicas),
        ep=kind.ep,
        microbatch=first.microbatch,
        microbatches=plan.counts[0],
        global_batch=plan.samples,
        stages=stages,
        recompute=stages[0].recompute,
        zero1=plan.zero1,
    )


def even_blocks(rows: int, stages: int) -> tuple[int, ...] | None:
    """Equal numbers of blocks, with the embedding in the first and the head in the last stage."""
    blocks, rest = divmod(rows - 2, stages)
    if rest or blocks < 1:
        return None
    inner = [1 + blocks * i for i in range(1, stages)]
    return (0, *inner, rows)


def even_rows(rows: int, stages: int) -> tuple[int, ...] | None:
    """Equal numbers of rows, one more in the first stages where they do not divide."""
    size, rest = divmod(rows, stages)
    if size < 1:
        return None
    return tuple(size * i + min(i, rest) for i in range(stages + 1))


def _of_pipelines(plan: PipelinePlan, trainer: str) -> list[str]:
    """Several pipelines are replicas of one where all but the devices is equal."""
    shapes = {
        (p.microbatch, n, tuple((s.first, s.end, len(s.replicas)) for s in p.stages))
        for p, n in zip(plan.pipelines, plan.counts, strict=True)
    }
    if len(shapes) == 1:
        return []
    parts = sorted({" ".join(_shape(s)) for s in shapes})
    text = f"{len(plan.pipelines)} pipelines of {len(shapes)} shapes ({'; '.join(parts)})"
    return [f"{text}: {trainer} has one shape for all"]


def _shape(shape: tuple[int, int, tuple[tuple[int, int, int], ...]]) -> list[str]:
    microbatch, count, stages = shape
    rows = "+".join(str(end - first) for first, end, _ in stages)
    return [f"rows {rows},", f"{count} micro-batches of {microbatch}"]


def _of_degrees(plan: PipelinePlan, trainer: str) -> list[str]:
    """One tensor-parallel degree, one number of replicas and one expert degree for all stages."""
    lost = []
    tps = {k.tp for _, _, s in plan.stages() for k in s.kinds}
    if len(tps) > 1:
        shown = _by_stage(plan, lambda s: "/".join(str(t) for t in sorted({k.tp for k in s.kinds})))
        lost.append(f"tensor-parallel degrees {shown} by stage: {trainer} has one for all stages")
    if any(len({len(s.replicas) for s in p.stages}) > 1 for p in plan.pipelines):
        shown = _by_stage(plan, lambda s: str(len(s.replicas)))
        lost.append(f"{shown} replicas by stage: {trainer} has as many of every stage")
    if len({k.ep for _, _, s in plan.stages() for k in s.kinds}) > 1:
        shown = _by_stage(plan, lambda s: str(s.replicas[0].kind.ep))
        lost.append(f"expert degrees {shown} by stage: {trainer} has one for all stages")
    return lost


def _by_stage(plan: PipelinePlan, value: Callable[[Stage], str]) -> str:
    """A value of every stage, pipeline by pipeline, equal pipelines once."""
    lines = dict.fromkeys(", ".join(map(value, p.stages)) for p in plan.pipelines)
    return "; ".join(lines)


def _of_cuts(plan: PipelinePlan, abilities: Abilities, rule: CutRule) -> list[str]:
    lost = []
    for pipeline in dict.fromkeys(_cuts(p.stages) for p in plan.pipelines):
        wanted = rule(pipeline[-1], len(pipeline) - 1)
        if wanted == pipeline:
            continue
        sizes = _sizes(pipeline)
        text = f"{abilities.trainer} does not divide {pipeline[-1]} rows into {len(pipeline) - 1}"
        if wanted is not None:
            text = f"{abilities.trainer} would cut them into {_sizes(wanted)}"
        lost.append(f"stages of {sizes} rows: {text}")
    return lost


def _cuts(stages: Sequence[Stage]) -> tuple[int, ...]:
    return (0, *(stage.end for stage in stages))


def _sizes(cuts: Sequence[int]) -> str:
    return "+".join(str(b - a) for a, b in pairwise(cuts))
