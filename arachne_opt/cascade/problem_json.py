"""Problems in JSON, as they are stored beside their plans: names and numbering kept."""

from __future__ import annotations

from typing import Any

from arachne_opt.cascade.problem import PROBLEM_FORMAT, Cascade, CascadeProblem, Option, Task
from arachne_opt.cluster_file import cluster_from_dict, cluster_to_dict
from arachne_opt.fields import Fields

_TOP = (
    "format",
    "name",
    "cost_version",
    "tail_us",
    "forbidden_devices",
    "resident_bytes",
    "cluster",
    "cascades",
    "clips",  # of which the cascades are the chosen ones: see batching_key
)
_TASK = ("name", "predecessors", "input_bytes", "allowed_devices", "options")
_OPTION = ("degree", "duration_us", "memory_bytes", "device_type", "recompute")


def problem_to_json(problem: CascadeProblem) -> dict[str, Any]:
    """JSON values that ``problem_from_json`` reads back to an equal problem."""
    return {
        "format": PROBLEM_FORMAT,
        "name": problem.name,
        "cost_version": problem.cost_version,
        **({"tail_us": problem.tail_us} if problem.tail_us else {}),
        **_devices("forbidden_devices", problem.forbidden_devices or None),
        **({"resident_bytes": dict(problem.resident_bytes)} if problem.resident_bytes else {}),
        "cluster": cluster_to_dict(problem.cluster),
        "cascades": [
            {"id": c.id, "label": c.label, "tasks": [_task_to_json(task) for task in c.tasks]}
            for c in problem.cascades
        ],
    }


def problem_from_json(value: object) -> CascadeProblem:
    """Reads a problem back.

    Raises:
        InputError: another format, an unknown or missing key, or a value of the wrong type.
    """
    top = Fields(value, "problem", _TOP)
    top.require_format(PROBLEM_FORMAT)
    name = top.text("name")
    where = f"problem {name!r}"
    cascades = [
        _cascade(Fields(raw, f"{where}: cascade {index}", ("id", "label", "tasks")))
        for index, raw in enumerate(top.items("cascades"))
    ]
    return CascadeProblem(
        name=name,
        cluster=cluster_from_dict(top.raw("cluster"), f"{where}: cluster"),
        cascades=tuple(cascades),
        cost_version=top.text("cost_version", ""),
        tail_us=top.integer("tail_us", 0),
        forbidden_devices=top.integers("forbidden_devices"),
        resident_bytes=_resident(top, where),
    )


def _task_to_json(task: Task) -> dict[str, Any]:
    options = [
        {
            "degree": option.degree,
            "duration_us": option.duration_us,
            "memory_bytes": option.memory_bytes,
            **({"device_type": option.device_type} if option.device_type is not None else {}),
            **({"recompute": True} if option.recompute else {}),
        }
        for option in task.options
    ]
    return {
        "name": task.name,
        "predecessors": list(task.predecessors),
        "input_bytes": task.input_bytes,
        **_devices("allowed_devices", task.allowed_devices),
        "options": options,
    }


def _resident(top: Fields, where: str) -> tuple[tuple[str, int], ...]:
    if "resident_bytes" not in top:
        return ()
    value = top.raw("resident_bytes")
    names = list(value) if isinstance(value, dict) else ()
    sizes = Fields(value, f"{where}: resident_bytes", names)
    return tuple((name, sizes.integer(name)) for name in names)


def _devices(key: str, devices: tuple[int, ...] | None) -> dict[str, list[int]]:
    return {} if devices is None else {key: list(devices)}


def _cascade(fields: Fields) -> Cascade:
    tasks = [
        _task(Fields(raw, f"{fields.where}: task {index}", _TASK))
        for index, raw in enumerate(fields.items("tasks"))
    ]
    return Cascade(id=fields.text("id"), label=fields.text("label", ""), tasks=tuple(tasks))


def _task(fields: Fields) -> Task:
    options = [
        _option(Fields(raw, f"{fields.where}: option {index}", _OPTION))
        for index, raw in enumerate(fields.items("options"))
    ]
    return Task(
        name=fields.text("name"),
        options=tuple(options),
        predecessors=fields.integers("predecessors"),
        input_bytes=fields.integer("input_bytes", 0),
        allowed_devices=fields.integers("allowed_devices") if "allowed_devices" in fields else None,
    )


def _option(fields: Fields) -> Option:
    return Option(
        degree=fields.integer("degree", minimum=1),
        duration_us=fields.integer("duration_us", minimum=1),
        memory_bytes=fields.integer("memory_bytes", 0),
        device_type=fields.text("device_type") if "device_type" in fields else None,
        recompute=fields.flag("recompute"),
    )
