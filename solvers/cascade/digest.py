"""Digest before modelling: a problem as numbers, so that no solver derives a cost of its own."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property, lru_cache

from arachne_opt.cascade.problem import CascadeProblem, Option, Task
from arachne_opt.cluster import Link
from arachne_opt.units import PPM, US_PER_S, format_bytes, scale_up

# Hand-offs and durations that a digest remembers.
_REMEMBERED = 1 << 14

# Devices of a group by node: (node, count) for each node in rising order.
Where = tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Mode:
    """One way to run a task: an option on one device type.

    Args:
        kind: index of the device type in ``Digest.kind_names``.
        least_us: duration with the mildest penalty that any group of this degree pays: none
            unless the degree is wider than the largest node of the type.
        recompute: by the option that computes activations again.
    """

    degree: int
    kind: int
    duration_us: int
    least_us: int
    recompute: bool = False

    @property
    def area_us(self) -> int:
        """Least device time."""
        return self.degree * self.least_us


@dataclass(frozen=True, slots=True, kw_only=True)
class FlatTask:
    """A task with its number among all tasks; predecessors and successors are such numbers.

    ``allowed`` are the devices that it is pinned to, None where it is not.
    """

    index: int
    cascade: int
    task: int
    modes: tuple[Mode, ...]
    predecessors: tuple[int, ...]
    successors: tuple[int, ...]
    input_bytes: int
    allowed: frozenset[int] | None = None

    def may_use(self, devices: Iterable[int]) -> bool:
        """Whether no pin keeps the task from a group."""
        return self.allowed is None or self.allowed.issuperset(devices)

    def mode(self, degree: int, kind: int) -> Mode | None:
        """The mode of a degree on a device type, None where there is none."""
        for mode in self.modes:
            if mode.degree == degree and mode.kind == kind:
                return mode
        return None


@dataclass(frozen=True, slots=True, kw_only=True)
class FlatNode:
    """A node: its device type and its devices by NIC group, in order of the local index."""

    index: int
    kind: int
    devices: tuple[int, ...]
    by_nic: tuple[tuple[int, tuple[int, ...]], ...]

    @property
    def size(self) -> int:
        """Number of devices."""
        return len(self.devices)


class Digest:
    """The arrays of a problem that has at least one usable option for every task.

    Forbidden devices are taken out before: see ``arachne_opt.cascade.usable``.
    """

    def __init__(self, problem: CascadeProblem) -> None:
        assert not problem.forbidden_devices
        cluster = problem.cluster
        self.problem = problem
        self.kind_names = tuple(cluster.device_types)
        kinds = {name: i for i, name in enumerate(self.kind_names)}
        self.node_of = tuple(d.node for d in cluster.devices)
        self.nic_of = tuple(d.nic for d in cluster.devices)
        self.kind_of = tuple(kinds[d.device_type.name] for d in cluster.devices)
        self.device_count = len(self.node_of)
        self.count_of_kind = tuple(cluster.count_of_type[name] for name in self.kind_names)
        self.devices_of_kind = tuple(
            tuple(d for d, kind in enumerate(self.kind_of) if kind == k)
            for k in range(len(self.kind_names))
        )
        self.nodes = self._nodes(kinds)
        self.widest_of_kind = tuple(
            max(n.size for n in self.nodes if n.kind == k) for k in range(len(self.kind_names))
        )
        self.mildest_ppm = cluster.penalty.ppm(1.0)
        self.tasks = self._tasks(problem)
        self._ppm: dict[tuple[int, int], int] = {}
        # Searches ask about the same groups again and again.
        self._handoff_us = lru_cache(_REMEMBERED)(cluster.handoff_us)
        self._duration_us = lru_cache(_REMEMBERED)(self._duration_of)

    @cached_property
    def has_handoff(self) -> bool:
        """Whether any hand-off takes time."""
        return any(t.input_bytes and t.predecessors for t in self.tasks)

    @cached_property
    def cascades(self) -> tuple[tuple[int, ...], ...]:
        """Task numbers of each cascade."""
        rows: list[list[int]] = [[] for _ in self.problem.cascades]
        for task in self.tasks:
            rows[task.cascade].append(task.index)
        return tuple(map(tuple, rows))

    @cached_property
    def shape_of_cascade(self) -> tuple[int, ...]:
        """A number per cascade; cascades of equal number are interchangeable."""
        seen: dict[tuple[object, ...], int] = {}
        shapes = []
        for row in self.cascades:
            key = tuple(
                (t.modes, tuple(p - row[0] for p in t.predecessors), t.input_bytes, t.allowed)
                for t in (self.tasks[i] for i in row)
            )
            shapes.append(seen.setdefault(key, len(seen)))
        return tuple(shapes)

    @cached_property
    def node_class(self) -> tuple[int, ...]:
        """A number per node; nodes of equal number are interchangeable."""
        seen: dict[str, int] = {}
        signatures = (str(node.signature()) for node in self.problem.cluster.nodes)
        return tuple(seen.setdefault(text, len(seen)) for text in signatures)

    def _nodes(self, kinds: dict[str, int]) -> tuple[FlatNode, ...]:
        nodes: list[FlatNode] = []
        first = 0
        for n, node in enumerate(self.problem.cluster.nodes):
            devices = tuple(range(first, first + node.device_count))
            first += node.device_count
            rails: dict[int, list[int]] = {}
            for device, nic in zip(devices, node.nic_of_device, strict=True):
                rails.setdefault(nic, []).append(device)
            by_nic = tuple((nic, tuple(rails[nic])) for nic in sorted(rails))
            kind = kinds[node.device_type.name]
            nodes.append(FlatNode(index=n, kind=kind, devices=devices, by_nic=by_nic))
        return tuple(nodes)

    def _tasks(self, problem: CascadeProblem) -> tuple[FlatTask, ...]:
        number = {(c, t): i for i, (c, t, _) in enumerate(problem.tasks())}
        successors: dict[int, list[int]] = {i: [] for i in number.values()}
        for c, t, task in problem.tasks():
            for p in set(task.predecessors):
                successors[number[c, p]].append(number[c, t])
        return tuple(
            FlatTask(
                index=number[c, t],
                cascade=c,
                task=t,
                modes=self._modes(task),
                predecessors=tuple(number[c, p] for p in sorted(set(task.predecessors))),
                successors=tuple(successors[number[c, t]]),
                input_bytes=task.input_bytes,
                allowed=None if task.allowed_devices is None else frozenset(task.allowed_devices),
            )
            for c, t, task in problem.tasks()
        )

    def _modes(self, task: Task) -> tuple[Mode, ...]:
        """The modes of a task, one per degree and device type.

        Of two options that both fit, one of which computes activations again, the quicker one
        makes every plan at least as short. See ``Room`` for memory over time.
        """
        types, counts = self.problem.cluster.device_types, self.problem.count_of_type(task)
        best: dict[tuple[int, int], Mode] = {}
        for option in self.problem.usable_options(task):
            for kind, name in enumerate(self.kind_names):
                fits = types[name].memory_bytes >= option.memory_bytes
                fits = fits and counts[name] >= option.degree
                if option.device_type not in (None, name) or not fits:
                    continue
                mode, known = self._mode(option, kind), best.get((kind, option.degree))
                if known is None or _rank(mode) < _rank(known):
                    best[kind, option.degree] = mode
        return tuple(best[key] for key in sorted(best))

    def _mode(self, option: Option, kind: int) -> Mode:
        least = option.duration_us
        if option.degree > self.widest_of_kind[kind]:
            least = scale_up(least, self.mildest_ppm)
        return Mode(
            degree=option.degree,
            kind=kind,
            duration_us=option.duration_us,
            least_us=least,
            recompute=option.recompute,
        )

    def penalty_ppm(self, devices: Iterable[int]) -> int:
        """Slow-down of a group in millionths."""
        masks: dict[int, int] = {}
        for d in devices:
            masks[self.node_of[d]] = masks.get(self.node_of[d], 0) | 1 << self.nic_of[d]
        if len(masks) < 2:
            return PPM
        shared, widest = -1, 0
        for mask in masks.values():
            shared &= mask
            widest = max(widest, mask.bit_count())
        return self.overlap_ppm(shared.bit_count(), widest)

    def overlap_ppm(self, shared: int, widest: int) -> int:
        """Slow-down of a group over several nodes from its shared and its most NIC groups."""
        key = shared, widest
        if key not in self._ppm:
            self._ppm[key] = self.problem.cluster.penalty.ppm(shared / widest)
        return self._ppm[key]

    def duration_us(self, task: int, devices: tuple[int, ...]) -> int:
        """Time of a task on a group of devices of one type.

        Raises:
            KeyError: the task has no mode of that degree on that type.
        """
        return self._duration_us(task, devices)

    def _duration_of(self, task: int, devices: tuple[int, ...]) -> int:
        kind = self.kind_of[next(iter(devices))]
        mode = self.tasks[task].mode(len(devices), kind)
        if mode is None:
            raise KeyError((task, len(devices), self.kind_names[kind]))
        return scale_up(mode.duration_us, self.penalty_ppm(devices))

    def handoff_us(self, task: int, producer: tuple[int, ...], consumer: tuple[int, ...]) -> int:
        """Time between the end of a predecessor and the start of a task."""
        size = self.tasks[task].input_bytes
        return self._handoff_us(size, producer, consumer) if size else 0

    def least_handoff_us(self, task: int, before: Mode, mode: Mode) -> int:
        """A lower bound of the hand-off between two modes, whatever their groups."""
        size = self.tasks[task].input_bytes
        held = before.degree if before.kind == mode.kind else 0
        missing = max(0, mode.degree - held)
        if size == 0 or missing == 0:
            return 0
        fastest = max(link.bandwidth_bytes_per_s for link in self.links)
        latency_us = min(link.latency_us for link in self.links)
        return latency_us + -(-size * missing * US_PER_S // (mode.degree * fastest))

    @cached_property
    def links(self) -> tuple[Link, ...]:
        """All links: inside nodes, between them, and between zones."""
        cluster = self.problem.cluster
        between = [entry.link for entry in cluster.zone_links]
        return (*(n.intra_link for n in cluster.nodes), cluster.inter_link, *between)


def _rank(mode: Mode) -> tuple[int, bool]:
    return mode.duration_us, mode.recompute


def binding_limits(problem: CascadeProblem) -> tuple[str, ...]:
    """What makes the problem infeasible, one sentence per task without a usable option."""
    out = []
    for c, _, task in problem.tasks():
        if not problem.usable_options(task):
            cascade = problem.cascades[c]
            shape = f" ({cascade.label})" if cascade.label else ""
            out.append(f"{task.name} of cascade {cascade.id}{shape} {_why(problem, task)}")
    return tuple(out)


def _why(problem: CascadeProblem, task: Task) -> str:
    short = [o for o in task.options if problem.why_unusable(task, o) == "memory"]
    if not short:
        reasons = dict.fromkeys(str(problem.why_unusable(task, o)) for o in task.options)
        return "has no usable option: " + ", ".join(reasons)
    best = min(short, key=lambda o: o.memory_bytes)
    counts = problem.count_of_type(task)
    names = [best.device_type] if best.device_type else list(problem.cluster.device_types)
    room = max(
        (problem.cluster.device_types[n].memory_bytes, n) for n in names if counts[n] >= best.degree
    )
    need = f"needs at least {format_bytes(best.memory_bytes)} per device (degree {best.degree})"
    devices = f" on the devices{limits}" if (limits := problem.limits_of(task)) else ""
    return f"{need}, {room[1]} has {format_bytes(room[0])}{devices}"
