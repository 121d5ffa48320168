"""Devices for groups over several nodes such that all their NIC groups align, by CP-SAT.

Given how many devices of each node a task takes, and when, this chooses the NIC groups. Greedy
choices often leave different NIC groups free on different nodes; the choice for all tasks at once
finds a perfect fit where there is one.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from arachne_opt.solvers.cascade.cpsat.variables import load_cp_model
from arachne_opt.solvers.cascade.digest import Digest, Where
from arachne_opt.solvers.cascade.schedule import Run

if TYPE_CHECKING:
    from ortools.sat.python import cp_model

# Deterministic seconds for one fit: it is found or refuted in a few milliseconds, or not at all.
_WORK = 0.1


class Timed(NamedTuple):
    """A task with the devices that it takes of each node, and when."""

    task: int
    where: Where
    start_us: int
    end_us: int


_Key = tuple[int, int, int]  # task, node, NIC group


def aligned_runs(digest: Digest, items: Sequence[Timed]) -> list[Run] | None:
    """Runs in the order of the items with all groups aligned, None where no such fit is found."""
    from ortools.sat.python import cp_model

    model = load_cp_model()()
    counts = _counts(model, digest, items)
    for item in items:
        _add_equal_nics(model, digest, item, counts)
    _add_capacity(model, digest, items, counts)
    solver = cp_model.CpSolver()
    solver.parameters.num_workers = 1
    solver.parameters.catch_sigint_signal = False
    solver.parameters.linearization_level = 0
    solver.parameters.max_deterministic_time = _WORK
    if solver.solve(model) not in (cp_model.OPTIMAL, cp_model.FEASIBLE):
        return None
    return _devices(digest, items, {key: solver.value(count) for key, count in counts.items()})


def _counts(
    model: cp_model.CpModel, digest: Digest, items: Sequence[Timed]
) -> dict[_Key, cp_model.IntVar]:
    """Devices per task, node and NIC group; their sum over NIC groups is the task's share."""
    counts: dict[_Key, cp_model.IntVar] = {}
    for task, where, _, _ in items:
        for node, share in where:
            row = []
            for nic, devices in digest.nodes[node].by_nic:
                count = model.new_int_var(0, min(share, len(devices)), "")
                counts[task, node, nic] = count
                row.append(count)
            model.add(sum(row) == share)
    return counts


def _add_equal_nics(
    model: cp_model.CpModel, digest: Digest, item: Timed, counts: dict[_Key, cp_model.IntVar]
) -> None:
    """A NIC group is used on all nodes of a group or on none: used <= count <= size * used."""
    if len(item.where) < 2:
        return
    used: dict[int, cp_model.IntVar] = {}
    for node, _ in item.where:
        for nic, devices in digest.nodes[node].by_nic:
            flag = used.setdefault(nic, model.new_bool_var(""))
            model.add(counts[item.task, node, nic] >= flag)
            model.add(counts[item.task, node, nic] <= len(devices) * flag)
    for nic, flag in used.items():
        if any(nic not in dict(digest.nodes[node].by_nic) for node, _ in item.where):
            model.add(flag == 0)


def _add_capacity(
    model: cp_model.CpModel,
    digest: Digest,
    items: Sequence[Timed],
    counts: dict[_Key, cp_model.IntVar],
) -> None:
    """At each start the tasks that run take at most the devices of each NIC group."""
    for at in {item.start_us for item in items}:
        running = [item for item in items if item.start_us <= at < item.end_us]
        for node in digest.nodes:
            for nic, devices in node.by_nic:
                keys = [(item.task, node.index, nic) for item in running]
                rows = [counts[key] for key in keys if key in counts]
                if len(rows) > 1:
                    model.add(sum(rows) <= len(devices))


def _devices(digest: Digest, items: Sequence[Timed], counts: dict[_Key, int]) -> list[Run]:
    """Any free devices of the chosen NIC groups: the counts never exceed what is there."""
    free = [0] * digest.device_count
    chosen: dict[int, tuple[int, ...]] = {}
    for task, where, start, end in sorted(items, key=lambda item: (item.start_us, item.task)):
        group: list[int] = []
        for node, _ in where:
            for nic, devices in digest.nodes[node].by_nic:
                ready = [d for d in devices if free[d] <= start]
                group += ready[: counts[task, node, nic]]
        chosen[task] = tuple(sorted(group))
        for d in group:
            free[d] = end
    return [(item.task, chosen[item.task]) for item in items]
