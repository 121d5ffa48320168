"""The cascade placement problem: cascades of tasks with options, on a cluster."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from arachne_opt.canonical import canonical_json, digest
from arachne_opt.cluster import Cluster
from arachne_opt.errors import InputError
from arachne_opt.units import US_PER_S

PROBLEM_FORMAT = "arachne.cascade-problem/1"
_SHOWN_DEVICES = 8
_LONGEST_US = 100 * 366 * 24 * 3600 * US_PER_S  # of one option: solvers count in 64 bits


@dataclass(frozen=True, slots=True, kw_only=True)
class Option:
    """One way to run a task.

    Args:
        degree: number of devices of the group.
        duration_us: time on devices of one node; a group over several nodes pays the penalty.
        memory_bytes: peak per device, everything included.
        device_type: the type that this line is for; None holds for every type.
        recompute: activations are computed again in the backward pass instead of kept: longer,
            with less memory. Such an option stands beside the one that keeps them.
    """

    degree: int
    duration_us: int
    memory_bytes: int = 0
    device_type: str | None = None
    recompute: bool = False

    def __post_init__(self) -> None:
        if self.degree < 1 or self.duration_us < 1 or self.memory_bytes < 0:
            raise InputError(f"degree and duration must be positive, memory >= 0, not {self}")
        if self.duration_us > _LONGEST_US:
            what = f"an option takes {self.duration_us / US_PER_S:g} s, more than 100 years"
            raise InputError(what, hint="durations in seconds, and their unit")

    @property
    def area_us(self) -> int:
        """Device time that the option takes, without penalty."""
        return self.degree * self.duration_us


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """One step of a cascade.

    Args:
        name: ``encode``, ``denoise`` or another stage.
        options: at most one per degree and device type that keeps activations, and one that
            computes them again.
        predecessors: indices of earlier tasks of the same cascade.
        input_bytes: size of what one predecessor hands over, such as the latents of a
            micro-batch; priced by ``Cluster.handoff_us``, 0 makes hand-offs free.
        allowed_devices: the only devices that the task may use, such as those that hold a text
            encoder; kept in rising order. None allows all.
    """

    name: str
    options: tuple[Option, ...]
    predecessors: tuple[int, ...] = ()
    input_bytes: int = 0
    allowed_devices: tuple[int, ...] | None = None

    def __post_init__(self) -> None:
        if self.allowed_devices is not None:
            if not self.allowed_devices:
                raise InputError("a pin needs at least one device", where=f"task {self.name}")
            object.__setattr__(self, "allowed_devices", _each_once(self.allowed_devices))
        keys = Counter((o.degree, o.device_type, o.recompute) for o in self.options)
        if not self.options:
            raise InputError("a task needs at least one option", where=f"task {self.name}")
        if double := [key for key, n in keys.items() if n > 1]:
            what = f"two options of degree {double[0][0]} for device type {double[0][1]}"
            raise InputError(what, where=f"task {self.name}")
        types = {o.device_type for o in self.options}
        if None in types and len(types) > 1:
            what = "options either name a device type each, or none does"
            raise InputError(what, where=f"task {self.name}")
        if self.input_bytes < 0:
            raise InputError("input_bytes must not be negative", where=f"task {self.name}")

    def option(self, degree: int, device_type: str, *, recompute: bool = False) -> Option | None:
        """The option of a degree on devices of a type, None where the task has none."""
        for option in self.options:
            same = option.degree == degree and option.recompute == recompute
            if same and option.device_type in (None, device_type):
                return option
        return None

    def canonical(self, position: Mapping[int, int] | None = None) -> list[Any]:
        """JSON values that are equal for equal tasks, whatever the order of their options.

        Args:
            position: the number to write for each device of a pin; its own by default.
        """
        options = [
            # Marked only where it is set: tasks without it keep their fingerprints.
            [o.degree, o.device_type or "", o.duration_us, o.memory_bytes, *[1] * o.recompute]
            for o in self.options
        ]
        out = [self.name, sorted(options), sorted(self.predecessors), self.input_bytes]
        if self.allowed_devices is None:
            return out
        return [*out, sorted(position[d] if position else d for d in self.allowed_devices)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Cascade:
    """The task graph of one micro-batch; ``label`` tells people its shape."""

    id: str
    tasks: tuple[Task, ...]
    label: str = ""

    def __post_init__(self) -> None:
        if not self.tasks:
            raise InputError("a cascade needs at least one task", where=f"cascade {self.id}")
        if len({t.name for t in self.tasks}) != len(self.tasks):
            raise InputError("task names must differ", where=f"cascade {self.id}")
        for index, task in enumerate(self.tasks):
            if not all(0 <= p < index for p in task.predecessors):
                what = f"task {task.name} follows {task.predecessors}: only earlier tasks count"
                raise InputError(what, where=f"cascade {self.id}")

    def canonical(self, position: Mapping[int, int] | None = None) -> list[Any]:
        """JSON values that are equal for cascades that differ in id and label only."""
        return [task.canonical(position) for task in self.tasks]


@dataclass(frozen=True, slots=True, kw_only=True)
class CascadeProblem:
    """Which group, how wide and when, for every task of one iteration.

    Args:
        cost_version: version of the cost model that the durations come from; part of the key
            under which plans are kept.
        tail_us: time from the end of the last task to the end of the iteration: the gradients
            are summed and the optimizer steps. The same for every plan, so that the makespan
            remains what is minimised, bounded and given a gap.
        forbidden_devices: devices that no task may use, such as drained ones; kept in rising
            order.
        resident_bytes: what is on a device of each type whatever runs, such as weights and
            optimizer shard; the memory of every option has it in it. Where it is given, results
            that wait for the task that takes them count too, and at any time all must fit.
    """

    name: str
    cluster: Cluster
    cascades: tuple[Cascade, ...]
    cost_version: str = ""
    tail_us: int = 0
    forbidden_devices: tuple[int, ...] = ()
    resident_bytes: tuple[tuple[str, int], ...] = ()

    def __post_init__(self) -> None:
        object.__setattr__(self, "forbidden_devices", _each_once(self.forbidden_devices))
        self._check_devices()
        object.__setattr__(self, "resident_bytes", tuple(sorted(self.resident_bytes)))
        names = [name for name, _ in self.resident_bytes]
        if len(set(names)) < len(names) or not set(names) <= set(self.cluster.device_types):
            what = f"resident bytes are for {names}, the device types are"
            raise InputError(f"{what} {list(self.cluster.device_types)}", where=self.name)
        if any(size < 0 for _, size in self.resident_bytes):
            raise InputError("resident bytes must not be negative", where=self.name)
        if self.tail_us < 0:
            raise InputError(f"tail_us must not be negative, not {self.tail_us}", where=self.name)
        if not self.cascades:
            raise InputError("a problem needs at least one cascade", where=self.name)
        ids = Counter(c.id for c in self.cascades)
        if double := [i for i, n in ids.items() if n > 1]:
            raise InputError(f"two cascades are called {double[0]}", where=self.name)

    def _check_devices(self) -> None:
        count = self.cluster.device_count
        named = [(self.forbidden_devices, "forbidden devices")]
        named += [
            (task.allowed_devices, f"pin of {task.name} of cascade {self.cascades[c].id}")
            for c, _, task in self.tasks()
            if task.allowed_devices is not None
        ]
        for devices, where in named:
            if unknown := [d for d in devices if not 0 <= d < count]:
                what = f"no device {unknown[0]}: the devices are 0 to {count - 1}"
                raise InputError(what, where=f"{self.name}: {where}")
        if len(self.forbidden_devices) == count:
            raise InputError(f"all {count} devices are forbidden", where=self.name)

    @property
    def pinned(self) -> bool:
        """Whether a task may use some devices only."""
        return any(task.allowed_devices is not None for _, _, task in self.tasks())

    def devices_of(self, task: Task) -> tuple[int, ...]:
        """The devices that a task may use."""
        forbidden = set(self.forbidden_devices)
        allowed = task.allowed_devices
        wanted = range(self.cluster.device_count) if allowed is None else allowed
        return tuple(d for d in wanted if d not in forbidden)

    def iteration_us(self, makespan_us: int) -> int:
        """Time of the whole iteration for a makespan."""
        return makespan_us + self.tail_us

    def tasks(self) -> Iterator[tuple[int, int, Task]]:
        """All tasks as (cascade index, task index, task), cascade by cascade."""
        for c, cascade in enumerate(self.cascades):
            for t, task in enumerate(cascade.tasks):
                yield c, t, task

    def usable_options(self, task: Task) -> tuple[Option, ...]:
        """Options that some group of this cluster can run: wide enough, and the memory fits."""
        counts = self.count_of_type(task)
        return tuple(o for o in task.options if self.why_unusable(task, o, counts) is None)

    def count_of_type(self, task: Task) -> Mapping[str, int]:
        """Number of devices of each type that a task may use."""
        if task.allowed_devices is None and not self.forbidden_devices:
            return self.cluster.count_of_type
        devices = self.cluster.devices
        found = Counter(devices[d].device_type.name for d in self.devices_of(task))
        return {name: found[name] for name in self.cluster.device_types}

    def limits_of(self, task: Task) -> str:
        """Which devices count for a task, to stand behind «devices»; empty where all do."""
        parts = []
        if task.allowed_devices is not None:
            parts.append(f"that {task.name} is pinned to ({_few(task.allowed_devices)})")
        if self.forbidden_devices:
            parts.append(f"that are not forbidden (all but {_few(self.forbidden_devices)})")
        return "".join(f" {part}" for part in (" and ".join(parts),) if part)

    def why_unusable(
        self, task: Task, option: Option, counts: Mapping[str, int] | None = None
    ) -> str | None:
        """Why no group of this cluster can run an option of a task, None where one can.

        Args:
            task: says which devices count.
            option: one of its options.
            counts: ``count_of_type(task)``, for who asks about many options.
        """
        counts, types = counts or self.count_of_type(task), self.cluster.device_types
        if option.device_type is not None and option.device_type not in types:
            return f"the cluster has no {option.device_type}"
        names = [option.device_type] if option.device_type else list(types)
        wide = [n for n in names if counts[n] >= option.degree]
        if not wide:
            most = max(counts[n] for n in names)
            kind = f"{option.device_type} " if option.device_type and self.limits_of(task) else ""
            plural = "s" if most != 1 or not self.limits_of(task) else ""
            what = f"degree {option.degree} is wider than the {most} {kind}device{plural}"
            return what + self.limits_of(task)
        if not any(types[n].memory_bytes >= option.memory_bytes for n in wide):
            return "memory"
        return None

    def canonical_cascade_order(self) -> tuple[int, ...]:
        """Cascade indices in canonical order; equal cascades keep their order."""
        position = self._positions()
        keys = [canonical_json(c.canonical(position)) for c in self.cascades]
        return tuple(sorted(range(len(keys)), key=keys.__getitem__))

    def canonical_device_order(self) -> tuple[int, ...]:
        """Device indices in the order of the canonical nodes."""
        nodes: Iterable[int] = self.cluster.canonical_node_order()
        if self.forbidden_devices or self.pinned:
            marks = self._marks()
            nodes = sorted(nodes, key=lambda n: (self.cluster.nodes[n].signature(), marks[n]))
        return tuple(d for n in nodes for d in self.cluster.devices_of_node(n))

    def _marks(self) -> list[list[list[str]]]:
        """Per node and device what it is forbidden or pinned for, whatever nodes are called.

        Nodes with equal marks keep their order: should it matter, equal problems in another order
        miss each other's plans, but a plan is never taken for another problem's.
        """
        marks: dict[int, list[str]] = {d: ["forbidden"] for d in self.forbidden_devices}
        for cascade in self.cascades:
            plain = [replace(task, allowed_devices=None).canonical() for task in cascade.tasks]
            for t, task in enumerate(cascade.tasks):
                mark = canonical_json([t, plain, len(task.allowed_devices or ())])
                for d in task.allowed_devices or ():
                    marks.setdefault(d, []).append(mark)
        devices_of = self.cluster.devices_of_node
        nodes = range(len(self.cluster.nodes))
        return [[sorted(marks.get(d, [])) for d in devices_of(n)] for n in nodes]

    def _positions(self) -> Mapping[int, int] | None:
        """The canonical number of each device, None where no task is pinned."""
        if not self.pinned:
            return None
        return {d: i for i, d in enumerate(self.canonical_device_order())}

    def canonical(self) -> dict[str, Any]:
        """JSON values equal for problems that differ in names and in the order of equals only."""
        position = self._positions()
        value = {
            "format": PROBLEM_FORMAT,
            "cluster": self.cluster.canonical(),
            "cascades": sorted((c.canonical(position) for c in self.cascades), key=canonical_json),
            "cost_version": self.cost_version,
            # Only where it is set: problems without it keep their fingerprints.
            **({"tail_us": self.tail_us} if self.tail_us else {}),
        }
        if self.forbidden_devices:
            forbidden = set(self.forbidden_devices)
            order = self.canonical_device_order()
            value["forbidden_devices"] = [i for i, d in enumerate(order) if d in forbidden]
        if self.resident_bytes:
            value["resident_bytes"] = [list(row) for row in self.resident_bytes]
        return value

    def fingerprint(self) -> str:
        """Key of the problem in the plan database."""
        return digest(self.canonical())


def _each_once(devices: Iterable[int]) -> tuple[int, ...]:
    return tuple(sorted(set(devices)))


def _few(devices: tuple[int, ...]) -> str:
    """Device numbers for people, the first ones of many."""
    shown = ", ".join(map(str, devices[:_SHOWN_DEVICES]))
    return shown if len(devices) <= _SHOWN_DEVICES else f"{shown}, …"
