"""The plans of peers' rules that answer in a moment, as starts of the search.

They train with one shape of pipeline on all devices: where that is the best, a search among stages
with unequal parts has long to look for it.
"""

from __future__ import annotations

from collections.abc import Callable

from arachne_opt.solvers.baselines.pipeline.metis_like import metis_like
from arachne_opt.solvers.baselines.pipeline.rule import best_by_rule
from arachne_opt.solvers.baselines.pipeline.uniform import uniform
from arachne_opt.solvers.pipeline.incumbent import PipelineIncumbent
from arachne_opt.solvers.pipeline.workbench import Workbench


def offer_rules(bench: Workbench, best: PipelineIncumbent, over: Callable[[], bool]) -> None:
    """Offers the plan of each quick rule."""
    for rule in (uniform, metis_like):
        plan = best_by_rule(bench, rule, over)
        if plan is not None:
            best.offer_plan(plan, "rule")
