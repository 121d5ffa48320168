"""How much later each task of a cascade plan could end without moving the end of the plan."""

from __future__ import annotations

from arachne_opt.cascade.facts import Facts
from arachne_opt.cascade.plan import CascadePlan, Placement
from arachne_opt.cascade.problem import CascadeProblem

Key = tuple[int, int]


def slack_us(problem: CascadeProblem, plan: CascadePlan) -> dict[Key, int]:
    """Slack of every task, with the order of tasks on each device as it is; 0 is critical.

    latest end(t) = min(makespan, latest start of the next task on each device of t, latest start
    of each task that takes its result - hand-off); slack = latest end - end.
    """
    facts = Facts(problem)
    placed = {(p.cascade, p.task): p for p in plan.placements}
    followers = _followers(plan)
    latest_start: dict[Key, int] = {}
    found: dict[Key, int] = {}
    for p in reversed(plan.placements):  # what follows a task starts later
        key = p.cascade, p.task
        limits = [plan.makespan_us, *(latest_start[f] for f in followers[key])]
        for consumer in _consumers(problem, key):
            after = placed[consumer]
            size = problem.cascades[key[0]].tasks[consumer[1]].input_bytes
            moved_us = facts.handoff_us(size, p.devices, after.devices)
            limits.append(latest_start[consumer] - moved_us)
        latest_end = min(limits)
        latest_start[key] = latest_end - (p.end_us - p.start_us)
        found[key] = max(0, latest_end - p.end_us)
    return found


def critical_path(
    problem: CascadeProblem, plan: CascadePlan, slack: dict[Key, int]
) -> tuple[Placement, ...]:
    """Tasks that hold up each other and the end of the plan, in the order of their starts.

    Goes back from the (first) task that ends last: each step is the critical task whose end, or
    whose hand-off, the next one waited for; the latest one where there are several.
    """
    critical = [p for p in plan.placements if slack[p.cascade, p.task] == 0]
    if not critical:
        return ()
    at = max(critical, key=lambda p: p.end_us)
    path = [at]
    while before := [p for p in critical if p.end_us <= at.start_us and _meet(problem, p, at)]:
        at = max(before, key=lambda p: p.end_us)
        path.append(at)
    return tuple(reversed(path))


def _meet(problem: CascadeProblem, before: Placement, after: Placement) -> bool:
    """Whether two tasks share a device or a result."""
    feeds = before.cascade == after.cascade and (
        before.task in problem.cascades[after.cascade].tasks[after.task].predecessors
    )
    return feeds or bool(set(before.devices) & set(after.devices))


def _followers(plan: CascadePlan) -> dict[Key, set[Key]]:
    """The tasks that come next on some device of each task."""
    followers: dict[Key, set[Key]] = {(p.cascade, p.task): set() for p in plan.placements}
    last: dict[int, Key] = {}
    for p in plan.placements:
        for d in p.devices:
            if d in last:
                followers[last[d]].add((p.cascade, p.task))
            last[d] = p.cascade, p.task
    return followers


def _consumers(problem: CascadeProblem, key: Key) -> list[Key]:
    tasks = problem.cascades[key[0]].tasks
    return [(key[0], t) for t, task in enumerate(tasks) if key[1] in task.predecessors]
