"""Nodes and cascades dealt out to pods, evenly."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence

from arachne_opt.solvers.cascade.digest import Digest, FlatNode
from arachne_opt.solvers.cascade.pod_solver import PodSolver
from arachne_opt.solvers.cascade.pod_walk import Site

# Devices that a pod should have, on up to so many devices and on more: a few large pods have more
# ways to be full, many small ones more ways to trade.
_POD_DEVICES, _FEW_DEVICES, _POD_OF_MANY = 32, 160, 24
# How often the widest needed group of a pod and its largest cascade, as device time, must fit into
# it: one alone leaves gaps that nothing fills.
_WIDEST_TIMES = _LARGEST_TIMES = 2
# Cascades should be able to end by this multiple of the target where they are; those that need wide
# pods for that should fill at most this share of them.
_DEADLINE, _WIDE_SHARE = 1.05, 0.75
# Swaps tried per cascade to level the pods.
_SWAPS = 200


def deal(digest: Digest, solver: PodSolver, draw: random.Random) -> tuple[Site, ...]:
    """Nodes and cascades of every pod; none where a cascade fits no pod.

    Cascades go by falling device time to the least loaded pod; then swaps level the loads.
    """
    groups = _node_groups(digest, solver)
    limit_us = round(_DEADLINE * solver.target_us)
    room, area = [solver.room(group) for group in groups], solver.area
    load = [0.0] * len(groups)
    rows: list[list[int]] = [[] for _ in groups]
    for c in sorted(range(len(area)), key=lambda c: (-area[c], c)):
        able = [g for g, nodes in enumerate(groups) if solver.can_run(nodes, c, limit_us)]
        able = able or [g for g, nodes in enumerate(groups) if solver.can_run(nodes, c)]
        if not able:
            return ()
        g = min(able, key=lambda g: (load[g], g))
        rows[g].append(c)
        load[g] += area[c] / room[g]
    level(solver, draw, groups, rows, _SWAPS * len(area))
    return tuple(solver.site(group, row) for group, row in zip(groups, rows, strict=True) if row)


def level(
    solver: PodSolver,
    draw: random.Random,
    groups: Sequence[Sequence[int]],
    rows: list[list[int]],
    swaps: int,
) -> None:
    """Swaps random cascades of two groups of nodes as long as that levels their loads.

    A swap is kept where it lowers the sum over the groups of room times the square of load.

    Args:
        solver: knows room and areas.
        draw: where the swaps come from.
        groups: nodes of each group.
        rows: cascades of each group; changed.
        swaps: to be tried.
    """
    area, can_run = solver.area, solver.can_run
    limit_us = round(_DEADLINE * solver.target_us)
    room = [solver.room(group) for group in groups]
    load = [sum(area[c] for c in row) / r for row, r in zip(rows, room, strict=True)]
    for _ in range(swaps):
        a, b = draw.randrange(len(rows)), draw.randrange(len(rows))
        if a == b or not rows[a] or not rows[b]:
            continue
        i, k = draw.randrange(len(rows[a])), draw.randrange(len(rows[b]))
        c, d = rows[a][i], rows[b][k]
        more = area[d] - area[c]
        more_a, more_b = more / room[a], -more / room[b]
        change = more * (2 * load[a] + more_a - 2 * load[b] - more_b)
        if change >= 0:
            continue
        if can_run(groups[a], d, limit_us) and can_run(groups[b], c, limit_us):
            rows[a][i], rows[b][k] = d, c
            load[a] += more_a
            load[b] += more_b


def _node_groups(digest: Digest, solver: PodSolver) -> list[tuple[int, ...]]:
    """Nodes of the pods: wide ones for the cascades that need them, the others small."""
    kinds, limit_us = len(digest.kind_names), round(_DEADLINE * solver.target_us)
    least = max(min(m.degree for m in task.modes) for task in digest.tasks)
    largest = max(solver.area) / sum(solver.area) * digest.device_count
    usual = _POD_DEVICES if digest.device_count <= _FEW_DEVICES else _POD_OF_MANY
    small = max(usual, _WIDEST_TIMES * least, round(_LARGEST_TIMES * largest))
    widths = [kinds * solver.width(c, limit_us) for c in range(len(digest.cascades))]
    wide = max(widths)
    nodes = sorted(digest.nodes, key=lambda n: (n.kind, -n.size, n.index))
    if wide <= small:
        return _even_groups(nodes, small)
    area = sum(solver.area[c] for c, width in enumerate(widths) if width > small)
    share = area / sum(solver.area) / _WIDE_SHARE
    pods = math.ceil(share * digest.device_count / wide)
    mean = digest.device_count / len(nodes)
    most = min(len(nodes), pods * math.ceil(wide / mean))
    # Every so many-th node, so that both kinds of pods have about the same mix.
    apart = [nodes[k * len(nodes) // most] for k in range(most)]
    rest = [node for node in nodes if node not in apart]
    return _even_groups(apart, wide) + (_even_groups(rest, small) if rest else [])


def _even_groups(nodes: Sequence[FlatNode], devices: int) -> list[tuple[int, ...]]:
    """Nodes of every type dealt in turn, so that all groups have about the same mix."""
    count = max(1, sum(node.size for node in nodes) // devices)
    groups: list[list[int]] = [[] for _ in range(count)]
    for at, node in enumerate(nodes):
        groups[at % count].append(node.index)
    return [tuple(sorted(group)) for group in groups]
