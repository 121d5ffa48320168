"""Which node each tensor- or expert-parallel group of a plan stands on."""

from __future__ import annotations

from dataclasses import dataclass, replace

from arachne_opt.errors import InfeasibleError
from arachne_opt.pipeline.packing import pack
from arachne_opt.pipeline.plan import PipelinePlan, Replica, ReplicaKind
from arachne_opt.pipeline.problem import PipelineProblem


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """Replicas that must share one node: one, or an expert-parallel group inside a node.

    Args:
        members: numbers of the replicas in the stage.
    """

    pipeline: int
    stage: int
    members: tuple[int, ...]
    kind: ReplicaKind
    node: int | None

    @property
    def devices(self) -> int:
        """Devices of all members."""
        return self.kind.tp * len(self.members)


def node_groups(plan: PipelinePlan) -> tuple[Group, ...]:
    """All groups of a plan; an expert group takes the named node of any member."""
    groups = []
    for p, i, stage in plan.stages():
        at = 0
        while at < len(stage.replicas):
            kind = stage.replicas[at].kind
            width = kind.ep if kind.ep_local else 1
            members = tuple(range(at, min(at + width, len(stage.replicas))))
            named = [stage.replicas[m].node for m in members]
            node = next((n for n in named if n is not None), None)
            groups.append(Group(pipeline=p, stage=i, members=members, kind=kind, node=node))
            at += width
    return tuple(groups)


def place(problem: PipelineProblem, plan: PipelinePlan) -> PipelinePlan:
    """The plan with a node for every replica; named nodes stay.

    Raises:
        InfeasibleError: the groups do not fit into the nodes.
    """
    groups = node_groups(plan)
    node_of: dict[Group, int] = {g: g.node for g in groups if g.node is not None}
    for kind, zone in sorted({(g.kind.device_type, g.kind.zone) for g in groups}):
        mine = [g for g in groups if (g.kind.device_type, g.kind.zone) == (kind, zone)]
        free = free_devices(problem, kind, zone, mine)
        open_groups = [g for g in mine if g.node is None]
        numbers = sorted(free)
        found = pack([g.devices for g in open_groups], [free[n] for n in numbers])
        if found is None:
            sizes = "+".join(str(g.devices) for g in open_groups)
            what = f"groups of {sizes} devices do not fit into the nodes of {kind} in {zone}"
            raise InfeasibleError(what, where=f"plan for {plan.model}")
        node_of |= {g: numbers[n] for g, n in zip(open_groups, found, strict=True)}
    return _with_nodes(plan, node_of)


def free_devices(
    problem: PipelineProblem, kind: str, zone: str, groups: list[Group]
) -> dict[int, int]:
    """Devices left on each node of a type in a zone after the groups that name their node."""
    nodes = problem.nodes_of_type.get(kind, ())
    free = {n: node.device_count for n, node in enumerate(nodes) if node.zone == zone}
    for g in groups:
        if g.node in free:
            free[g.node] -= g.devices
    return free


def _with_nodes(plan: PipelinePlan, node_of: dict[Group, int]) -> PipelinePlan:
    number = {(g.pipeline, g.stage, m): node for g, node in node_of.items() for m in g.members}
    pipelines = []
    for p, pipeline in enumerate(plan.pipelines):
        stages = tuple(
            replace(
                stage,
                replicas=tuple(
                    Replica(r.kind, number[p, i, m]) for m, r in enumerate(stage.replicas)
                ),
            )
            for i, stage in enumerate(pipeline.stages)
        )
        pipelines.append(replace(pipeline, stages=stages))
    return replace(plan, pipelines=tuple(pipelines))
