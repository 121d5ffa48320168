"""Solvers by name."""

from __future__ import annotations

import difflib
from collections.abc import Callable
from dataclasses import dataclass

from arachne_opt.cascade.plan import CascadePlan
from arachne_opt.cascade.problem import CascadeProblem
from arachne_opt.errors import InputError
from arachne_opt.solvers.base import CascadeSolver, Limits, ProgressCallback, Result, StopCheck
from arachne_opt.solvers.portfolio import solve_cascade


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


_SOLVERS: dict[str, Callable[..., Result]] = {"portfolio": solve_cascade}


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
