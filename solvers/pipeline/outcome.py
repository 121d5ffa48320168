"""Results of searches that have ended."""

from __future__ import annotations

from arachne_opt import __version__
from arachne_opt.pipeline.placement import place
from arachne_opt.pipeline.problem import PipelineProblem
from arachne_opt.solvers.base import Limits, Status
from arachne_opt.solvers.clock import Clock
from arachne_opt.solvers.pipeline.base import PipelineResult
from arachne_opt.solvers.pipeline.incumbent import PipelineIncumbent
from arachne_opt.solvers.pipeline.workbench import Workbench


def finish(
    bench: Workbench,
    best: PipelineIncumbent,
    limits: Limits,
    clock: Clock,
    bound_s: float,
    solver: str,
    *,
    columns: int = 0,
    column_bound_s: float | None = None,
) -> PipelineResult:
    """The result of a search that has ended."""
    kept = best.kept
    status = Status.NO_PLAN
    if kept is not None:
        status = Status.OPTIMAL if kept.iteration_s <= bound_s * (1 + 1e-9) else Status.FEASIBLE
    return PipelineResult(
        status=status,
        plan=place(bench.problem, kept.plan) if kept else None,
        iteration_s=kept.iteration_s if kept else None,
        cautious_s=kept.cautious_s if kept else None,
        bound_s=min(bound_s, kept.iteration_s) if kept else bound_s,
        column_bound_s=column_bound_s,
        columns=columns,
        solver=solver,
        seed=limits.seed,
        wall_s=clock.wall_s(),
        versions={"arachne-opt": __version__},
        history=tuple(best.history),
        interrupted=clock.interrupted,
    )


def infeasible(
    problem: PipelineProblem, limits: Limits, clock: Clock, solver: str, binding: tuple[str, ...]
) -> PipelineResult:
    """The result for a problem without any plan, with the limits that bind."""
    assert binding, problem.name
    return PipelineResult(
        status=Status.INFEASIBLE,
        plan=None,
        iteration_s=None,
        cautious_s=None,
        bound_s=0.0,
        solver=solver,
        seed=limits.seed,
        wall_s=clock.wall_s(),
        versions={"arachne-opt": __version__},
        binding=binding,
    )
