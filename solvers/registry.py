"""Solvers by name."""

from __future__ import annotations

import difflib
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

from arachne_opt.cascade.plan import CascadePlan
from arachne_opt.cascade.problem import CascadeProblem
from arachne_opt.cascade.usable import usable_part
from arachne_opt.errors import InputError
from arachne_opt.solvers.base import (
    CascadeSolver,
    Limits,
    ProgressCallback,
    Result,
    Status,
    StopCheck,
)
from arachne_opt.solvers.baselines.deal import finish
from arachne_opt.solvers.baselines.dynamic_cp import dynamic_cp
from arachne_opt.solvers.baselines.flex_sp import flex_sp
from arachne_opt.solvers.baselines.flex_sp_milp import flex_sp_milp
from arachne_opt.solvers.baselines.knapformer import knapformer
from arachne_opt.solvers.baselines.uniform import (
    best_uniform,
    bucketed_data_parallel,
    megatron_uniform,
)
from arachne_opt.solvers.cascade.digest import Digest, binding_limits
from arachne_opt.solvers.cascade.room import Room
from arachne_opt.solvers.clock import Clock
from arachne_opt.solvers.portfolio import (
    infeasible,
    solve_by_list,
    solve_cascade,
    solve_exactly,
)
from arachne_opt.solvers.search import Parts
from arachne_opt.solvers.seeds.policy_file import CASCADES, PolicyFile
from arachne_opt.solvers.seeds.shipped import SHIPPED, Shipped, resolved
from arachne_opt.solvers.whole import to_whole

if TYPE_CHECKING:
    from arachne_opt.solvers.pipeline.base import PipelineSolver

PORTFOLIO = "portfolio"
DEFAULT_PIPELINE_SOLVER = PORTFOLIO


@dataclass(frozen=True, slots=True)
class NamedSolver:
    """A solve function under a name."""

    name: str
    function: Callable[..., Result]

    def solve(
        self,
        problem: CascadeProblem,
        limits: Limits,
        *,
        on_progress: ProgressCallback | None = None,
        should_stop: StopCheck | None = None,
        start_plan: CascadePlan | None = None,
    ) -> Result:
        """Solves within the limits."""
        return self.function(
            problem,
            limits,
            on_progress=on_progress,
            should_stop=should_stop,
            start_plan=start_plan,
        )


def _by_rule(
    name: str, rule: Callable[[CascadeProblem, Limits], Result]
) -> dict[str, Callable[..., Result]]:
    """A peer's rule as a solver: it answers at once, so that progress and stop do not matter."""

    def solve(problem: CascadeProblem, limits: Limits, **_: object) -> Result:
        if binding := binding_limits(problem):
            return infeasible(limits, Clock(limits), name, binding)
        part = usable_part(problem)
        if part.problem.pinned:
            # No rule of a peer knows pins, nor memory over time.
            return finish(Digest(part.problem), None, limits, name, time.perf_counter())
        result = rule(part.problem, limits)
        resident = part.problem.resident_bytes
        if resident and result.plan and Room(part.problem).parked_where_short(result.plan):
            result = replace(result, status=Status.NO_PLAN, plan=None, objective_us=None)
        return to_whole(part, result)

    return {name: solve}


SEARCHES = (PORTFOLIO, "list", "cpsat")  # the others are peers' rules, which may not apply

_SOLVERS: dict[str, Callable[..., Result]] = {
    PORTFOLIO: solve_cascade,
    "list": solve_by_list,
    "cpsat": solve_exactly,
    **_by_rule("megatron-uniform", megatron_uniform),
    **_by_rule("bucketed-dp", bucketed_data_parallel),
    **_by_rule("best-uniform", best_uniform),
    **_by_rule("flex-sp", flex_sp),
    **_by_rule("flex-sp-milp", flex_sp_milp),
    **_by_rule("knapformer", knapformer),
    **_by_rule("dynamic-cp", dynamic_cp),
}


def cascade_solver_names() -> tuple[str, ...]:
    """Names of all cascade solvers, the default first."""
    return tuple(_SOLVERS)


def cascade_solver(
    name: str = PORTFOLIO, *, policy: PolicyFile | Shipped | None = SHIPPED
) -> CascadeSolver:
    """The cascade solver of a name.

    Args:
        name: of the solver.
        policy: begins the search of the portfolio; by default the one in the package, None for
            none.

    Raises:
        InputError: no solver has that name.
    """
    if name not in _SOLVERS:
        close = difflib.get_close_matches(name, _SOLVERS, n=1)
        hint = repr(close[0]) if close else "one of " + ", ".join(_SOLVERS)
        raise InputError(f"no cascade solver is called {name!r}", hint=hint)
    if name == PORTFOLIO:
        parts = Parts(policy=resolved(policy, CASCADES))
        return NamedSolver(name, partial(solve_cascade, parts=parts))
    return NamedSolver(name, _SOLVERS[name])


def pipeline_solver(
    name: str = DEFAULT_PIPELINE_SOLVER, *, policy: PolicyFile | Shipped | None = SHIPPED
) -> PipelineSolver:
    """The pipeline solver or peers' rule of a name, loaded only when asked for.

    Args:
        name: of the solver.
        policy: begins the search of the portfolio; by default the one in the package, None for
            none.

    Raises:
        InputError: none has that name.
    """
    from arachne_opt.solvers.pipeline.registry import pipeline_solver as find

    return find(name, policy=policy)
