"""Pipeline problems in JSON, as they are stored beside their plans: nothing is lost."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

from arachne_opt.cluster_file import cluster_from_dict, cluster_to_dict
from arachne_opt.errors import InputError
from arachne_opt.pipeline.memory import MemoryRule
from arachne_opt.pipeline.problem import PROBLEM_FORMAT, PipelineOptions, PipelineProblem
from arachne_opt.pipeline.rows import Experts, RowModel, RowSizes
from arachne_opt.pipeline.tables import Curve, NodeLink, Port, PriceTables, Route, StepTimes


def problem_to_json(problem: PipelineProblem) -> dict[str, Any]:
    """JSON values that ``problem_from_json`` reads back to an equal problem."""
    model, tables = problem.model, problem.tables
    return {
        "format": PROBLEM_FORMAT,
        "name": problem.name,
        "cluster": cluster_to_dict(problem.cluster),
        "model": _values(model)
        | {
            "sizes": [_values(s) for s in model.sizes],
            "experts": None if model.experts is None else _values(model.experts),
        },
        "global_batch": problem.global_batch,
        "tables": {
            "steps": [_values(s) for s in tables.steps],
            "routes": [
                [list(r.source), list(r.target), r.curve.canonical()] for r in tables.routes
            ],
            "node_links": [
                [n.device_type, n.width, n.curve.canonical()] for n in tables.node_links
            ],
        },
        "memory": _values(problem.memory),
        "options": _values(problem.options),
        "cost_version": problem.cost_version,
        "notes": list(problem.notes),
    }


def problem_from_json(value: object) -> PipelineProblem:
    """Reads a problem back.

    Raises:
        InputError: another format, or a missing or malformed value.
    """
    if not isinstance(value, dict) or value.get("format") != PROBLEM_FORMAT:
        raise InputError(f"not a problem of format {PROBLEM_FORMAT!r}")
    where = f"problem {value.get('name')!r}"
    try:
        return PipelineProblem(
            name=str(value["name"]),
            cluster=cluster_from_dict(value["cluster"], f"{where}: cluster"),
            model=_model(value["model"]),
            global_batch=int(value["global_batch"]),
            tables=_tables(value["tables"]),
            memory=MemoryRule(**value["memory"]),
            options=PipelineOptions(**_tuples(value["options"])),
            cost_version=str(value["cost_version"]),
            notes=tuple(value["notes"]),
        )
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        what = f"malformed problem: {type(error).__name__} {error}"
        raise InputError(what, where=where) from error


def _values(record: Any) -> dict[str, Any]:  # noqa: ANN401 - any of the frozen records above
    """Fields of a record, tuples as lists."""
    found = {f.name: getattr(record, f.name) for f in fields(record)}
    return {k: list(v) if isinstance(v, tuple) else v for k, v in found.items()}


def _tuples(value: dict[str, Any]) -> dict[str, Any]:
    return {k: tuple(v) if isinstance(v, list) else v for k, v in value.items()}


def _model(value: dict[str, Any]) -> RowModel:
    plain = _tuples({k: v for k, v in value.items() if k not in ("sizes", "experts")})
    experts = value["experts"]
    return RowModel(
        **plain,
        sizes=tuple(RowSizes(**_tuples(s)) for s in value["sizes"]),
        experts=None if experts is None else Experts(**_tuples(experts)),
    )


def _tables(value: dict[str, Any]) -> PriceTables:
    return PriceTables(
        steps=tuple(StepTimes(**_tuples(s)) for s in value["steps"]),
        routes=tuple(
            Route(source=Port(*a), target=Port(*b), curve=_curve(c)) for a, b, c in value["routes"]
        ),
        node_links=tuple(
            NodeLink(device_type=kind, width=width, curve=_curve(c))
            for kind, width, c in value["node_links"]
        ),
    )


def _curve(numbers: list[float]) -> Curve:
    square, slope, constant, latency_s = numbers
    return Curve(square=square, slope=slope, constant=constant, latency_s=latency_s)
