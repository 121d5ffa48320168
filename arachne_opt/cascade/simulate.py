"""Runs a cascade plan as discrete events: ends, arrivals of hand-offs, starts."""

from __future__ import annotations

import heapq
from collections import deque
from dataclasses import dataclass

from arachne_opt.cascade.facts import Facts
from arachne_opt.cascade.memory import Span, peak_bytes
from arachne_opt.cascade.plan import CascadePlan, Placement
from arachne_opt.cascade.problem import CascadeProblem, Task
from arachne_opt.errors import InputError

Key = tuple[int, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulatedTask:
    """One task as it ran.

    Args:
        handoff_us: longest hand-off from one of its predecessors.
        ready_us: when the last of its inputs had arrived.
    """

    cascade: int
    task: int
    devices: tuple[int, ...]
    start_us: int
    end_us: int
    penalty_ppm: int
    handoff_us: int
    ready_us: int
    recompute: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Simulation:
    """What happened: the tasks in the order of their starts, and the use of the devices.

    Args:
        busy_us: time that each device ran tasks.
        cross_node_groups: number of tasks whose group touches more than one node.
        peak_devices: most devices that ran at one time.
        usable_devices: number of devices that are not forbidden.
        peak_bytes: the most memory that each device held at one time, parked results included.
    """

    makespan_us: int
    tasks: tuple[SimulatedTask, ...]
    busy_us: tuple[int, ...]
    cross_node_groups: int
    peak_devices: int
    usable_devices: int
    peak_bytes: tuple[int, ...]

    @property
    def idle_share(self) -> float:
        """Part of all usable device time until the makespan that no task used."""
        return _idle(sum(self.busy_us), self.makespan_us * self.usable_devices)

    @property
    def idle_shares(self) -> tuple[float, ...]:
        """The same for each device."""
        return tuple(_idle(busy_us, self.makespan_us) for busy_us in self.busy_us)


def simulate(problem: CascadeProblem, plan: CascadePlan) -> Simulation:
    """The run of a plan when every task starts as soon as it can, in the plan's order.

    A device takes its tasks in the order of the plan; a task starts once all its devices have
    come to it and all its inputs have arrived. Planned times only give the order.

    Raises:
        InputError: a task or its group is not usable, or tasks wait for each other in a circle.
    """
    machine = _Machine(problem, plan)
    machine.run()
    tasks = sorted(machine.ran.values(), key=lambda t: (t.start_us, t.cascade, t.task))
    busy_us = [0] * machine.facts.device_count
    for task in tasks:
        for device in task.devices:
            busy_us[device] += task.end_us - task.start_us
    return Simulation(
        makespan_us=max((task.end_us for task in tasks), default=0),
        tasks=tuple(tasks),
        busy_us=tuple(busy_us),
        cross_node_groups=sum(machine.facts.node_count(t.devices) > 1 for t in tasks),
        peak_devices=_peak(tasks),
        usable_devices=machine.facts.device_count - len(problem.forbidden_devices),
        peak_bytes=peak_bytes(problem, map(_span, tasks)),
    )


class _Machine:
    """Devices with their queues, and the events to come."""

    def __init__(self, problem: CascadeProblem, plan: CascadePlan) -> None:
        self.problem = problem
        self.facts = Facts(problem)
        self.placed = self._index(plan)
        self.queues: list[deque[Key]] = [deque() for _ in range(self.facts.device_count)]
        for p in plan.placements:
            for d in p.devices:
                self.queues[d].append((p.cascade, p.task))
        self.waits = {key: len(self._inputs(key)) for key in self.placed}
        self.handoff_us = dict.fromkeys(self.placed, 0)
        self.ready_us = dict.fromkeys(self.placed, 0)
        self.ran: dict[Key, SimulatedTask] = {}
        self.events: list[tuple[int, str, Key]] = []

    def run(self) -> None:
        """Processes events in the order of time until none is left."""
        for key in self.placed:
            self._start_if_possible(key, 0)
        while self.events:
            now_us, what, key = heapq.heappop(self.events)
            if what == "end":
                self._end(key, now_us)
            else:
                self._arrive(key, now_us)
        if len(self.ran) < len(self.placed):
            raise InputError(f"the plan cannot run: {self._circle()}", where=self.problem.name)

    def _end(self, key: Key, now_us: int) -> None:
        """Frees the devices of a task and sends its result on."""
        group = self.placed[key].devices
        for d in group:
            self.queues[d].popleft()
        for after in self._consumers(key):
            size_bytes = self._task(after).input_bytes
            moved_us = self.facts.handoff_us(size_bytes, group, self.placed[after].devices)
            self.handoff_us[after] = max(self.handoff_us[after], moved_us)
            heapq.heappush(self.events, (now_us + moved_us, "arrive", after))
        for d in group:
            if self.queues[d]:
                self._start_if_possible(self.queues[d][0], now_us)

    def _arrive(self, key: Key, now_us: int) -> None:
        self.waits[key] -= 1
        self.ready_us[key] = now_us
        self._start_if_possible(key, now_us)

    def _start_if_possible(self, key: Key, now_us: int) -> None:
        # A running task stays first in the queues of its devices until it ends.
        group = self.placed[key].devices
        first = all(self.queues[d][0] == key for d in group)
        if key in self.ran or self.waits[key] or not first:
            return
        kind, again = self.facts.kinds(group)[0].name, self.placed[key].recompute
        option = self.facts.option(self._task(key), len(group), kind, recompute=again)
        assert option is not None  # _index refuses a placement without one
        end_us = now_us + self.facts.duration_us(option, group)
        heapq.heappush(self.events, (end_us, "end", key))
        self.ran[key] = SimulatedTask(
            cascade=key[0],
            task=key[1],
            devices=group,
            start_us=now_us,
            end_us=end_us,
            penalty_ppm=self.facts.penalty_ppm(group),
            handoff_us=self.handoff_us[key],
            ready_us=self.ready_us[key],
            recompute=again,
        )

    def _index(self, plan: CascadePlan) -> dict[Key, Placement]:
        """Placements by task, all of them usable and complete."""
        placed: dict[Key, Placement] = {}
        asked = {(c, t) for c, t, _ in self.problem.tasks()}
        for p in plan.placements:
            key = p.cascade, p.task
            where = f"cascade {p.cascade}, task {p.task}"
            if key not in asked or key in placed:
                twice = "is placed twice" if key in placed else "is not part of the problem"
                raise InputError(twice, where=where)
            if reason := self._unusable(p):
                raise InputError(reason, where=where)
            placed[key] = p
        if missing := sorted(asked - set(placed)):
            raise InputError("is not in the plan", where="cascade {}, task {}".format(*missing[0]))
        return placed

    def _unusable(self, p: Placement) -> str | None:
        """Why a group cannot run its task, None where it can."""
        count = self.facts.device_count
        if not p.devices or len(set(p.devices)) != len(p.devices):
            return f"a group needs devices, each once, not {list(p.devices)}"
        if not all(0 <= d < count for d in p.devices):
            return f"the devices are 0 to {count - 1}, not {list(p.devices)}"
        kinds = self.facts.kinds(p.devices)
        task = self.problem.cascades[p.cascade].tasks[p.task]
        barred = set(p.devices).intersection(self.problem.forbidden_devices)
        if task.allowed_devices is not None:
            barred |= set(p.devices).difference(task.allowed_devices)
        if barred:
            return f"{task.name} may not use the devices {sorted(barred)}"
        known = len(kinds) == 1 and self.facts.option(
            task, p.degree, kinds[0].name, recompute=p.recompute
        )
        if not known:
            way = " that computes activations again" if p.recompute else ""
            return f"no option of degree {p.degree} on {' and '.join(k.name for k in kinds)}{way}"
        return None

    def _inputs(self, key: Key) -> list[Key]:
        return [(key[0], p) for p in sorted(set(self._task(key).predecessors))]

    def _consumers(self, key: Key) -> list[Key]:
        tasks = self.problem.cascades[key[0]].tasks
        return [(key[0], t) for t, task in enumerate(tasks) if key[1] in task.predecessors]

    def _task(self, key: Key) -> Task:
        return self.problem.cascades[key[0]].tasks[key[1]]

    def _circle(self) -> str:
        """The tasks that wait for each other, in words."""
        key = min(set(self.placed) - set(self.ran))
        path: list[Key] = []
        reasons: list[str] = []
        while key not in path:
            path.append(key)
            key, reason = self._blocker(key)
            reasons.append(reason)
        return ", ".join(reasons[path.index(key) :])

    def _blocker(self, key: Key) -> tuple[Key, str]:
        """A task that has to end before another can start, and why."""
        for before in self._inputs(key):
            if before not in self.ran:
                return before, f"{self._name(key)} needs the result of {self._name(before)}"
        for d in self.placed[key].devices:
            head = self.queues[d][0]
            if head != key:
                why = f"{self._name(key)} comes after {self._name(head)} on device {d}"
                return head, why
        raise AssertionError("an unblocked task must have started")

    def _name(self, key: Key) -> str:
        return f"cascade {key[0]} {self._task(key).name}"


def _span(task: SimulatedTask) -> Span:
    return Span(
        cascade=task.cascade,
        task=task.task,
        devices=task.devices,
        start_us=task.start_us,
        end_us=task.end_us,
        recompute=task.recompute,
    )


def _peak(tasks: list[SimulatedTask]) -> int:
    steps = [(t.start_us, len(t.devices)) for t in tasks]
    steps += [(t.end_us, -len(t.devices)) for t in tasks]
    peak = used = 0
    for _, change in sorted(steps):  # at one instant ends (negative) come before starts
        used += change
        peak = max(peak, used)
    return peak


def _idle(busy_us: int, total_us: int) -> float:
    return 1 - busy_us / total_us if total_us else 0.0
