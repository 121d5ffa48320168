"""The gate before a plan is stored or shown: checker, price and simulator must agree."""

from __future__ import annotations

import math
from dataclasses import dataclass

from arachne_opt.errors import DisagreementError
from arachne_opt.pipeline.check import check_plan
from arachne_opt.pipeline.closed_form import price_plan
from arachne_opt.pipeline.plan import PipelinePlan
from arachne_opt.pipeline.price import PlanPrice
from arachne_opt.pipeline.problem import PipelineProblem
from arachne_opt.pipeline.simulate import Simulation, simulate

# Sums of thousands of floats in another order differ by less.
_RELATIVE = 1e-9
_SHOWN = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """A plan that passed, priced and simulated under the assumptions of the closed form."""

    price: PlanPrice
    simulation: Simulation

    @property
    def simulated_ratio(self) -> float:
        """Simulated over closed-form time of an iteration."""
        return self.simulation.iteration_s / self.price.iteration_s


def verify(problem: PipelineProblem, plan: PipelinePlan, objective_s: float) -> Verdict:
    """Price and simulation of a plan that is legal and costs what the solver says.

    Raises:
        DisagreementError: the checker found violations, the price differs from ``objective_s``, or
            the simulation differs where it must agree.
    """
    where = f"plan for {problem.name}"
    violations = check_plan(problem, plan)
    if violations:
        more = f" and {len(violations) - _SHOWN} more" if len(violations) > _SHOWN else ""
        listed = "; ".join(map(str, violations[:_SHOWN]))
        raise DisagreementError(f"the plan is not legal: {listed}{more}", where=where)
    price = price_plan(problem, plan)
    if not math.isclose(price.iteration_s, objective_s, rel_tol=_RELATIVE):
        what = f"the solver says {objective_s} s, the tables say {price.iteration_s} s"
        raise DisagreementError(what, where=where)
    simulation = simulate(problem, plan, published_ends=True)
    told, played = price.iteration_s, simulation.iteration_s
    if must_agree(plan) and not math.isclose(told, played, rel_tol=_RELATIVE):
        what = f"the closed form says {told} s, the simulation {played} s"
        raise DisagreementError(what, where=where)
    return Verdict(price=price, simulation=simulation)


def must_agree(plan: PipelinePlan) -> bool:
    """Whether closed form and simulation must be equal: one stage a pipeline, of one type in all.

    With more stages the closed form takes all but one round for rounds of the bottleneck; across
    pipelines it looks at the types of the longest one only.
    """
    kinds = {k for _, _, stage in plan.stages() for k in stage.kinds}
    alone = all(len(p.stages) == 1 for p in plan.pipelines)
    return alone and (len(plan.pipelines) == 1 or len({k.device_type for k in kinds}) == 1)
