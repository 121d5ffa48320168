"""The pipeline planner: plans of one pipeline, then of several, all on one clock."""

from __future__ import annotations

import math
from collections.abc import Sequence

from arachne_opt.costs.pipeline.base import PipelineCosts
from arachne_opt.pipeline.plan import PipelinePlan
from arachne_opt.pipeline.problem import PipelineProblem
from arachne_opt.solvers.base import Limits, StopCheck
from arachne_opt.solvers.clock import Clock
from arachne_opt.solvers.pipeline.base import PipelineCallback, PipelineResult
from arachne_opt.solvers.pipeline.bounds import WorkBound
from arachne_opt.solvers.pipeline.columns import Column
from arachne_opt.solvers.pipeline.combine import Combiner, polish
from arachne_opt.solvers.pipeline.feasibility import binding_limits
from arachne_opt.solvers.pipeline.incumbent import PipelineIncumbent
from arachne_opt.solvers.pipeline.outcome import finish, infeasible
from arachne_opt.solvers.pipeline.pool import column_pool
from arachne_opt.solvers.pipeline.restrictions import FREE, Restrictions, Spread
from arachne_opt.solvers.pipeline.rule_starts import offer_rules
from arachne_opt.solvers.pipeline.singles import singles
from arachne_opt.solvers.pipeline.start import usable
from arachne_opt.solvers.pipeline.workbench import Workbench
from arachne_opt.solvers.seeds.policy_file import PolicyFile
from arachne_opt.solvers.seeds.template_seeds import offer_seeds

_NAME = "portfolio"
# Work of a phase in the units of a deterministic limit, which stand for seconds.
_PHASE_UNITS = 0.5
# The part of the time left in which experts are spread over whole nodes only.
_SPREAD_PART = 0.3
# The part of the time that estimates may take before the first exact divisions.
_RANKING_PART = 0.4


def solve_pipeline(
    problem: PipelineProblem,
    costs: PipelineCosts,
    limits: Limits,
    *,
    on_progress: PipelineCallback | None = None,
    should_stop: StopCheck | None = None,
    start_plan: PipelinePlan | None = None,
    restrictions: Restrictions = FREE,
    policy: PolicyFile | None = None,
) -> PipelineResult:
    """The best plan found within the limits and restrictions, with the work bound.

    With a policy the columns of the templates that it takes for the best are priced first, then
    the plans of the peers' quick rules. The search goes on as without either, so that more time
    never ends in a worse plan.
    """
    clock = Clock(limits, should_stop)
    bench = Workbench(problem, costs, restrictions)
    binding = binding_limits(bench)
    if binding:
        return infeasible(problem, limits, clock, _NAME, binding)
    bound = WorkBound(bench.space)
    bound_s = bound.seconds(problem.global_batch)
    best = PipelineIncumbent(bench, clock, bound_s, on_progress)
    if start_plan is not None:
        plan = usable(bench, start_plan)
        if plan is not None:
            best.offer_plan(plan, "start plan")
    own = best
    if policy is not None:
        own = best.apart()
        offer_seeds(bench, bound, best, policy, clock.over)
    if restrictions == FREE:
        offer_rules(bench, best, clock.over)
        if problem.model.experts is not None:
            _offer_node_spread(bench, best, limits, clock)
    columns: list[Column] = []
    if policy is None or best.seconds > bound_s * (1 + limits.gap):
        columns = search(bench, bound, own, limits, clock)
    return finish(bench, best, limits, clock, bound_s, _NAME, columns=len(columns))


def _offer_node_spread(
    bench: Workbench, best: PipelineIncumbent, limits: Limits, clock: Clock
) -> None:
    """Offers what is found where experts are spread over whole nodes: all kinds take long."""
    own = Workbench(bench.problem, bench.costs, Restrictions(spread=Spread.NODE))
    bound = WorkBound(own.space)
    found = PipelineIncumbent(own, clock, bound.seconds(bench.problem.global_batch), None)
    part = clock.elapsed() + _SPREAD_PART * clock.left()
    search(own, bound, found, limits, clock, part / limits.time_limit_s)
    if found.kept is not None:
        best.offer_plan(found.kept.plan, "experts over nodes")


def search(
    bench: Workbench,
    bound: WorkBound,
    best: PipelineIncumbent,
    limits: Limits,
    clock: Clock,
    part: float = 1.0,
) -> list[Column]:
    """Runs all phases in a part of the time limit; the columns that were considered."""
    enough_s = bound.seconds(bench.problem.global_batch) * (1 + limits.gap)

    def over(part: float = part) -> bool:
        return clock.over() or clock.elapsed() > part * limits.time_limit_s

    def done() -> bool:
        return over() or best.seconds <= enough_s

    found = []
    for column in singles(bench, done, lambda: over(_RANKING_PART * part)):
        found.append(column)
        candidate = bench.candidate((column,), "one pipeline")
        if candidate is not None:
            best.offer(candidate)
    clock.spend(_PHASE_UNITS)
    most = bench.problem.options.max_pipelines
    if done() or most == 1:
        return found
    hoped_s = best.seconds if math.isfinite(best.seconds) else alone_s(bench, found)
    if not math.isfinite(hoped_s):  # no division was found: nothing says what to look for
        return found
    pool = list({c.key: c for c in (*column_pool(bench, bound, hoped_s, done), *found)}.values())
    Combiner(bench, bound, pool, lambda: min(best.seconds, hoped_s), best.offer, done).run()
    clock.spend(_PHASE_UNITS)
    polish(bench, best, done)
    return pool


def alone_s(bench: Workbench, columns: Sequence[Column]) -> float:
    """Time to hope for where no single pipeline is a plan, say for want of a batch that divides."""
    rounds = [(c, -(-bench.problem.global_batch // c.batch)) for c in columns]
    times = [c.seconds(n) + bench.exchange.seconds((c,)) for c, n in rounds]
    return min(times, default=math.inf)
