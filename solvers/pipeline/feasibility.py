"""Proof that no plan can exist: what binds, in words."""

from __future__ import annotations

import math

import numpy as np

from arachne_opt.costs.pipeline.base import Ints
from arachne_opt.pipeline.plan import ReplicaKind
from arachne_opt.solvers.pipeline.options import Atom
from arachne_opt.solvers.pipeline.workbench import Workbench

_GIB = 2**30
_MOST_CELLS = 20_000
_MANY_SHARDS = 1 << 20  # under ZeRO-1 the share of a replica is never smaller


def binding_limits(bench: Workbench) -> tuple[str, ...]:
    """The limits that rule out every plan; empty where this proof does not succeed.

    Stages are laid from the last row on, each as long as any type holds it at any micro-batch with
    as many micro-batches in flight as there are stages from it on. A stage that is longer leaves
    less to the others, and fewer rows need less memory, so that if a row is left, one is left in
    every plan, whatever the devices, batches and times.
    """
    space, costs = bench.space, bench.costs
    if not space.atoms:
        return ("no kind of replica that the nodes can hold has step times",)
    if undivided := _batch_binds(bench):
        return (undivided,)
    start, stages = costs.row_count, 0
    while start > 0 and stages < space.in_stages:
        stages += 1
        reached = min(int(_first_rows(bench, a, stages)[start]) for a in space.atoms)
        if reached >= start:
            return _memory_binds(bench, start, stages)
        start = reached
    left = start or _rows_left(bench)
    if left > 0:
        devices = sum(space.devices(p) for p in range(len(space.places)))
        what = f"the memory of all {devices} devices holds rows {left} to {costs.row_count - 1}"
        last = left - 1
        return (f"{what} at best: rows 0 to {last} are left over" if last else f"{what} at best",)
    return ()


def _batch_binds(bench: Workbench) -> str:
    """Why no plan trains exactly the global batch; empty where this proof does not succeed.

    Samples of a plan are a sum of micro-batches, so that what divides all of these divides it.
    """
    samples = bench.problem.global_batch
    sizes = sorted({atom.microbatch for atom in bench.space.atoms})
    step = math.gcd(*sizes)
    if bench.problem.options.allow_excess or (samples % step == 0 and samples >= sizes[0]):
        return ""
    listed = ", ".join(map(str, sizes))
    what = f"a global batch of {samples} cannot be divided into micro-batches of {listed}"
    return f"{what}; --allow-excess may train a few samples more"


def _rows_left(bench: Workbench) -> int:
    """Rows that are left over when stages take devices as well: 0 where all rows find a place.

    best[d] = lowest first row of k stages on d devices, each with a single replica (or a single
    expert group); more replicas take more devices and hold no more rows.
    """
    space, rows = bench.space, bench.costs.row_count
    unit = np.ones(len(space.places), dtype=np.int64)
    while np.prod(-(-bench.place_limits // unit) + 1) > _MOST_CELLS:
        unit[np.argmax(bench.place_limits // unit)] *= 2
    cells = -(-bench.place_limits // unit)  # more than there are, so that the proof holds
    best = np.full(tuple((cells + 1).tolist()), rows)
    lowest = rows
    for in_flight in range(1, space.in_stages + 1):
        after = np.full_like(best, rows)
        for atom in space.atoms:
            place = space.place_of(atom.kind)
            need = atom.kind.tp * atom.kind.ep // int(unit[place])
            if need > cells[place]:
                continue
            target, source = [slice(None)] * best.ndim, [slice(None)] * best.ndim
            target[place] = slice(need, None)
            source[place] = slice(None, best.shape[place] - need)
            first = _first_rows(bench, atom, in_flight)[best[tuple(source)]]
            np.minimum(after[tuple(target)], first, out=after[tuple(target)])
        best = after
        lowest = min(lowest, int(best.min()))
        if lowest == 0:
            return 0
    return lowest


def _first_rows(bench: Workbench, atom: Atom, in_flight: int) -> Ints:
    """First row of the longest stage that ends at each cut; the cut itself where none fits."""
    ends = bench.costs.furthest_end(
        atom.kind,
        atom.microbatch,
        in_flight,
        shards=_shards(bench),
        recompute=atom.recompute,
    )
    cuts = np.arange(bench.costs.row_count + 1)
    found: Ints = np.minimum(np.searchsorted(np.maximum.accumulate(ends), cuts), cuts)
    return found


def _memory_binds(bench: Workbench, end: int, in_flight: int) -> tuple[str, ...]:
    """The row that fits nowhere, with what each type of card would need for it."""
    row = end - 1
    lines = []
    for place, (name, _) in enumerate(bench.space.places):
        needs = [
            (_need(bench, atom, row, in_flight), atom.kind, atom.microbatch)
            for atom in bench.space.atoms
            if bench.space.place_of(atom.kind) == place
        ]
        if needs:
            lines.append(_line(bench, name, min(needs), row, in_flight))
    rows = f"rows {end} to {bench.costs.row_count - 1} fill {in_flight - 1} stages at best"
    return (f"{rows}; row {row} then fits no card beside {in_flight} micro-batches", *lines)


def _line(
    bench: Workbench, name: str, least: tuple[float, ReplicaKind, int], row: int, in_flight: int
) -> str:
    need, kind, microbatch = least
    has = bench.problem.cluster.device_types[name].memory_bytes
    short = (need - has) / _GIB
    return (
        f"row {row} on {kind.label} with {in_flight} micro-batches of {microbatch} in flight needs "
        f"{need / _GIB:.2f} GiB, {name} has {has / _GIB:.2f} GiB: {short:.2f} GiB short"
    )


def _need(bench: Workbench, atom: Atom, row: int, in_flight: int) -> float:
    return bench.costs.memory_bytes(
        atom.kind,
        atom.microbatch,
        row,
        row + 1,
        in_flight,
        shards=_shards(bench),
        recompute=atom.recompute,
    )


def _shards(bench: Workbench) -> int:
    return _MANY_SHARDS if bench.problem.options.zero1 else 1
