"""Faults planted in random legal plans are caught, each under its own code.

A planter takes a problem, a legal plan and a random source, and returns both with one fault; it
raises Unfit where the plan cannot carry it.
"""

import random
from contextlib import suppress
from dataclasses import replace

import pytest

from arachne_opt.cascade.check import Fault, check_plan
from arachne_opt.cascade.plan import CascadePlan, Placement
from arachne_opt.cascade.problem import CascadeProblem
from tests.strategies import GIB, random_problem, seeded_plan

Case = tuple[CascadeProblem, CascadePlan]


class Unfit(Exception):
    """The plan has no place for the fault."""


def need(place: object) -> None:
    if not place:
        raise Unfit


def swap(plan: CascadePlan, index: int, **changes: object) -> CascadePlan:
    rows = list(plan.placements)
    rows[index] = replace(rows[index], **changes)
    return replace(plan, placements=tuple(rows))


def drop_a_task(problem, plan, rng):
    return problem, replace(plan, placements=plan.placements[1:])


def run_a_task_twice(problem, plan, rng):
    p = rng.choice(plan.placements)
    later = replace(p, start_us=plan.makespan_us, end_us=plan.makespan_us + p.end_us)
    return problem, replace(plan, placements=(*plan.placements, later))


def name_no_cascade(problem, plan, rng):
    number = rng.choice((-1, len(problem.cascades)))
    return problem, swap(plan, 0, cascade=number)


def name_no_task(problem, plan, rng):
    tasks = problem.cascades[plan.placements[0].cascade].tasks
    return problem, swap(plan, 0, task=rng.choice((-1, len(tasks))))


def take_no_device(problem, plan, rng):
    return problem, swap(plan, rng.randrange(len(plan.placements)), devices=())


def repeat_a_device(problem, plan, rng):
    i = rng.randrange(len(plan.placements))
    devices = plan.placements[i].devices
    return problem, swap(plan, i, devices=(*devices, rng.choice(devices)))


def leave_the_cluster(problem, plan, rng):
    i = rng.randrange(len(plan.placements))
    outside = rng.choice((-1, problem.cluster.device_count))
    return problem, swap(plan, i, devices=(*plan.placements[i].devices[1:], outside))


def forbid_a_used_device(problem, plan, rng):
    device = rng.choice(rng.choice(plan.placements).devices)
    need(problem.cluster.device_count - len(problem.forbidden_devices) > 1)
    barred = (*problem.forbidden_devices, device)
    return replace(problem, forbidden_devices=barred), plan


def pin_a_task_elsewhere(problem, plan, rng):
    p = rng.choice(plan.placements)
    others = [d for d in range(problem.cluster.device_count) if d not in p.devices]
    need(others)
    pin = tuple(sorted({*others, *p.devices[1:]}))
    cascades = list(problem.cascades)
    tasks = list(cascades[p.cascade].tasks)
    tasks[p.task] = replace(tasks[p.task], allowed_devices=pin)
    cascades[p.cascade] = replace(cascades[p.cascade], tasks=tuple(tasks))
    return replace(problem, cascades=tuple(cascades)), plan


def mix_types(problem, plan, rng):
    need(len(problem.cluster.device_types) > 1)
    i = rng.randrange(len(plan.placements))
    devices = plan.placements[i].devices
    home = problem.cluster.devices[devices[0]].device_type
    others = [d.index for d in problem.cluster.devices if d.device_type != home]
    return problem, swap(plan, i, devices=(*devices, rng.choice(others)))


def take_another_degree(problem, plan, rng):
    i = rng.randrange(len(plan.placements))
    p = plan.placements[i]
    task = problem.cascades[p.cascade].tasks[p.task]
    kind = problem.cluster.devices[p.devices[0]].device_type
    same = [d.index for d in problem.cluster.devices if d.device_type == kind]
    wrong = [
        k
        for k in range(1, len(same) + 1)
        if task.option(k, kind.name, recompute=p.recompute) is None
    ]
    need(wrong)
    return problem, swap(plan, i, devices=tuple(same[: rng.choice(wrong)]))


def need_more_memory(problem, plan, rng):
    p = rng.choice(plan.placements)
    cascade = problem.cascades[p.cascade]
    task = cascade.tasks[p.task]
    hungry = tuple(replace(o, memory_bytes=80 * GIB + 1) for o in task.options)
    tasks = [replace(t, options=hungry) if t is task else t for t in cascade.tasks]
    cascades = list(problem.cascades)
    cascades[p.cascade] = replace(cascade, tasks=tuple(tasks))
    return replace(problem, cascades=tuple(cascades)), plan


def park_more_than_there_is_room_for(problem, plan, rng):
    """A result grows beyond what its producer's devices have left while it waits."""
    placed = {(p.cascade, p.task): p for p in plan.placements}
    waits = [
        (p, placed[p.cascade, t])
        for p in plan.placements
        for t in predecessors(problem, p)
        if placed[p.cascade, t].end_us < p.start_us
    ]
    need(waits)
    p, before = rng.choice(waits)
    most = max(kind.memory_bytes for kind in problem.cluster.device_types.values())
    cascades = list(problem.cascades)
    tasks = list(cascades[p.cascade].tasks)
    tasks[p.task] = replace(tasks[p.task], input_bytes=before.degree * most + 1)
    cascades[p.cascade] = replace(cascades[p.cascade], tasks=tuple(tasks))
    resident = tuple((name, 1) for name in problem.cluster.device_types)
    return replace(problem, cascades=tuple(cascades), resident_bytes=resident), plan


