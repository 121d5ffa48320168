"""The gate before a plan is stored or shown: checker and simulator must agree with the solver."""

from __future__ import annotations

from arachne_opt.cascade.check import check_plan
from arachne_opt.cascade.plan import CascadePlan
from arachne_opt.cascade.problem import CascadeProblem
from arachne_opt.cascade.simulate import Simulation, simulate
from arachne_opt.errors import DisagreementError

_SHOWN = 5


def verify(problem: CascadeProblem, plan: CascadePlan, objective_us: int) -> Simulation:
    """The simulation of a plan that is legal and whose makespan is the objective.

    Raises:
        DisagreementError: the checker found violations, or the simulated or planned makespan
            differs from ``objective_us``.
    """
    where = f"plan for {problem.name}"
    violations = check_plan(problem, plan)
    if violations:
        more = f" and {len(violations) - _SHOWN} more" if len(violations) > _SHOWN else ""
        listed = "; ".join(map(str, violations[:_SHOWN]))
        raise DisagreementError(f"the plan is not legal: {listed}{more}", where=where)
    simulation = simulate(problem, plan)
    figures_us = {objective_us, plan.makespan_us, simulation.makespan_us}
    if len(figures_us) > 1:
        what = f"the solver says {objective_us} us, the plan ends at {plan.makespan_us} us, "
        what += f"the simulation at {simulation.makespan_us} us"
        raise DisagreementError(what, where=where)
    return simulation
