"""Runs a peer's rule: prices its proposals and takes the best legal one."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator

from arachne_opt.costs.pipeline.base import PipelineCosts
from arachne_opt.costs.pipeline.closed_form import plan_price
from arachne_opt.errors import InfeasibleError
from arachne_opt.pipeline.check import check_plan
from arachne_opt.pipeline.placement import place
from arachne_opt.pipeline.plan import Pipeline, PipelinePlan
from arachne_opt.pipeline.problem import PipelineProblem
from arachne_opt.solvers.base import Limits, StopCheck
from arachne_opt.solvers.baselines.pipeline.layouts import Proposal
from arachne_opt.solvers.clock import Clock
from arachne_opt.solvers.pipeline.base import PipelineCallback, PipelineResult
from arachne_opt.solvers.pipeline.bounds import WorkBound
from arachne_opt.solvers.pipeline.incumbent import PipelineIncumbent
from arachne_opt.solvers.pipeline.outcome import finish
from arachne_opt.solvers.pipeline.workbench import Workbench

Rule = Callable[[Workbench], Iterator[Proposal]]


def solve_by_rule(
    name: str,
    rule: Rule,
    problem: PipelineProblem,
    costs: PipelineCosts,
    limits: Limits,
    *,
    on_progress: PipelineCallback | None = None,
    should_stop: StopCheck | None = None,
    start_plan: PipelinePlan | None = None,
) -> PipelineResult:
    """The rule's plan, priced like all others.

    Rules that have no idea of the time of their own get the best of their plans by our price, which
    flatters them. A start plan is of no use to a rule.
    """
    del start_plan
    clock = Clock(limits, should_stop)
    bench = Workbench(problem, costs)
    bound_s = WorkBound(bench.space).seconds(problem.global_batch)
    best = PipelineIncumbent(bench, clock, bound_s, on_progress)
    found, number = _best(bench, rule, clock.over)
    if found is not None:
        best.offer_plan(found, name)
    return finish(bench, best, limits, clock, bound_s, name, columns=number)


def best_by_rule(bench: Workbench, rule: Rule, over: Callable[[], bool]) -> PipelinePlan | None:
    """The rule's plan, None where it has none; it stops proposing when the time is over."""
    return _best(bench, rule, over)[0]


def _best(
    bench: Workbench, rule: Rule, over: Callable[[], bool]
) -> tuple[PipelinePlan | None, int]:
    """The first of the best legal proposals, and how many there were."""
    best: PipelinePlan | None = None
    least, number = math.inf, 0
    for proposal in rule(bench):
        if over():
            break
        number += 1
        # Most proposals are worse without any message than the best so far is with all of them.
        hoped = proposal.estimate_s
        if (proposal.compute_s(bench) if hoped is None else hoped) >= least:
            continue
        plan = _plan(bench, proposal.pipeline(bench.problem.global_batch))
        seconds = _price_s(bench, plan, proposal.estimate_s)
        if seconds < least and _legal(bench, plan):
            best, least = plan, seconds
    return best, number


def _plan(bench: Workbench, pipeline: Pipeline) -> PipelinePlan:
    problem = bench.problem
    return PipelinePlan(
        model=problem.model.name,
        global_batch=problem.global_batch,
        pipelines=(pipeline,),
        zero1=problem.options.zero1,
    )


def _price_s(bench: Workbench, plan: PipelinePlan, estimate_s: float | None) -> float:
    """The rule's own estimate or our price; infinite for what does not fit or trains too much."""
    if plan.excess and not bench.problem.options.allow_excess:
        return math.inf
    if not _fits(bench, plan.pipelines[0]):
        return math.inf
    return plan_price(bench.costs, plan).iteration_s if estimate_s is None else estimate_s


def _fits(bench: Workbench, pipeline: Pipeline) -> bool:
    """Whether the memory of every stage suffices."""
    shards = len(pipeline.stages[0].replicas) if bench.problem.options.zero1 else 1
    for i, stage in enumerate(pipeline.stages):
        in_flight, m = len(pipeline.stages) - i, pipeline.microbatch
        for kind in stage.kinds:
            ends = bench.costs.furthest_end(kind, m, in_flight, shards=shards)
            if ends[stage.first] < stage.end:
                return False
    return True


def _legal(bench: Workbench, plan: PipelinePlan) -> bool:
    if check_plan(bench.problem, plan):
        return False
    try:
        place(bench.problem, plan)
    except InfeasibleError:
        return False
    return True
