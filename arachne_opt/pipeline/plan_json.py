"""The JSON form of pipeline plans, ``arachne.pipeline-plan/1``.

Keys beyond the public form (``ep``, ``ep_local``, ``zone``, ``recompute``, ``zero1``) are written
only where they differ from their defaults, so that a plain plan is read by any reader of the form.
"""

from __future__ import annotations

from itertools import groupby
from typing import Any

from arachne_opt.errors import InputError
from arachne_opt.pipeline.plan import Pipeline, PipelinePlan, Replica, ReplicaKind, Stage

PLAN_FORMAT = "arachne.pipeline-plan/1"


def plan_to_json(plan: PipelinePlan) -> dict[str, Any]:
    """The exported form; runs of equal replicas are written once with their count."""
    value: dict[str, Any] = {
        "format": PLAN_FORMAT,
        "model": plan.model,
        "global_batch": plan.global_batch,
    }
    if plan.zero1:
        value["zero1"] = True
    value["pipelines"] = [
        {
            "microbatch": p.microbatch,
            "microbatches": n,
            "stages": [_stage_to_json(s) for s in p.stages],
        }
        for p, n in zip(plan.pipelines, plan.counts, strict=True)
    ]
    return value


def plan_from_json(
    value: object, *, model: str | None = None, global_batch: int | None = None
) -> PipelinePlan:
    """Reads the exported form.

    Args:
        value: one plan.
        model: name of the model where the plan leaves it out.
        global_batch: samples per iteration where the plan leaves them out.

    Raises:
        InputError: another format, a missing key, or a value of the wrong type.
    """
    if not isinstance(value, dict) or value.get("format") != PLAN_FORMAT:
        raise InputError(f"not a plan of format {PLAN_FORMAT!r}")
    name = value.get("model", model)
    where = f"plan for {name!r}"
    if not isinstance(name, str):
        raise InputError("the plan names no model", where=where)
    try:
        pipelines = tuple(_pipeline(raw) for raw in value["pipelines"])
        batch = _whole(value.get("global_batch", global_batch), 1, "global_batch")
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        what = f"malformed plan: {type(error).__name__} {error}"
        raise InputError(what, where=where) from error
    zero1 = _flag(value.get("zero1", False), "zero1")
    return PipelinePlan(model=name, global_batch=batch, pipelines=pipelines, zero1=zero1)


def _stage_to_json(stage: Stage) -> dict[str, Any]:
    replicas = []
    for replica, run in groupby(stage.replicas):
        entry = _replica_to_json(replica)
        count = len(list(run))
        replicas.append(entry | {"count": count} if count > 1 else entry)
    value: dict[str, Any] = {"layers": [stage.first, stage.end], "replicas": replicas}
    return value | {"recompute": True} if stage.recompute else value


def _replica_to_json(replica: Replica) -> dict[str, Any]:
    kind = replica.kind
    value: dict[str, Any] = {"gpu": kind.device_type, "tp": kind.tp}
    if kind.ep > 1:
        value |= {"ep": kind.ep, "ep_local": kind.ep_local}
    if kind.zone != "default":
        value["zone"] = kind.zone
    if replica.node is not None:
        value["node"] = replica.node
    return value


def _pipeline(raw: dict[str, Any]) -> Pipeline:
    count = raw.get("microbatches")
    return Pipeline(
        microbatch=_whole(raw["microbatch"], 1, "microbatch"),
        microbatches=None if count is None else _whole(count, 1, "microbatches"),
        stages=tuple(_stage(item) for item in raw["stages"]),
    )


def _stage(raw: dict[str, Any]) -> Stage:
    first, end = (_whole(row, 0, "layers") for row in raw["layers"])
    replicas = tuple(r for item in raw["replicas"] for r in _replicas(item))
    recompute = _flag(raw.get("recompute", False), "recompute")
    return Stage(first=first, end=end, replicas=replicas, recompute=recompute)


def _replicas(raw: dict[str, Any]) -> list[Replica]:
    if not isinstance(raw["gpu"], str):
        raise InputError(f"gpu must name one type, not {raw['gpu']!r}")
    kind = ReplicaKind(
        raw["gpu"],
        _whole(raw["tp"], 1, "tp"),
        _whole(raw.get("ep", 1), 1, "ep"),
        _flag(raw.get("ep_local", False), "ep_local"),
        str(raw.get("zone", "default")),
    )
    node = raw.get("node")
    if isinstance(node, list):
        if len(node) != kind.tp or len(set(node)) > 1:
            raise InputError(f"a tp group of {kind.tp} lies on the nodes {node}, not on one")
        node = node[0]
    number = None if node is None else _whole(node, 0, "node")
    return [Replica(kind, number)] * _whole(raw.get("count", 1), 1, "count")


def _whole(value: object, low: int, what: str) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < low:
        raise InputError(f"{what} must be a whole number of at least {low}, not {value!r}")
    return value


def _flag(value: object, what: str) -> bool:
    if not isinstance(value, bool):
        raise InputError(f"{what} must be true or false, not {value!r}")
    return value
