"""A learned cost model of cascade tasks: what ``build_problem`` asks for its options."""

from __future__ import annotations

import logging
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np

from arachne_opt.canonical import digest
from arachne_opt.cascade.problem import Option
from arachne_opt.cluster import Cluster, DeviceType
from arachne_opt.cost_version import cost_version
from arachne_opt.costs.analytic import AnalyticCostModel
from arachne_opt.costs.learned.cascade_features import (
    TASKS,
    TaskPoint,
    memory_samples,
    task_samples,
)
from arachne_opt.costs.learned.estimator import Estimator, estimator_from_json
from arachne_opt.costs.learned.fitting import FitOptions, fit_estimator
from arachne_opt.costs.learned.intervals import require_share
from arachne_opt.costs.learned.samples import Targets
from arachne_opt.costs.learned.support import NEAR
from arachne_opt.device_types import device_type
from arachne_opt.errors import InputError
from arachne_opt.models import ModelSpec, model_spec
from arachne_opt.records import Measurement
from arachne_opt.units import US_PER_S, us_from_seconds
from arachne_opt.workload import MicroBatch, Shape

CASCADE_FORMAT = "arachne.learned-cascade/1"

# Shapes of which memory was measured, from which on it is learned rather than computed.
_FEWEST_FOR_MEMORY = 6
_log = logging.getLogger(__name__)

Where = tuple[str, str, int, str]


@dataclass(frozen=True, kw_only=True)
class TaskModel:
    """What was learned of one task.

    Args:
        degrees: those that were measured.
        seconds: estimator of the duration.
        memory_bytes: of the memory of one device; None where too little of it was measured.
    """

    degrees: tuple[int, ...]
    seconds: Estimator
    memory_bytes: Estimator | None = None


@dataclass(frozen=True, kw_only=True)
class LearnedCostModel:
    """Predicts tasks with ensembles, and with their analytic core where these were not trained.

    Args:
        name: what the user calls it.
        spec: the video model.
        tasks: what was learned, by task.
        analytic: gives the tail, what is resident, and memory where it was not measured.
        risk: quantile of the durations and of learned memory; None stands for the middle.
        max_degree: options go up to this many devices.
    """

    name: str
    spec: ModelSpec
    tasks: Mapping[str, TaskModel]
    analytic: AnalyticCostModel
    risk: float | None = None
    max_degree: int = 64
    _fallbacks: dict[Where, None] = field(default_factory=dict, repr=False, compare=False)

    def __post_init__(self) -> None:
        if self.risk is not None:
            require_share(self.risk)

    @property
    def model(self) -> ModelSpec:
        """The video model."""
        return self.spec

    @cached_property
    def version(self) -> str:
        """Digest of all weights, the quantile, and what the analytic part adds."""
        value = self.to_json()
        value["analytic"], value["risk"] = self.analytic.version, self.risk
        what = (self.name, self.spec.name, *([f"q{self.risk}"] if self.risk else []))
        return cost_version("learned", what, digest(value))

    @property
    def task_names(self) -> tuple[str, ...]:
        """Learned tasks, in the order of a cascade."""
        return tuple(task for task in TASKS if task in self.tasks)

    @property
    def fallbacks(self) -> tuple[Where, ...]:
        """(task, micro-batch, degree, why) that the core alone has priced so far."""
        return tuple(self._fallbacks)

    def for_cluster(self, analytic: AnalyticCostModel, risk: float | None) -> LearnedCostModel:
        """The same model with the links and shards of a cluster, at a quantile."""
        most = analytic.max_degree
        return replace(self, analytic=analytic, max_degree=most, risk=risk, _fallbacks={})

    def options(self, task: str, batch: MicroBatch, device_type: DeviceType) -> tuple[Option, ...]:
        """An option at every legal degree; those outside the support are remembered and logged."""
        if task not in self.tasks:
            raise InputError(f"{self.name} has learned {', '.join(self.task_names)}, not {task!r}")
        learned = self.tasks[task]
        degrees = self._degrees(task, batch)
        points = [_point(batch, degree, device_type) for degree in degrees]
        samples = task_samples(self.spec, task, points, learned.degrees)
        found = learned.seconds.quantile(samples, self.risk)
        for degree, place in zip(degrees, found.places, strict=True):
            if place != NEAR:
                self._remember((task, batch.label, degree, place))
        memory = self._memory(task, points, batch, device_type)
        return tuple(
            Option(
                degree=degree,
                duration_us=max(1, us_from_seconds(float(seconds))),
                memory_bytes=size,
            )
            for degree, seconds, size in zip(degrees, found.values, memory, strict=True)
        )

    def _degrees(self, task: str, batch: MicroBatch) -> tuple[int, ...]:
        limit = min(self.max_degree, self.spec.tokens(batch.shape))
        legal = self.spec.legal_degrees(limit)
        measured = self.tasks[task].degrees if task == "encode" else ()
        return tuple(sorted({*legal, *(k for k in measured if k <= limit)}))

    def _remember(self, where: Where) -> None:
        if where not in self._fallbacks:
            self._fallbacks[where] = None
            _log.info("%s %s at degree %d: outside the support (%s), analytic core", *where)

    def _memory(
        self,
        task: str,
        points: Sequence[TaskPoint],
        batch: MicroBatch,
        kind: DeviceType,
    ) -> tuple[int, ...]:
        learned = self.tasks[task]
        if learned.memory_bytes is None:
            sizes = {o.degree: o.memory_bytes for o in self.analytic.options(task, batch, kind)}
            rest = max(sizes.values())
            return tuple(sizes.get(p.degree, rest) for p in points)
        samples = memory_samples(self.spec, task, points, learned.degrees)
        values = learned.memory_bytes.quantile(samples, self.risk).values
        return tuple(math.ceil(v) for v in values)

    def why_illegal(self, task: str, degree: int) -> str | None:
        """Why a degree does not divide the heads; the encoder takes every degree."""
        return self.spec.why_illegal(degree) if task == "denoise" else None

    def input_bytes(self, task: str, batch: MicroBatch) -> int:
        """Latents of the micro-batch, where an encoder hands them to the transformer."""
        if task != "denoise" or self.task_names[0] == "denoise":
            return 0
        return self.spec.latent_bytes(batch.shape) * batch.size

    def tail_us(self, cluster: Cluster) -> int:
        """The word of the analytic model."""
        return self.analytic.tail_us(cluster)

    def resident_bytes(self, device_type: DeviceType) -> int:
        """0 where memory is learned: measured peaks do not tell what remains on a device."""
        if any(learned.memory_bytes for learned in self.tasks.values()):
            return 0
        return self.analytic.resident_bytes(device_type)

    def to_json(self) -> dict[str, Any]:
        """JSON values that ``learned_from_json`` reads back."""
        return {
            "format": CASCADE_FORMAT,
            "name": self.name,
            "model": self.spec.name,
            "tasks": {
                task: {
                    "degrees": list(learned.degrees),
                    "seconds": learned.seconds.to_json(),
                    "memory_bytes": learned.memory_bytes and learned.memory_bytes.to_json(),
                }
                for task, learned in self.tasks.items()
            },
        }


