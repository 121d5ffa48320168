"""The gate before a plan is stored or shown: checker, price and simulator must agree."""

from __future__ import annotations

import math
from dataclasses import dataclass

from arachne_opt.errors import DisagreementError
from arachne_opt.pipeline.agreement import RELATIVE, Agreement, agreement
from arachne_opt.pipeline.check import check_plan
from arachne_opt.pipeline.closed_form import price_plan
from arachne_opt.pipeline.plan import PipelinePlan
from arachne_opt.pipeline.price import PlanPrice
from arachne_opt.pipeline.problem import PipelineProblem
from arachne_opt.pipeline.simulate import Simulation, simulate

_SHOWN = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """A plan that passed, priced and simulated under the assumptions of the closed form.

    Args:
        agreement: how far the two may differ.
    """

    price: PlanPrice
    simulation: Simulation
    agreement: Agreement

    @property
    def simulated_ratio(self) -> float:
        """Simulated over closed-form time of an iteration."""
        return self.simulation.iteration_s / self.price.iteration_s


def verify(
    problem: PipelineProblem,
    plan: PipelinePlan,
    objective_s: float,
    *,
    known: tuple[PipelinePlan, Verdict] | None = None,
) -> Verdict:
    """Price and simulation of a plan that is legal and costs what the solver says.

    Args:
        problem: the prices.
        plan: what is looked at.
        objective_s: what the solver says.
        known: another plan for the same problem with its verdict. A plan that differs in its nodes
            only has the same price and simulation.

    Raises:
        DisagreementError: the checker found violations, the price differs from ``objective_s``, or
            the simulation differs by more than it can.
    """
    where = f"plan for {problem.name}"
    violations = check_plan(problem, plan)
    if violations:
        more = f" and {len(violations) - _SHOWN} more" if len(violations) > _SHOWN else ""
        listed = "; ".join(map(str, violations[:_SHOWN]))
        raise DisagreementError(f"the plan is not legal: {listed}{more}", where=where)
    done = known[1] if known and _structure(known[0]) == _structure(plan) else None
    price = done.price if done else price_plan(problem, plan)
    if not math.isclose(price.iteration_s, objective_s, rel_tol=RELATIVE):
        what = f"the solver says {objective_s} s, the tables say {price.iteration_s} s"
        raise DisagreementError(what, where=where)
    if done is not None:
        return done
    simulation = simulate(problem, plan, published_ends=True)
    owed, played = agreement(problem, plan), simulation.iteration_s
    if not owed.allows(played):
        what = f"the closed form says {owed.closed_s} s, the simulation {played} s"
        may = f"it may lie between {owed.low_s} and {owed.high_s} s"
        raise DisagreementError(f"{what}; {may}", where=where)
    return Verdict(price=price, simulation=simulation, agreement=owed)


def _structure(plan: PipelinePlan) -> list[object]:
    """All of a plan but the nodes of its replicas."""
    pipelines = [
        (
            p.microbatch,
            [(s.first, s.end, s.recompute, [r.kind for r in s.replicas]) for s in p.stages],
        )
        for p in plan.pipelines
    ]
    return [plan.global_batch, plan.counts, plan.zero1, pipelines]
