"""The planner with a master in the place of its own combination of columns."""

from __future__ import annotations

import math

from arachne_opt.costs.pipeline.base import PipelineCosts
from arachne_opt.pipeline.plan import PipelinePlan
from arachne_opt.pipeline.problem import PipelineProblem
from arachne_opt.solvers.base import Limits, StopCheck
from arachne_opt.solvers.clock import Clock
from arachne_opt.solvers.pipeline.base import PipelineCallback, PipelineResult
from arachne_opt.solvers.pipeline.bounds import WorkBound
from arachne_opt.solvers.pipeline.feasibility import binding_limits
from arachne_opt.solvers.pipeline.incumbent import PipelineIncumbent
from arachne_opt.solvers.pipeline.master import Master, MasterBackend
from arachne_opt.solvers.pipeline.outcome import finish, infeasible
from arachne_opt.solvers.pipeline.planner import search
from arachne_opt.solvers.pipeline.start import usable
from arachne_opt.solvers.pipeline.workbench import Candidate, Workbench

# The part of the time limit that the search for columns and first plans may take.
_SEARCH_PART = 0.5
_NEVER_S = 1e12  # more than any plan takes


def solve_by_master(
    backend: MasterBackend,
    problem: PipelineProblem,
    costs: PipelineCosts,
    limits: Limits,
    *,
    on_progress: PipelineCallback | None = None,
    should_stop: StopCheck | None = None,
    start_plan: PipelinePlan | None = None,
) -> PipelineResult:
    """The planner's plan, then the best one out of its pool of columns, proven if time suffices.

    The chain looks for any better plan, trusted or not, so that its proof holds for all of them.
    """
    clock = Clock(limits, should_stop)
    bench = Workbench(problem, costs)
    binding = binding_limits(bench)
    if binding:
        return infeasible(problem, limits, clock, backend.name, binding)
    bound = WorkBound(bench.space)
    bound_s = bound.seconds(problem.global_batch)
    best = PipelineIncumbent(bench, clock, bound_s, on_progress)
    if start_plan is not None:
        plan = usable(bench, start_plan)
        if plan is not None:
            best.offer_plan(plan, "start plan")
    columns = search(bench, bound, best, limits, clock, _SEARCH_PART)
    lowest = _Lowest(best)
    master = Master(bench, columns, backend, lambda: lowest.seconds, lowest.offer, limits.seed)
    lowest.seconds = best.seconds if math.isfinite(best.seconds) else _NEVER_S
    proven = bool(columns) and not clock.over() and master.run(clock.left)
    column_bound_s = lowest.seconds if proven and lowest.seconds < _NEVER_S else None
    return finish(
        bench,
        best,
        limits,
        clock,
        bound_s,
        backend.name,
        columns=len(columns),
        column_bound_s=column_bound_s,
    )


class _Lowest:
    """The lowest cautious price so far, whether trusted or not; offers what is found."""

    def __init__(self, best: PipelineIncumbent) -> None:
        self._best = best
        self.seconds = math.inf

    def offer(self, candidate: Candidate) -> bool:
        """Takes a candidate if its cautious price is lower; says whether it was."""
        if candidate.total_s >= self.seconds:
            return False
        self.seconds = candidate.total_s
        self._best.offer(candidate)
        return True
