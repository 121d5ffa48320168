"""Problems with forbidden devices as problems of the other devices alone."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace

from arachne_opt.cascade.plan import CascadePlan, Placement
from arachne_opt.cascade.problem import CascadeProblem, Task
from arachne_opt.cluster import Cluster
from arachne_opt.errors import InputError


@dataclass(frozen=True, slots=True, kw_only=True)
class UsablePart:
    """The same problem without its forbidden devices.

    Args:
        problem: the cluster has the usable devices only, numbered anew.
        devices: their numbers in the whole problem.
    """

    problem: CascadeProblem
    devices: tuple[int, ...]

    def to_whole(self, plan: CascadePlan) -> CascadePlan:
        """A plan for this part as one for the whole problem."""
        cascades = range(len(self.problem.cascades))
        same = {c: c for c in cascades}
        return plan.relabel(plan.problem_name, same, dict(enumerate(self.devices)))

    def from_whole(self, plan: CascadePlan) -> CascadePlan | None:
        """A plan for the whole problem as one for this part, None where it uses other devices."""
        number = {d: i for i, d in enumerate(self.devices)}

        def moved(p: Placement) -> Placement:
            return replace(p, devices=tuple(number[d] for d in p.devices))

        if not all(d in number for p in plan.placements for d in p.devices):
            return None
        return replace(plan, placements=tuple(map(moved, plan.placements)))


def usable_part(problem: CascadeProblem) -> UsablePart:
    """A problem without its forbidden devices; every task must keep one of its devices."""
    forbidden = set(problem.forbidden_devices)
    kept = tuple(d for d in range(problem.cluster.device_count) if d not in forbidden)
    number = {d: i for i, d in enumerate(kept)}

    def moved(task: Task) -> Task:
        if task.allowed_devices is None:
            return task
        return replace(
            task, allowed_devices=tuple(number[d] for d in task.allowed_devices if d in number)
        )

    rows = [replace(c, tasks=tuple(map(moved, c.tasks))) for c in problem.cascades]
    cluster = without_devices(problem.cluster, forbidden)
    resident = [row for row in problem.resident_bytes if row[0] in cluster.device_types]
    part = replace(
        problem,
        cluster=cluster,
        resident_bytes=tuple(resident),
        cascades=tuple(rows),
        forbidden_devices=(),
    )
    return UsablePart(problem=part, devices=kept)


def without_devices(cluster: Cluster, forbidden: Collection[int]) -> Cluster:
    """A cluster without some devices; nodes that have none left are gone too."""
    gone = set(forbidden)
    if not gone:
        return cluster
    if gone.issuperset(range(cluster.device_count)):
        what = f"all {cluster.device_count} devices are forbidden"
        raise InputError(what, where=f"cluster {cluster.name}")
    nodes = []
    for n, node in enumerate(cluster.nodes):
        devices = zip(cluster.devices_of_node(n), node.nic_of_device, strict=True)
        nics = tuple(nic for d, nic in devices if d not in gone)
        if nics:
            nodes.append(replace(node, nic_of_device=nics))
    zones = {node.zone for node in nodes}
    links = tuple(z for z in cluster.zone_links if set(z.zones) <= zones)
    return replace(cluster, nodes=tuple(nodes), zone_links=links)
