"""Proof that no plan can exist: what binds, in words."""

from __future__ import annotations

from arachne_opt.pipeline.plan import ReplicaKind
from arachne_opt.solvers.pipeline.options import Atom
from arachne_opt.solvers.pipeline.workbench import Workbench

_GIB = 2**30
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
    start, stages = costs.row_count, 0
    while start > 0 and stages < space.in_stages:
        stages += 1
        reached = min(_first_row(bench, atom, start, stages) for atom in space.atoms)
        if reached >= start:
            return _memory_binds(bench, start, stages)
        start = reached
    if start > 0:
        devices = sum(space.devices(p) for p in range(len(space.places)))
        what = f"rows 0 to {start - 1} are left over when all {stages} stages that there may be"
        return (f"{what} are full (the cluster has {devices} devices)",)
    return ()


def _first_row(bench: Workbench, atom: Atom, end: int, in_flight: int) -> int:
    """First row of the longest stage of an atom that ends at a row."""
    ends = bench.costs.furthest_end(
        atom.kind,
        atom.microbatch,
        in_flight,
        shards=_shards(bench),
        recompute=atom.recompute,
    )
    first = end
    while first > 0 and ends[first - 1] >= end:
        first -= 1
    return first


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
