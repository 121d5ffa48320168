"""Constraint families of the CP-SAT models, one function each."""

from __future__ import annotations

from itertools import pairwise

from arachne_opt.solvers.cascade.cpsat.variables import Variables


def add_one_choice(v: Variables) -> None:
    """Each task runs in exactly one way: sum over its choices of x = 1."""
    for literals in v.literals:
        v.model.add_exactly_one(literals)


def add_precedence(v: Variables) -> None:
    """A task starts after its predecessors end: start(i) >= end(p).

    With hand-offs, start(i) >= end(p) + lag(m, n) where p runs in mode m and i in mode n; lag is
    the least that any two groups of these modes allow.
    """
    for task in v.digest.tasks:
        for p in task.predecessors:
            v.model.add(v.starts[task.index] >= v.ends[p])
            if task.input_bytes:
                _add_lags(v, p, task.index)


def _add_lags(v: Variables, p: int, i: int) -> None:
    for before, x in zip(v.choices[p], v.literals[p], strict=True):
        for choice, y in zip(v.choices[i], v.literals[i], strict=True):
            lag = v.digest.least_handoff_us(i, before.mode, choice.mode) // v.unit_us
            if lag:
                v.model.add(v.starts[i] >= v.ends[p] + lag).only_enforce_if(x, y)


def add_type_capacity(v: Variables) -> None:
    """At any time the groups on a device type have at most its devices: sum of degrees <= N."""
    for kind, count in enumerate(v.digest.count_of_kind):
        rows = [
            (interval, choice.mode.degree)
            for choices, intervals in zip(v.choices, v.intervals, strict=True)
            for choice, interval in zip(choices, intervals, strict=True)
            if choice.mode.kind == kind
        ]
        if rows:
            v.model.add_cumulative([i for i, _ in rows], [k for _, k in rows], count)


def add_pin_capacity(v: Variables) -> None:
    """At any time the tasks pinned inside a set of devices use at most these: sum <= |set|."""
    pins = {t.allowed for t in v.digest.tasks if t.allowed is not None}
    for devices in sorted(pins, key=sorted):
        rows = [
            (interval, choice.mode.degree)
            for task, choices, intervals in zip(v.digest.tasks, v.choices, v.intervals, strict=True)
            for choice, interval in zip(choices, intervals, strict=True)
            if task.allowed is not None and task.allowed <= devices
        ]
        v.model.add_cumulative([i for i, _ in rows], [k for _, k in rows], len(devices))


def add_node_capacity(v: Variables) -> None:
    """At any time the groups on a node have at most its devices: sum of shares <= size."""
    for node in v.digest.nodes:
        rows = [
            (interval, share)
            for choices, intervals in zip(v.choices, v.intervals, strict=True)
            for choice, interval in zip(choices, intervals, strict=True)
            for n, share in choice.where
            if n == node.index
        ]
        if rows:
            v.model.add_cumulative([i for i, _ in rows], [k for _, k in rows], node.size)


def add_area_cut(v: Variables) -> None:
    """All device time fits: sum of degree * size * x <= N * makespan, for each device type."""
    for kind, count in enumerate(v.digest.count_of_kind):
        area = [
            choice.mode.degree * choice.size * literal
            for choices, literals in zip(v.choices, v.literals, strict=True)
            for choice, literal in zip(choices, literals, strict=True)
            if choice.mode.kind == kind
        ]
        if area:
            v.model.add(sum(area) <= count * v.makespan)


def add_chain_cut(v: Variables) -> None:
    """Tasks that follow each other fit: sum of sizes * x over a path of a cascade <= makespan."""
    for row in v.digest.cascades:
        path, at = [row[-1]], row[-1]
        while v.digest.tasks[at].predecessors:
            at = v.digest.tasks[at].predecessors[-1]
            path.append(at)
        total = [
            choice.size * literal
            for i in path
            for choice, literal in zip(v.choices[i], v.literals[i], strict=True)
        ]
        v.model.add(sum(total) <= v.makespan)


def add_equal_cascade_order(v: Variables) -> None:
    """Of equal cascades the lower number starts its last task first: start(a) <= start(b)."""
    rows: dict[int, list[int]] = {}
    for shape, row in zip(v.digest.shape_of_cascade, v.digest.cascades, strict=True):
        rows.setdefault(shape, []).append(row[-1])
    for equals in rows.values():
        for a, b in pairwise(equals):
            v.model.add(v.starts[a] <= v.starts[b])
