"""Cascade plans for a cluster that has changed: a new search that begins with the old plan."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from arachne_opt.cascade.problem import CascadeProblem, Task
from arachne_opt.cascade.problem_json import problem_from_json
from arachne_opt.cluster import Cluster
from arachne_opt.errors import InputError
from arachne_opt.planning.service import Answer, PlanService, plan_of_record
from arachne_opt.records import PlanRecord
from arachne_opt.solvers.base import Limits, StopCheck


def replan_cascade(
    service: PlanService,
    record: PlanRecord,
    cluster: Cluster,
    limits: Limits,
    *,
    use_cache: bool = True,
    should_stop: StopCheck | None = None,
) -> Answer:
    """A plan of the same iteration on another cluster, begun with the stored plan.

    Raises:
        InputError: tasks have no candidates for the types of the new cluster.
        InfeasibleError: no plan fits the new cluster.
    """
    # Late: only a search needs it.
    from arachne_opt.solvers.cascade.warm_start import Planned, warm_start

    old = problem_from_json(record.problem)
    problem = cascades_on(old, cluster)
    start = warm_start(problem, Planned(old, plan_of_record(record)))
    return service.plan_cascade(
        problem, limits, use_cache=use_cache, start_plan=start, should_stop=should_stop
    )


def cascades_on(problem: CascadeProblem, cluster: Cluster) -> CascadeProblem:
    """The same cascades on another cluster; pins and drained devices go with their devices.

    Raises:
        InputError: a task has no candidates for any type of the cluster, or all devices that it
            is pinned to are gone.
    """
    from arachne_opt.solvers.cascade.warm_start import device_map

    known = set(problem.cluster.device_types)
    for _, _, task in problem.tasks():
        priced = {t for o in task.options for t in ([o.device_type] if o.device_type else known)}
        if not priced & set(cluster.device_types):
            what = f"task {task.name} is priced for {', '.join(sorted(priced))} only"
            hint = "arachne solve cascade with costs of the new devices"
            raise InputError(what, where=f"cluster {cluster.name}", hint=hint)
    to = device_map(problem.cluster, cluster)
    cascades = tuple(
        replace(c, tasks=tuple(_pinned(task, to, c.id) for task in c.tasks))
        for c in problem.cascades
    )
    drained = tuple(to[d] for d in problem.forbidden_devices if d in to)
    # All at once: the old pins do not hold for the new cluster.
    return replace(problem, cluster=cluster, cascades=cascades, forbidden_devices=drained)


def _pinned(task: Task, to: Mapping[int, int], cascade: str) -> Task:
    if task.allowed_devices is None:
        return task
    left = tuple(to[d] for d in task.allowed_devices if d in to)
    if not left:
        what = f"all devices that task {task.name} of cascade {cascade} is pinned to are gone"
        raise InputError(what)
    return replace(task, allowed_devices=left)
