"""Solvers by name."""

from __future__ import annotations

import difflib
from collections.abc import Callable
from dataclasses import dataclass

from arachne_opt.cascade.plan import CascadePlan
from arachne_opt.cascade.problem import CascadeProblem
from arachne_opt.errors import InputError
from arachne_opt.solvers.base import CascadeSolver, Limits, ProgressCallback, Result, StopCheck
from arachne_opt.solvers.baselines.dynamic_cp import dynamic_cp
from arachne_opt.solvers.baselines.flex_sp import flex_sp
from arachne_opt.solvers.baselines.flex_sp_milp import flex_sp_milp
from arachne_opt.solvers.baselines.knapformer import knapformer
from arachne_opt.solvers.baselines.uniform import (
    best_uniform,
    bucketed_data_parallel,
    megatron_uniform,
)
from arachne_opt.solvers.portfolio import solve_by_list, solve_cascade, solve_exactly


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


def _by_rule(rule: Callable[[CascadeProblem, Limits], Result]) -> Callable[..., Result]:
    """A peer's rule as a solver: it answers at once, so that progress and stop do not matter."""

    def solve(problem: CascadeProblem, limits: Limits, **_: object) -> Result:
        return rule(problem, limits)

    return solve


_SOLVERS: dict[str, Callable[..., Result]] = {
    "portfolio": solve_cascade,
    "list": solve_by_list,
    "cpsat": solve_exactly,
    "megatron-uniform": _by_rule(megatron_uniform),
    "bucketed-dp": _by_rule(bucketed_data_parallel),
    "best-uniform": _by_rule(best_uniform),
    "flex-sp": _by_rule(flex_sp),
    "flex-sp-milp": _by_rule(flex_sp_milp),
    "knapformer": _by_rule(knapformer),
    "dynamic-cp": _by_rule(dynamic_cp),
}


def cascade_solver_names() -> tuple[str, ...]:
    """Names of all cascade solvers, the default first."""
    return tuple(_SOLVERS)


def cascade_solver(name: str = "portfolio") -> CascadeSolver:
    """The cascade solver of a name.

    Raises:
        InputError: no solver has that name.
    """
    if name not in _SOLVERS:
        close = difflib.get_close_matches(name, _SOLVERS, n=1)
        hint = repr(close[0]) if close else "one of " + ", ".join(_SOLVERS)
        raise InputError(f"no cascade solver is called {name!r}", hint=hint)
    return NamedSolver(name, _SOLVERS[name])
