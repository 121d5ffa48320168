"""The nearest plan that another trainer can be told, priced like every other plan.

A trainer that takes any cuts gets the best plan of our own search, restricted to one degree for all
stages; one that makes its own cuts gets the best of the grids that it would make.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property

from arachne_opt.costs.pipeline.tables import TableCosts
from arachne_opt.errors import InfeasibleError, NoPlanError
from arachne_opt.exporters.grid import Abilities
from arachne_opt.pipeline.check import check_plan
from arachne_opt.pipeline.closed_form import price_plan
from arachne_opt.pipeline.placement import place
from arachne_opt.pipeline.plan import PipelinePlan, ReplicaKind
from arachne_opt.pipeline.problem import PipelineProblem
from arachne_opt.pipeline.verify import verify
from arachne_opt.planning.even_grids import even_grids
from arachne_opt.solvers.base import Limits
from arachne_opt.solvers.pipeline.planner import solve_pipeline
from arachne_opt.solvers.pipeline.restrictions import Restrictions

_LEAST_S = 0.5


@dataclass(frozen=True, slots=True, kw_only=True)
class Expressible:
    """A plan that a trainer can be told, with its verified price."""

    plan: PipelinePlan
    iteration_s: float


def nearest(problem: PipelineProblem, abilities: Abilities, limits: Limits) -> Expressible:
    """The best plan found that a trainer can be told.

    Raises:
        InfeasibleError: the trainer can be told no plan at all that fits.
        NoPlanError: the time limit passed before one was found.
    """
    allowed = replace(
        problem,
        options=replace(
            problem.options,
            max_pipelines=1,
            zero1=problem.options.zero1 and abilities.zero1,
            recomputation=problem.options.recomputation and abilities.recompute,
        ),
    )
    plans = (
        _searched(allowed, abilities, limits)
        if abilities.cuts is None
        else even_grids(allowed, abilities.cuts, limits)
    )
    found = [
        Expressible(plan=plan, iteration_s=price_plan(allowed, plan).iteration_s) for plan in plans
    ]
    if not found:
        what = f"no plan was found that {abilities.trainer} can be told"
        if abilities.cuts is None:
            raise NoPlanError(what, where=problem.name, hint="a longer --time-limit")
        what += ", with the cuts that it makes itself"
        raise InfeasibleError(what, where=problem.name, hint="--to megatron, which takes any cuts")
    best = min(found, key=lambda entry: entry.iteration_s)
    verify(allowed, best.plan, best.iteration_s)
    return best


def _searched(
    problem: PipelineProblem, abilities: Abilities, limits: Limits
) -> Iterator[PipelinePlan]:
    """The best plan of every pair of degrees."""
    pairs = sorted({(k.tp, k.ep) for k in TableCosts(problem).kinds})
    pairs = [(tp, ep) for tp, ep in pairs if ep == 1 or abilities.experts]
    modes = (False, True) if problem.options.recomputation else (False,)
    share = max(_LEAST_S, limits.time_limit_s / (len(pairs) * len(modes)))
    for rebuild in modes:
        options = replace(problem.options, recomputation=rebuild)
        allowed = replace(problem, options=options)
        for tp, ep in pairs:
            result = solve_pipeline(
                allowed,
                _OneDegree(allowed, tp, ep),
                replace(limits, time_limit_s=share),
                restrictions=Restrictions(equal_dp=True),
            )
            if result.plan is not None:
                yield from _uniform(allowed, result.plan)


def _uniform(problem: PipelineProblem, plan: PipelinePlan) -> Iterator[PipelinePlan]:
    """The plan with activations rebuilt in all stages, if they are in any; none if that fails."""
    (pipeline,) = plan.pipelines
    if any(stage.recompute for stage in pipeline.stages):
        stages = tuple(replace(stage, recompute=True) for stage in pipeline.stages)
        plan = replace(plan, pipelines=(replace(pipeline, stages=stages),))
    if not check_plan(problem, plan):
        yield place(problem, plan)


class _OneDegree(TableCosts):
    """Prices where all replicas have one tensor-parallel and one expert degree."""

    def __init__(self, problem: PipelineProblem, tp: int, ep: int) -> None:
        super().__init__(problem)
        self._degrees_of_all = (tp, ep)

    @cached_property
    def kinds(self) -> tuple[ReplicaKind, ...]:
        """Kinds of these degrees."""
        known = TableCosts(self.problem).kinds
        return tuple(k for k in known if (k.tp, k.ep) == self._degrees_of_all)
