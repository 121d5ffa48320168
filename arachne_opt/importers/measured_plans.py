"""Reads plans that were run and measured, in the form of eth-easl/sailor's validation records."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from statistics import fmean, median
from typing import Any

from arachne_opt.costs.pipeline.build import build_problem
from arachne_opt.costs.pipeline.profiles import Profiles
from arachne_opt.errors import InputError
from arachne_opt.importers.pipeline_profiles import read_profiles
from arachne_opt.importers.public_json import read_public_json
from arachne_opt.pipeline.closed_form import price_plan
from arachne_opt.pipeline.plan import Pipeline, PipelinePlan, Replica, ReplicaKind, Stage
from arachne_opt.pipeline.pool import parse_pool

# The model of each folder; clariden holds equal GH200 nodes, mit three types.
MODEL_OF_FOLDER = {"OPT-350": "OPT-350", "GPT-NEO": "GPT-Neo-2.7", "mit": "OPT-350"}
CLUSTER_OF_FOLDER = {"OPT-350": "clariden", "GPT-NEO": "clariden", "mit": "mit"}
# Too few rows, and the time is that of another record.
CORRUPT = ("GPT-NEO", "plan_config_N4_D4")


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredPlan:
    """A plan with its measured time.

    Args:
        name: file without its ending.
        cluster: where it ran.
        measured_s: seconds of an iteration.
        memory_bytes: on the fullest device.
        corrupt: the record contradicts itself; left out of every mean.
    """

    name: str
    cluster: str
    plan: PipelinePlan
    measured_s: float
    memory_bytes: int
    corrupt: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Accuracy:
    """Relative errors of predicted times over some measured plans."""

    runs: int
    mean_abs: float
    median_abs: float
    bias: float
    worst: float
    worst_name: str


def read_measured_plans(folder: str | Path) -> tuple[MeasuredPlan, ...]:
    """All records below ``validation`` in a folder of profiles, corrupt ones marked.

    Raises:
        InputError: there are none, or one is malformed.
    """
    root = Path(folder) / "validation"
    files = sorted(root.rglob("*.json"))
    if not files:
        raise InputError("no measured plans", where=str(root))
    return tuple(_record(file) for file in files)


def predicted_s(profiles: Profiles, record: MeasuredPlan) -> float:
    """What the closed form says of a measured plan, with the profiles of its model."""
    plan = record.plan
    pool = ",".join(f"{kind}={count}" for kind, count in plan.devices_used().items())
    problem = build_problem(profiles, parse_pool(pool), plan.global_batch)
    return price_plan(problem, plan).iteration_s


def accuracy(folder: str | Path) -> dict[str, Accuracy]:
    """Errors of the closed form by model and cluster, and over ``all`` sound records."""
    errors: dict[str, list[tuple[float, str]]] = {}
    models = set(MODEL_OF_FOLDER.values())
    profiles = {model: read_profiles(folder, model) for model in models}
    for record in read_measured_plans(folder):
        if record.corrupt:
            continue
        error = predicted_s(profiles[record.plan.model], record) / record.measured_s - 1
        for group in (f"{record.plan.model} on {record.cluster}", "all"):
            errors.setdefault(group, []).append((error, record.name))
    return {group: _accuracy(found) for group, found in sorted(errors.items())}


def _accuracy(found: list[tuple[float, str]]) -> Accuracy:
    values = [error for error, _ in found]
    worst, name = max(found, key=lambda pair: abs(pair[0]))
    return Accuracy(
        runs=len(found),
        mean_abs=fmean(map(abs, values)),
        median_abs=median(map(abs, values)),
        bias=fmean(values),
        worst=worst,
        worst_name=name,
    )


def _record(file: Path) -> MeasuredPlan:
    raw = read_public_json(file, "pipeline_list", "mbs", "gbs", "real", "max_mem")
    family = file.parent.name
    if family not in MODEL_OF_FOLDER:
        raise InputError(f"no model is known for folder {family!r}", where=str(file))
    try:
        plan = _plan(raw, MODEL_OF_FOLDER[family])
        return MeasuredPlan(
            name=file.stem,
            cluster=CLUSTER_OF_FOLDER[family],
            plan=plan,
            measured_s=float(raw["real"]),
            memory_bytes=int(raw["max_mem"]),
            corrupt=(family, file.stem) == CORRUPT,
        )
    except (KeyError, TypeError, ValueError, IndexError) as error:
        what = f"malformed record: {type(error).__name__} {error}"
        raise InputError(what, where=str(file)) from error


def _plan(raw: dict[str, Any], model: str) -> PipelinePlan:
    """Rows follow from the lengths of the lists: some of them name a row twice by mistake."""
    (pipeline,) = raw["pipeline_list"]
    stages, at = [], 0
    for rows, groups in zip(pipeline["layers_per_stage"], pipeline["tmp_per_stage"], strict=True):
        replicas = tuple(Replica(ReplicaKind(nodes[0][0], int(tp))) for nodes, tp in groups)
        stages.append(Stage(first=at, end=at + len(rows), replicas=replicas))
        at += len(rows)
    pipe = Pipeline(microbatch=int(raw["mbs"]), stages=tuple(stages))
    return PipelinePlan(model=model, global_batch=int(raw["gbs"]), pipelines=(pipe,))
