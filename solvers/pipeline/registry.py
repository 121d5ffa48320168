"""Pipeline solvers by name."""

from __future__ import annotations

import difflib
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from arachne_opt.costs.pipeline.base import PipelineCosts
from arachne_opt.errors import InputError
from arachne_opt.pipeline.plan import PipelinePlan
from arachne_opt.pipeline.problem import PipelineProblem
from arachne_opt.solvers.base import Limits, StopCheck
from arachne_opt.solvers.baselines.pipeline.amp_like import amp_like
from arachne_opt.solvers.baselines.pipeline.flashflex_like import flashflex_like
from arachne_opt.solvers.baselines.pipeline.metis_like import metis_like
from arachne_opt.solvers.baselines.pipeline.rule import solve_by_rule
from arachne_opt.solvers.baselines.pipeline.sailor_like import sailor_like
from arachne_opt.solvers.baselines.pipeline.uniform import uniform
from arachne_opt.solvers.pipeline.base import PipelineCallback, PipelineResult, PipelineSolver
from arachne_opt.solvers.pipeline.master_cpsat import CpSatMaster
from arachne_opt.solvers.pipeline.master_milp import MilpMaster
from arachne_opt.solvers.pipeline.master_planner import solve_by_master
from arachne_opt.solvers.pipeline.planner import solve_pipeline
from arachne_opt.solvers.seeds.policy_file import TEMPLATES, PolicyFile
from arachne_opt.solvers.seeds.shipped import SHIPPED, Shipped, resolved

_SOLVERS: dict[str, Callable[..., PipelineResult]] = {
    "portfolio": solve_pipeline,
    "cpsat": partial(solve_by_master, CpSatMaster()),
    "highs": partial(solve_by_master, MilpMaster("highs")),
    "cbc": partial(solve_by_master, MilpMaster("cbc")),
}
_RULES = {
    "uniform": uniform,
    "sailor-like": sailor_like,
    "metis-like": metis_like,
    "amp-like": amp_like,
    "flashflex-like": flashflex_like,
}


@dataclass(frozen=True, slots=True)
class NamedPipelineSolver:
    """A solve function under a name."""

    name: str
    function: Callable[..., PipelineResult]

    def solve(
        self,
        problem: PipelineProblem,
        costs: PipelineCosts,
        limits: Limits,
        *,
        on_progress: PipelineCallback | None = None,
        should_stop: StopCheck | None = None,
        start_plan: PipelinePlan | None = None,
    ) -> PipelineResult:
        """Solves within the limits."""
        return self.function(
            problem,
            costs,
            limits,
            on_progress=on_progress,
            should_stop=should_stop,
            start_plan=start_plan,
        )


def pipeline_solver_names() -> tuple[str, ...]:
    """Names of all pipeline solvers, the default first."""
    return tuple(_SOLVERS)


def pipeline_rule_names() -> tuple[str, ...]:
    """Names of the peers' rules."""
    return tuple(_RULES)


def pipeline_solver(
    name: str = "portfolio", *, policy: PolicyFile | Shipped | None = SHIPPED
) -> PipelineSolver:
    """The pipeline solver or the peers' rule of a name.

    Args:
        name: of the solver.
        policy: says which templates the portfolio prices first; by default the one in the
            package, None for none.

    Raises:
        InputError: none has that name.
    """
    if name == "portfolio":
        function = partial(solve_pipeline, policy=resolved(policy, TEMPLATES))
        return NamedPipelineSolver(name, function)
    if name in _SOLVERS:
        return NamedPipelineSolver(name, _SOLVERS[name])
    if name in _RULES:
        return NamedPipelineSolver(name, partial(solve_by_rule, name, _RULES[name]))
    known = [*_SOLVERS, *_RULES]
    close = difflib.get_close_matches(name, known, n=1)
    hint = repr(close[0]) if close else "one of " + ", ".join(known)
    raise InputError(f"no pipeline solver is called {name!r}", hint=hint)
