"""The cascade placement problem: cascades of tasks with options, on a cluster."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from arachne_opt.canonical import canonical_json, digest
from arachne_opt.cluster import Cluster
from arachne_opt.errors import InputError

PROBLEM_FORMAT = "arachne.cascade-problem/1"


@dataclass(frozen=True, slots=True, kw_only=True)
class Option:
    """One way to run a task.

    Args:
        degree: number of devices of the group.
        duration_us: time on devices of one node; a group over several nodes pays the penalty.
        memory_bytes: peak per device, everything included.
        device_type: the type that this line is for; None holds for every type.
    """

    degree: int
    duration_us: int
    memory_bytes: int = 0
    device_type: str | None = None

    def __post_init__(self) -> None:
        if self.degree < 1 or self.duration_us < 1 or self.memory_bytes < 0:
            raise InputError(f"degree and duration must be positive, memory >= 0, not {self}")

    @property
    def area_us(self) -> int:
        """Device time that the option takes, without penalty."""
        return self.degree * self.duration_us


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """One step of a cascade.

    Args:
        name: ``encode``, ``denoise`` or another stage.
        options: at most one per degree and device type.
        predecessors: indices of earlier tasks of the same cascade.
        input_bytes: size of what one predecessor hands over, such as the latents of a
            micro-batch; priced by ``Cluster.handoff_us``, 0 makes hand-offs free.
    """

    name: str
    options: tuple[Option, ...]
    predecessors: tuple[int, ...] = ()
    input_bytes: int = 0

    def __post_init__(self) -> None:
        keys = Counter((o.degree, o.device_type) for o in self.options)
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

    def option(self, degree: int, device_type: str) -> Option | None:
        """The option of a degree on devices of a type, None where the task has none."""
        for option in self.options:
            if option.degree == degree and option.device_type in (None, device_type):
                return option
        return None

    def canonical(self) -> list[Any]:
        """JSON values that are equal for equal tasks, whatever the order of their options."""
        options = [
            [o.degree, o.device_type or "", o.duration_us, o.memory_bytes] for o in self.options
        ]
        return [self.name, sorted(options), sorted(self.predecessors), self.input_bytes]


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

    def canonical(self) -> list[Any]:
        """JSON values that are equal for cascades that differ in id and label only."""
        return [task.canonical() for task in self.tasks]


@dataclass(frozen=True, slots=True, kw_only=True)
class CascadeProblem:
    """Which group, how wide and when, for every task of one iteration.

    Args:
        cost_version: version of the cost model that the durations come from; part of the key
            under which plans are kept.
        tail_us: time from the end of the last task to the end of the iteration: the gradients
            are summed and the optimizer steps. The same for every plan, so that the makespan
            remains what is minimised, bounded and given a gap.
    """

    name: str
    cluster: Cluster
    cascades: tuple[Cascade, ...]
    cost_version: str = ""
    tail_us: int = 0

    def __post_init__(self) -> None:
        if self.tail_us < 0:
            raise InputError(f"tail_us must not be negative, not {self.tail_us}", where=self.name)
        if not self.cascades:
            raise InputError("a problem needs at least one cascade", where=self.name)
        ids = Counter(c.id for c in self.cascades)
        if double := [i for i, n in ids.items() if n > 1]:
            raise InputError(f"two cascades are called {double[0]}", where=self.name)

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
        return tuple(o for o in task.options if self.why_unusable(o) is None)

    def why_unusable(self, option: Option) -> str | None:
        """Why no group of this cluster can run an option, None where one can."""
        counts, types = self.cluster.count_of_type, self.cluster.device_types
        if option.device_type is not None and option.device_type not in types:
            return f"the cluster has no {option.device_type}"
        names = [option.device_type] if option.device_type else list(types)
        wide = [n for n in names if counts[n] >= option.degree]
        if not wide:
            most = max(counts[n] for n in names)
            return f"degree {option.degree} is wider than the {most} devices"
        if not any(types[n].memory_bytes >= option.memory_bytes for n in wide):
            return "memory"
        return None

    def canonical_cascade_order(self) -> tuple[int, ...]:
        """Cascade indices in canonical order; equal cascades keep their order."""
        keys = [canonical_json(c.canonical()) for c in self.cascades]
        return tuple(sorted(range(len(keys)), key=keys.__getitem__))

    def canonical_device_order(self) -> tuple[int, ...]:
        """Device indices in the order of the canonical nodes."""
        nodes = self.cluster.canonical_node_order()
        return tuple(d for n in nodes for d in self.cluster.devices_of_node(n))

    def canonical(self) -> dict[str, Any]:
        """JSON values equal for problems that differ in names and in the order of equals only."""
        return {
            "format": PROBLEM_FORMAT,
            "cluster": self.cluster.canonical(),
            "cascades": sorted((c.canonical() for c in self.cascades), key=canonical_json),
            "cost_version": self.cost_version,
            # Only where it is set: problems without it keep their fingerprints.
            **({"tail_us": self.tail_us} if self.tail_us else {}),
        }

    def fingerprint(self) -> str:
        """Key of the problem in the plan database."""
        return digest(self.canonical())
