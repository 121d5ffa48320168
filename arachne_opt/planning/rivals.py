"""What cheap rules of peers make of a problem, for reports: seconds of work, not minutes."""

from __future__ import annotations

import time

from arachne_opt.cascade.problem import CascadeProblem
from arachne_opt.cascade.verify import verify
from arachne_opt.errors import InfeasibleError
from arachne_opt.pipeline.problem import PipelineProblem
from arachne_opt.pipeline.verify import verify as verify_pipeline
from arachne_opt.report.subject import Rival
from arachne_opt.solvers.base import Limits
from arachne_opt.units import us_from_seconds

# By name, the cheap ones first; a rule is not begun once the time is over.
CASCADE_RULES = {
    "bucketed-dp": "bucketed data parallelism",
    "best-uniform": "best single degree",
    "megatron-uniform": "uniform SP (Megatron-LM)",
    "flex-sp": "FlexSP, greedy",
    "knapformer": "KnapFormer",
    "dynamic-cp": "dynamic context parallelism",
}
PIPELINE_RULES = {
    "uniform": "uniform Megatron-LM grid",
    "amp-like": "AMP-like",
    "flashflex-like": "FlashFlex-like",
    "metis-like": "Metis-like",
    "sailor-like": "Sailor-like",
}
USUAL_BUDGET_S = 20.0

_NO_PLAN = "the rule finds no plan here"
_NO_TIME = "not asked: the time for comparisons was over"


def cascade_rivals(
    problem: CascadeProblem, *, budget_s: float = USUAL_BUDGET_S, seed: int = 0
) -> tuple[Rival, ...]:
    """The rules' checked makespans; rules that had no time are named without one.

    Raises:
        DisagreementError: a plan is not what its rule says.
    """
    from arachne_opt.solvers.registry import cascade_solver

    end_s = time.monotonic() + budget_s
    found = []
    for name, title in CASCADE_RULES.items():
        left_s = end_s - time.monotonic()
        if left_s <= 0:
            found.append(Rival(name=name, title=title, time_us=None, note=_NO_TIME))
            continue
        limits = Limits(time_limit_s=left_s, seed=seed, workers=1)
        result = cascade_solver(name).solve(problem, limits)
        if result.plan is not None and result.objective_us is not None:
            verify(problem, result.plan, result.objective_us)
        note = "" if result.objective_us is not None else _NO_PLAN
        found.append(Rival(name=name, title=title, time_us=result.objective_us, note=note))
    return tuple(found)


def pipeline_rivals(
    problem: PipelineProblem, *, budget_s: float = USUAL_BUDGET_S, seed: int = 0
) -> tuple[Rival, ...]:
    """The same for pipelines: iteration times by our prices.

    Raises:
        DisagreementError: a plan is not what its rule says.
    """
    from arachne_opt.costs.pipeline.tables import TableCosts
    from arachne_opt.solvers.registry import pipeline_solver

    end_s = time.monotonic() + budget_s
    costs = TableCosts(problem)
    found = []
    for name, title in PIPELINE_RULES.items():
        left_s = end_s - time.monotonic()
        if left_s <= 0:
            found.append(Rival(name=name, title=title, time_us=None, note=_NO_TIME))
            continue
        limits = Limits(time_limit_s=left_s, seed=seed, workers=1)
        try:
            result = pipeline_solver(name).solve(problem, costs, limits)
        except InfeasibleError as error:
            found.append(Rival(name=name, title=title, time_us=None, note=error.what))
            continue
        time_us = None
        if result.plan is not None and result.iteration_s is not None:
            verify_pipeline(problem, result.plan, result.iteration_s)
            time_us = us_from_seconds(result.iteration_s)
        note = "" if time_us is not None else _NO_PLAN
        found.append(Rival(name=name, title=title, time_us=time_us, note=note))
    return tuple(found)
