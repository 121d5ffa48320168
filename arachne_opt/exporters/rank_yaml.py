"""Cascade plans rank by rank in YAML, ``arachne.rank-plan/1``: what each rank runs, in order.

Any two ranks list the tasks that they share in the same order. ``importers.rank_yaml`` reads the
file back to the same plan.
"""

from __future__ import annotations

import json
from typing import Any

from arachne_opt.cascade.plan import CascadePlan
from arachne_opt.cascade.problem import CascadeProblem
from arachne_opt.exporters.text import ExportedText

RANK_FORMAT = "arachne.rank-plan/1"


def export(plan: CascadePlan, problem: CascadeProblem, *, source: str = "") -> ExportedText:
    """The tasks of every rank by their starts, with the group that runs each.

    Args:
        plan: in the numbering of the problem.
        problem: what it is for.
        source: id of the stored plan, whose problem a reader needs.
    """
    value = plan.to_json(problem)
    runs = [{"order": order, **run} for order, run in enumerate(value["runs"])]
    lines = [
        f"# what each of {problem.cluster.device_count} ranks runs, in order",
        f"format: {RANK_FORMAT}",
        f"plan: {json.dumps(source)}",
        f"plan_format: {value['format']}",
        f"instance: {json.dumps(value['instance'], ensure_ascii=False)}",
        f"problem: {problem.fingerprint()}",
        f"makespan_s: {plan.makespan_us / 1e6!r}",
        "ranks:",
    ]
    for device in problem.cluster.devices:
        node = json.dumps(problem.cluster.nodes[device.node].name, ensure_ascii=False)
        kind = json.dumps(device.device_type.name)
        lines.append(f"  - rank: {device.index}")
        lines.append(f"    node: {node}")
        lines.append(f"    device: {kind}")
        mine = [run for run in runs if device.index in run["gpus"]]
        lines.append("    tasks:" if mine else "    tasks: []")
        lines += [f"      - {_flow(run)}" for run in mine]
    return ExportedText(text="\n".join(lines) + "\n", suffix=".yaml")


def _flow(run: dict[str, Any]) -> str:
    """A run on one line: JSON values are YAML values."""
    inside = ", ".join(f"{key}: {json.dumps(value)}" for key, value in run.items())
    return f"{{{inside}}}"
