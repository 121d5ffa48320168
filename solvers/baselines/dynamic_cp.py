"""Megatron's balanced dynamic context parallelism (NVIDIA/Megatron-LM, hybrid_cp_schedule.py).

Every sequence gets the smallest degree that holds it. Longest first, it goes to free devices, else
to the least loaded group of exactly its degree; a sequence that finds neither leaves its turn to
shorter ones. Such a wave ends when nothing more can be placed, or, once degrees have become
smaller, when the loads lie within 5 %. Then the last sequence of the busiest group is put off
while that evens the loads, and the narrowest groups are widened to the next degree while devices
stand idle. What is left over makes the next wave.

Loads are task times, in place of squared lengths over the degree. Waves end at a barrier there;
here the next one starts on every device as soon as it is free, which flatters the rule.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field

from arachne_opt.cascade.problem import CascadeProblem
from arachne_opt.solvers.base import Limits, Result
from arachne_opt.solvers.baselines.deal import exact_runs, finish, seat, times_us
from arachne_opt.solvers.cascade.digest import Digest
from arachne_opt.solvers.cascade.schedule import Run

_SLACK = 0.05


def dynamic_cp(problem: CascadeProblem, limits: Limits) -> Result:
    """The rule's plan; none on mixed device types, or where a cascade is wider than the devices."""
    begin_s, digest = time.perf_counter(), Digest(problem)
    return finish(digest, wave_runs(digest), limits, "dynamic-cp", begin_s)


@dataclass(slots=True)
class Group:
    """Devices that work off cascades at one degree."""

    degree: int
    cascades: list[int] = field(default_factory=list)
    load_us: int = 0


def wave_runs(digest: Digest) -> list[Run] | None:
    """Cascades wave by wave."""
    if len(digest.kind_names) > 1:
        return None
    times = [times_us(digest, c) for c in range(len(digest.cascades))]
    if not all(times):
        return None
    runs: list[Run] = []
    for wave in waves(times, digest.device_count):
        seats = seat(digest, [group.degree for group in wave])
        assert seats is not None  # a wave is never wider than the devices
        for group, devices in zip(wave, seats, strict=True):
            for cascade in group.cascades:
                runs += exact_runs(digest, cascade, devices) or ()
    return runs


def waves(times: list[dict[int, int]], devices: int) -> list[list[Group]]:
    """Groups with their cascades, wave by wave.

    Args:
        times: time of each cascade by degree, in µs.
        devices: their number; no smallest degree is larger.
    """
    work = [min(row) * row[min(row)] for row in times]
    left = sorted(range(len(times)), key=lambda c: -work[c])
    out = []
    while left:
        wave, left = _wave(left, times, devices)
        left = sorted([*left, *_put_off(wave, times, devices)], key=lambda c: -work[c])
        _widen(wave, times, devices)
        out.append(wave)
    return out


def _wave(
    order: list[int], times: list[dict[int, int]], devices: int
) -> tuple[list[Group], list[int]]:
    """Groups filled until nothing fits or the loads are even, and the cascades left over."""
    groups: list[Group] = []
    left = list(order)
    free, before = devices, None
    while left:
        placeable = (c for c in left if free >= min(times[c]) or _of_degree(groups, min(times[c])))
        cascade = next(placeable, None)
        if cascade is None:
            break
        degree = min(times[cascade])
        if free >= degree:
            groups.append(Group(degree))
            free -= degree
            group = groups[-1]
        else:
            group = min(_of_degree(groups, degree), key=lambda g: g.load_us)
        group.cascades.append(cascade)
        group.load_us += times[cascade][degree]
        left.remove(cascade)
        narrower = before is not None and degree < before
        before = max(degree, before or 0)
        if narrower and not free and _slack_us(groups) <= _SLACK * _most_us(groups):
            break
    return groups, left


def _put_off(groups: list[Group], times: list[dict[int, int]], devices: int) -> list[int]:
    """Takes cascades off the busiest group while that evens the loads; returns them."""
    off: list[int] = []
    while sum(g.degree for g in groups) == devices:
        slack_us = _slack_us(groups)
        busiest = max(groups, key=lambda g: g.load_us)
        if slack_us <= _SLACK * busiest.load_us or len(busiest.cascades) < 2:
            break
        cascade = busiest.cascades[-1]
        busiest.load_us -= times[cascade][busiest.degree]
        if _slack_us(groups) >= slack_us:
            busiest.load_us += times[cascade][busiest.degree]
            break
        off.append(busiest.cascades.pop())
    return off


def _widen(groups: list[Group], times: list[dict[int, int]], devices: int) -> None:
    """Gives idle devices to the narrowest groups, to the next degree that all of theirs have."""
    free = devices - sum(group.degree for group in groups)
    while True:
        wider = {
            g: min(common)
            for g, group in enumerate(groups)
            if (common := _wider(group, times)) and min(common) - group.degree <= free
        }
        if not wider:
            return
        g = min(wider, key=lambda g: groups[g].degree)
        free -= wider[g] - groups[g].degree
        groups[g].degree = wider[g]


def _wider(group: Group, times: list[dict[int, int]]) -> set[int]:
    common = set.intersection(*(set(times[c]) for c in group.cascades))
    return {degree for degree in common if degree > group.degree}


def _of_degree(groups: list[Group], degree: int) -> list[Group]:
    return [group for group in groups if group.degree == degree]


def _slack_us(groups: list[Group]) -> int:
    return _most_us(groups) - min(group.load_us for group in groups)


def _most_us(groups: list[Group]) -> int:
    return max(group.load_us for group in groups)
