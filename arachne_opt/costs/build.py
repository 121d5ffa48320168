"""Turns an iteration into a placement problem, with the costs of a model."""

from __future__ import annotations

import logging
from collections.abc import Collection, Sequence
from dataclasses import replace

from arachne_opt.cascade.problem import Cascade, CascadeProblem, Option, Task
from arachne_opt.cascade.usable import without_devices
from arachne_opt.cluster import Cluster, DeviceType
from arachne_opt.costs.base import CostModel
from arachne_opt.errors import InfeasibleError, InputError
from arachne_opt.units import format_bytes
from arachne_opt.workload import Iteration, MicroBatch

ENCODE = "encode"
TEXT = "text"

_log = logging.getLogger(__name__)


def build_problem(
    iteration: Iteration,
    cluster: Cluster,
    cost_model: CostModel,
    *,
    degrees: Collection[int] | None = None,
    name: str | None = None,
    forbidden_devices: Collection[int] = (),
) -> CascadeProblem:
    """The problem of placing an iteration on a cluster.

    Every micro-batch becomes a cascade whose tasks follow one another; a text encoder runs beside
    the encoder of the clips, and the transformer waits for both. Options wider than the
    devices of their type or larger than their memory are left out, and logged.

    Args:
        iteration: micro-batches between two optimizer steps.
        cluster: where they may run.
        cost_model: prices the options.
        degrees: only these degrees; None allows all that the model offers.
        name: name of the problem; that of the iteration by default.
        forbidden_devices: devices that take no part, neither in tasks nor in the tail.

    Raises:
        InputError: a degree that a task can never run at, with the legal ones.
        InfeasibleError: a micro-batch fits at no degree; names a clip, the memory that it needs
            and the memory that there is.
    """
    if degrees is not None:
        check_degrees(degrees, cost_model)
    usable = without_devices(cluster, forbidden_devices)
    cascades = [
        build_cascade(batch, usable, cost_model, degrees) for batch in iteration.micro_batches
    ]
    return CascadeProblem(
        name=name or iteration.name,
        cluster=cluster,
        cascades=tuple(cascades),
        cost_version=cost_model.version,
        tail_us=cost_model.tail_us(usable),
        forbidden_devices=tuple(forbidden_devices),
        resident_bytes=resident_bytes(cost_model, cluster),
    )


def resident_bytes(cost_model: CostModel, cluster: Cluster) -> tuple[tuple[str, int], ...]:
    """What is on a device of each type whatever runs; nothing where the model does not know."""
    kinds = cluster.device_types
    rows = tuple((name, cost_model.resident_bytes(kind)) for name, kind in kinds.items())
    return rows if any(size for _, size in rows) else ()


def build_cascade(
    batch: MicroBatch,
    cluster: Cluster,
    cost_model: CostModel,
    degrees: Collection[int] | None = None,
) -> Cascade:
    """The tasks of one micro-batch with the options that fit the cluster.

    Clips whose latents are cached have nothing to encode, no text either, as the embeddings lie
    beside the latents: their cascade begins after that. Clips with embedded texts have no text to
    encode.

    Raises:
        InputError: the cost model knows nothing about the micro-batch.
        InfeasibleError: a task fits at no degree.
    """
    there = {TEXT: batch.embedded, ENCODE: batch.cached}
    names = [n for n in cost_model.task_names if not there.get(n, False)]
    tasks = [
        _task(task, _before(names, index), batch, cluster, cost_model, degrees)
        for index, task in enumerate(names)
    ]
    return Cascade(id=batch.id, tasks=tuple(tasks), label=batch.label)


def _before(names: Sequence[str], index: int) -> tuple[int, ...]:
    """The tasks that a task waits for: the one before, and the text from where it is needed."""
    if index == 0 or (names[0] == TEXT and index == 1 and names[1] == ENCODE):
        return ()
    if names[0] == TEXT and index == 2:
        return (0, 1)
    return (index - 1,)


def check_degrees(degrees: Collection[int], cost_model: CostModel) -> None:
    """Refuses degrees that a task can never run at, with the legal ones."""
    if not degrees:
        raise InputError("no degree is allowed", where="degrees")
    for degree in degrees:
        if degree < 1:
            raise InputError(f"a degree is at least 1, not {degree}", where="degrees")
        for task in cost_model.task_names:
            if reason := cost_model.why_illegal(task, degree):
                raise InputError(reason, where="degrees")


def _task(
    name: str,
    before: tuple[int, ...],
    batch: MicroBatch,
    cluster: Cluster,
    cost_model: CostModel,
    degrees: Collection[int] | None,
) -> Task:
    options: list[Option] = []
    dropped: list[tuple[DeviceType, Option, str]] = []
    for kind in cluster.device_types.values():
        for option in cost_model.options(name, batch, kind):
            if degrees is not None and option.degree not in degrees:
                continue
            if reason := _why_dropped(option, kind, cluster):
                dropped.append((kind, option, reason))
            else:
                options.append(_of_type(option, kind, cluster))
    if not options:
        raise _nothing_fits(name, batch, dropped, cluster, degrees)
    for kind, option, reason in dropped:
        _log.info("%s %s at degree %d on %s: %s", name, batch.id, option.degree, kind.name, reason)
    return Task(
        name=name,
        options=tuple(options),
        predecessors=before,
        input_bytes=cost_model.input_bytes(name, batch) if before else 0,
    )


def _of_type(option: Option, kind: DeviceType, cluster: Cluster) -> Option:
    """The option with its device type, which goes without saying where there is one type."""
    only = len(cluster.device_types) == 1
    return replace(option, device_type=None if only else kind.name)


def _why_dropped(option: Option, kind: DeviceType, cluster: Cluster) -> str | None:
    count = cluster.count_of_type[kind.name]
    if option.degree > count:
        return f"wider than the {count} devices"
    if option.memory_bytes > kind.memory_bytes:
        needed, there = format_bytes(option.memory_bytes), format_bytes(kind.memory_bytes)
        return f"needs {needed} per device, there are {there}"
    return None


def _nothing_fits(
    task: str,
    batch: MicroBatch,
    dropped: list[tuple[DeviceType, Option, str]],
    cluster: Cluster,
    degrees: Collection[int] | None,
) -> InfeasibleError | InputError:
    clips = f"clip {batch.clips[0].id}"
    if batch.size > 1:
        clips += f" and {batch.size - 1} more"
    where = f"micro-batch {batch.id} ({batch.label}, {clips})"
    if not dropped:
        asked = ", ".join(map(str, sorted(degrees or ())))
        return InputError(f"{task} can run at none of the degrees {asked}", where=where)
    narrow = [row for row in dropped if row[1].degree <= cluster.count_of_type[row[0].name]]
    if not narrow:
        least = min(option.degree for _, option, _ in dropped)
        most = max(cluster.count_of_type.values())
        what = f"{task} needs at least {least} devices of one type, the cluster has {most}"
        return InfeasibleError(what, where=where, hint="a larger cluster or smaller degrees")
    kind, option, _ = min(narrow, key=lambda row: row[1].memory_bytes / row[0].memory_bytes)
    what = f"{task} fits at no degree: at degree {option.degree} it needs"
    what += f" {format_bytes(option.memory_bytes)} per device,"
    what += f" {kind.name} has {format_bytes(kind.memory_bytes)}"
    hint = "fewer clips per micro-batch, " if batch.size > 1 else ""
    return InfeasibleError(what, where=where, hint=f"{hint}a shorter or smaller clip, more devices")