def end_a_microsecond_early(problem, plan, rng):
    i = rng.randrange(len(plan.placements))
    p = plan.placements[i]
    need(p.end_us - p.start_us > 1)
    return problem, swap(plan, i, end_us=p.end_us - 1)


def forget_the_penalty(problem, plan, rng):
    cluster = problem.cluster
    wide = [i for i, p in enumerate(plan.placements) if cluster.penalty_ppm(p.devices) > 1_000_000]
    need(wide)
    i = rng.choice(wide)
    p = plan.placements[i]
    kind = cluster.devices[p.devices[0]].device_type.name
    option = problem.cascades[p.cascade].tasks[p.task].option(p.degree, kind, recompute=p.recompute)
    return problem, swap(plan, i, end_us=p.start_us + option.duration_us)


def start_before_zero(problem, plan, rng):
    i = rng.randrange(len(plan.placements))
    return problem, swap(plan, i, start_us=-1)


def end_before_the_start(problem, plan, rng):
    i = rng.randrange(len(plan.placements))
    p = plan.placements[i]
    return problem, swap(plan, i, start_us=p.end_us, end_us=p.start_us)


def start_before_the_input_is_there(problem, plan, rng):
    """A microsecond before the result of a predecessor has arrived."""
    placed = {(p.cascade, p.task): p for p in plan.placements}
    fed = [i for i, p in enumerate(plan.placements) if predecessors(problem, p)]
    need(fed)
    i = rng.choice(fed)
    p = plan.placements[i]
    size_bytes = problem.cascades[p.cascade].tasks[p.task].input_bytes
    before = placed[p.cascade, rng.choice(predecessors(problem, p))]
    arrival_us = before.end_us + problem.cluster.handoff_us(size_bytes, before.devices, p.devices)
    return problem, swap(plan, i, start_us=arrival_us - 1, end_us=p.end_us + 1)


def forget_the_hand_off(problem, plan, rng):
    placed = {(p.cascade, p.task): p for p in plan.placements}
    for i, p in enumerate(plan.placements):
        size_bytes = problem.cascades[p.cascade].tasks[p.task].input_bytes
        for t in predecessors(problem, p):
            before = placed[p.cascade, t]
            if problem.cluster.handoff_us(size_bytes, before.devices, p.devices):
                return problem, swap(plan, i, start_us=before.end_us)
    raise Unfit


def use_a_busy_device(problem, plan, rng):
    """A task starts a microsecond before the one before it on a device has ended."""
    pairs = [
        (i, first)
        for first in plan.placements
        for i, second in enumerate(plan.placements)
        if set(first.devices) & set(second.devices) and first.end_us <= second.start_us
    ]
    need(pairs)
    i, first = rng.choice(pairs)
    return problem, swap(plan, i, start_us=first.end_us - 1)


def answer_another_problem(problem, plan, rng):
    return problem, replace(plan, problem_name="another")


def predecessors(problem: CascadeProblem, p: Placement) -> tuple[int, ...]:
    return problem.cascades[p.cascade].tasks[p.task].predecessors


PLANTED = {
    drop_a_task: Fault.MISSING_TASK,
    run_a_task_twice: Fault.DUPLICATE_TASK,
    name_no_cascade: Fault.UNKNOWN_CASCADE,
    name_no_task: Fault.UNKNOWN_TASK,
    take_no_device: Fault.NO_DEVICES,
    repeat_a_device: Fault.REPEATED_DEVICE,
    leave_the_cluster: Fault.DEVICE_OUT_OF_RANGE,
    forbid_a_used_device: Fault.FORBIDDEN_DEVICE,
    pin_a_task_elsewhere: Fault.OUTSIDE_PIN,
    mix_types: Fault.MIXED_TYPES,
    take_another_degree: Fault.NO_SUCH_OPTION,
    need_more_memory: Fault.MEMORY,
    park_more_than_there_is_room_for: Fault.MEMORY_OVER_TIME,
    end_a_microsecond_early: Fault.TOO_SHORT,
    forget_the_penalty: Fault.TOO_SHORT,
    start_before_zero: Fault.NEGATIVE_START,
    end_before_the_start: Fault.END_BEFORE_START,
    start_before_the_input_is_there: Fault.PRECEDENCE,
    forget_the_hand_off: Fault.PRECEDENCE,
    use_a_busy_device: Fault.OVERLAP,
    answer_another_problem: Fault.WRONG_PROBLEM,
}


def cases(plant, wanted: int = 25) -> list[Case]:
    """Random cases with a fault, from as many seeds as it takes to find them."""
    found: list[Case] = []
    for seed in range(40 * wanted):
        rng = random.Random(seed)
        problem = random_problem(seed)
        with suppress(Unfit):
            found.append(plant(problem, seeded_plan(problem, seed), rng))
        if len(found) == wanted:
            return found
    raise AssertionError(f"too few random plans can carry the fault {plant.__name__}")


@pytest.mark.parametrize("plant", PLANTED, ids=lambda plant: plant.__name__)
def test_a_planted_fault_is_caught(plant):
    for problem, plan in cases(plant):
        codes = [violation.code for violation in check_plan(problem, plan)]
        assert PLANTED[plant] in codes, plan


def test_every_kind_of_violation_is_planted():
    assert set(PLANTED.values()) == set(Fault)
