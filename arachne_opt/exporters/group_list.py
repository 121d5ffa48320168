"""Cascade plans as a list of groups, ``arachne.sp-groups/1``, in the manner of VideoSys and FlexSP.

Those trainers start from groups of ranks and from what each group works through. Here a group is a
set of ranks in order; a step is a micro-batch's task on a group; every rank has its steps in order.
"""

from __future__ import annotations

import json
from typing import Any

from arachne_opt.cascade.plan import CascadePlan
from arachne_opt.cascade.problem import CascadeProblem
from arachne_opt.exporters.text import ExportedText

GROUP_FORMAT = "arachne.sp-groups/1"

_LOST = (
    "starts: a group begins its next step when all of its ranks are there",
    "hand-offs: latents go from the group of an encode step to that of its denoise step",
)


def export(plan: CascadePlan, problem: CascadeProblem, *, source: str = "") -> ExportedText:
    """Groups in the order in which they are first used, steps by their starts."""
    numbers: dict[tuple[int, ...], int] = {}
    steps: list[dict[str, Any]] = []
    for run in plan.to_json(problem)["runs"]:
        group = numbers.setdefault(tuple(run["gpus"]), len(numbers))
        cascade = problem.cascades[run["task"]]
        step = {"micro_batch": cascade.id, "stage": run["stage"], "group": group}
        if run.get("recompute"):
            step["recompute"] = True
        steps.append(step)
    ranks = range(problem.cluster.device_count)
    groups = list(numbers)
    value = {
        "format": GROUP_FORMAT,
        "instance": plan.problem_name,
        "source": source,
        "world_size": len(ranks),
        "groups": [{"sp": len(group), "ranks": list(group)} for group in groups],
        "steps": steps,
        "rank_steps": [
            [i for i, step in enumerate(steps) if rank in groups[step["group"]]] for rank in ranks
        ],
    }
    text = json.dumps(value, ensure_ascii=False) + "\n"
    return ExportedText(text=text, suffix=".json", lost=_LOST)