def learned_from_json(value: Mapping[str, Any], where: str) -> LearnedCostModel:
    """The model that ``to_json`` wrote, with the usual links of its device types.

    Raises:
        InputError: another format, or damaged.
    """
    if value.get("format") != CASCADE_FORMAT:
        what = f"format is {value.get('format')!r}, not {CASCADE_FORMAT!r}"
        raise InputError(what, where=where, hint="arachne cost fit cascade")
    try:
        spec = model_spec(value["model"])
        tasks = {str(task): _task_from_json(raw) for task, raw in value["tasks"].items()}
        return LearnedCostModel(
            name=str(value["name"]), spec=spec, tasks=tasks, analytic=AnalyticCostModel(spec)
        )
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        what = f"the learned cost model is damaged: {type(error).__name__} {error}"
        raise InputError(what, where=where, hint="arachne cost fit cascade") from error


def _task_from_json(raw: Mapping[str, Any]) -> TaskModel:
    memory = raw["memory_bytes"]
    return TaskModel(
        degrees=tuple(map(int, raw["degrees"])),
        seconds=estimator_from_json(raw["seconds"]),
        memory_bytes=None if memory is None else estimator_from_json(memory),
    )


def fit_cascade(
    name: str,
    spec: ModelSpec,
    measurements: Iterable[Measurement],
    options: FitOptions | None = None,
) -> LearnedCostModel:
    """The model of measured tasks; others, and activations computed again, are left out.

    Raises:
        InputError: nothing to learn from, or too few shapes of a task.
    """
    rows = learnable(measurements)
    tasks = {}
    for task in TASKS:
        mine = [m for m in rows if m.task == task]
        if mine:
            tasks[task] = _fit_task(spec, task, mine, options or FitOptions())
    if not tasks:
        what = f"no measured task of {spec.name} to learn from"
        raise InputError(what, hint="arachne profile cascade")
    return LearnedCostModel(name=name, spec=spec, tasks=tasks, analytic=AnalyticCostModel(spec))


def learnable(measurements: Iterable[Measurement]) -> tuple[Measurement, ...]:
    """The measurements that a model learns from."""
    return tuple(m for m in measurements if m.task in TASKS and not m.recompute)


def shape_group(m: Measurement) -> str:
    """The shape that a measurement is of: its points are held out together."""
    return f"{m.batch}x{m.frames}x{m.height}x{m.width}"


def points_of(measurements: Iterable[Measurement]) -> tuple[TaskPoint, ...]:
    """The points that measurements are of."""
    return tuple(
        TaskPoint(
            clips=m.batch,
            shape=Shape(frames=m.frames, height=m.height, width=m.width),
            text_tokens=m.text_tokens,
            degree=m.degree,
            device_type=device_type(m.device_type),
        )
        for m in measurements
    )


def targets_of(measurements: Sequence[Measurement], values: Sequence[float]) -> Targets:
    """Values of measurements; repeated ones of a point share one weight."""
    keys = [(shape_group(m), m.device_type, m.degree) for m in measurements]
    counts = {key: keys.count(key) for key in set(keys)}
    return Targets(
        values=np.array(values, dtype=np.float64),
        groups=tuple(map(shape_group, measurements)),
        weights=np.array([1 / counts[key] for key in keys]),
    )


def _fit_task(
    spec: ModelSpec, task: str, rows: Sequence[Measurement], options: FitOptions
) -> TaskModel:
    degrees = tuple(sorted({m.degree for m in rows}))
    samples = task_samples(spec, task, points_of(rows), degrees)
    seconds = [m.duration_us / US_PER_S for m in rows]
    known = [m for m in rows if m.memory_bytes > 0]
    memory = None
    if len({shape_group(m) for m in known}) >= _FEWEST_FOR_MEMORY:
        memory = fit_estimator(
            memory_samples(spec, task, points_of(known), degrees),
            targets_of(known, [m.memory_bytes for m in known]),
            options,
        )
    return TaskModel(
        degrees=degrees,
        seconds=fit_estimator(samples, targets_of(rows, seconds), options),
        memory_bytes=memory,
    )


def _point(batch: MicroBatch, degree: int, kind: DeviceType) -> TaskPoint:
    return TaskPoint(
        clips=batch.size,
        shape=batch.shape,
        text_tokens=batch.text_tokens,
        degree=degree,
        device_type=kind,
    )
