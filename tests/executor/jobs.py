"""Small jobs with plans written by hand or drawn at random."""

from __future__ import annotations

import random
from dataclasses import replace

from arachne_opt.cascade.plan import CascadePlan, Placement
from arachne_opt.cascade.problem import CascadeProblem, Task
from arachne_opt.executor.job import ReplayIteration, ReplayJob
from arachne_opt.executor.model_config import ModelChoice
from arachne_opt.workload import Clip, Iteration, MicroBatch, Shape
from tests.strategies import even_cluster, seeded_plan, two_stage

TASK_US = 100_000
# 45, 42 and 6 tokens: none divides by 4, the first not even by 2.
ODD = Shape(frames=9, height=48, width=80)
WIDE = Shape(frames=5, height=48, width=112)
SMALL = Shape(frames=1, height=32, width=48)
TILED = {"tile": 64, "tile_stride": 48}


def batch(name: str, shape: Shape, clips: int = 1, **fields: object) -> MicroBatch:
    rows = (
        Clip(id=f"{name}-{i}", shape=shape, text_tokens=3 + 4 * i, **fields) for i in range(clips)
    )
    return MicroBatch(id=name, shape=shape, clips=tuple(rows))


def problem_of(batches: tuple[MicroBatch, ...], devices: int = 4) -> CascadeProblem:
    encode = dict.fromkeys(range(1, devices + 1), TASK_US)
    denoise = {k: TASK_US for k in (1, 2, 4) if k <= devices}
    cascades = tuple(two_stage(b.id, encode, denoise) for b in batches)
    return CascadeProblem(name="hand", cluster=even_cluster(1, devices), cascades=cascades)


def iteration_of(
    name: str,
    batches: tuple[MicroBatch, ...],
    runs: tuple[tuple[int, int, tuple[int, ...], int], ...],
    devices: int = 4,
) -> ReplayIteration:
    """Runs are (cascade, task, devices, slot); a slot is one task long."""
    placements = tuple(
        Placement(
            cascade=c, task=t, devices=group, start_us=slot * TASK_US, end_us=(slot + 1) * TASK_US
        )
        for c, t, group, slot in runs
    )
    return ReplayIteration(
        batches=Iteration(name=name, micro_batches=batches),
        problem=problem_of(batches, devices),
        plan=CascadePlan(problem_name="hand", placements=placements),
    )


def mixed_iterations() -> tuple[ReplayIteration, ReplayIteration]:
    """Degrees 1, 2 and 4 in one iteration, on groups that overlap and change; 3 for encoding."""
    first = (batch("a", ODD, 2), batch("b", WIDE), batch("c", ODD), batch("d", SMALL, 3))
    runs = (
        (0, 0, (0,), 0),
        (1, 0, (1, 2, 3), 0),
        (0, 1, (1, 0), 1),
        (1, 1, (2,), 1),
        (3, 0, (3, 2), 2),
        (2, 0, (0, 1), 2),
        (3, 1, (1, 3), 3),
        (2, 1, (0, 1, 2, 3), 4),
    )
    second = (batch("e", WIDE, 2), batch("f", ODD))
    other = (
        (0, 0, (0, 1, 2, 3), 0),
        (1, 0, (3,), 1),
        (0, 1, (0, 2), 1),
        (1, 1, (1, 3), 2),
    )
    return iteration_of("mixed", first, runs), iteration_of("other", second, other)


def job_of(*iterations: ReplayIteration, preset: str = "toy", **fields: object) -> ReplayJob:
    # The tiles of CogVideoX's own encoder overlap otherwise: it is compared without any.
    overrides = TILED if preset in ("tiny-wan", "tiny-wan-i2v", "tiny-hunyuan-video") else {}
    if preset == "tiny-cogvideox":
        overrides = {"tile": 160, "tile_stride": 120}
    model = ModelChoice(
        preset=preset,
        overrides=overrides,
        seed=7,
        checkpointing=bool(fields.pop("checkpointing", False)),
    )
    return ReplayJob(model=model, iterations=iterations or mixed_iterations(), **fields)


def half_recomputed(iteration: ReplayIteration) -> ReplayIteration:
    """The iteration with every other denoise task planned to compute its activations again."""

    def both(task: Task) -> Task:
        again = tuple(replace(option, recompute=True) for option in task.options)
        return replace(task, options=task.options + again) if task.name == "denoise" else task

    cascades = (replace(c, tasks=tuple(map(both, c.tasks))) for c in iteration.problem.cascades)
    placements = (
        replace(p, recompute=not iteration.encodes(p) and p.cascade % 2 == 0)
        for p in iteration.plan.placements
    )
    return replace(
        iteration,
        problem=replace(iteration.problem, cascades=tuple(cascades)),
        plan=replace(iteration.plan, placements=tuple(placements)),
    )


def random_iteration(seed: int) -> ReplayIteration:
    """A few micro-batches under a legal plan with random groups on 4 devices.

    Odd seeds compute some activations again.
    """
    rng = random.Random(seed)
    shapes = (ODD, WIDE, SMALL)
    batches = tuple(
        batch(f"s{seed}b{i}", rng.choice(shapes), rng.randint(1, 2))
        for i in range(rng.randint(2, 5))
    )
    problem = problem_of(batches)
    made = ReplayIteration(
        batches=Iteration(name=f"random-{seed}", micro_batches=batches),
        problem=problem,
        plan=seeded_plan(problem, seed),
    )
    return half_recomputed(made) if seed % 2 else made
