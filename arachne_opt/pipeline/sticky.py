"""Nodes for a plan such that its replicas find as much as possible of what nodes hold already."""

from __future__ import annotations

from collections import Counter
from contextlib import suppress
from dataclasses import replace

from arachne_opt.errors import InfeasibleError
from arachne_opt.pipeline.cluster_change import NodeKey
from arachne_opt.pipeline.holdings import Holdings, Shard
from arachne_opt.pipeline.placement import Group, node_groups, place
from arachne_opt.pipeline.plan import PipelinePlan, Replica
from arachne_opt.pipeline.problem import PipelineProblem
from arachne_opt.pipeline.relayout import Relayout, price_relayout


def place_near(
    problem: PipelineProblem, plan: PipelinePlan, held: Holdings
) -> tuple[PipelinePlan, Relayout]:
    """The plan on nodes that hold much of it, and what still has to move.

    Args:
        problem: the new problem.
        plan: a plan that fits it; its own choice of nodes, if any, is one of those compared.
        held: what the nodes hold.
    """
    open_ = _with_nodes(plan, {})
    tried = [plan if _placed(plan) else place(problem, open_)]
    # What is held may get in the way of the packing: then nodes are chosen without it.
    with suppress(InfeasibleError):
        tried.append(place(problem, _with_nodes(open_, _Sticky(problem, open_, held).nodes())))
    priced = [(one, price_relayout(problem, held, one)) for one in tried]
    return min(priced, key=lambda entry: entry[1].seconds)


class _Sticky:
    """Greedy: the widest groups first, each on the node that has most of its rows."""

    def __init__(self, problem: PipelineProblem, plan: PipelinePlan, held: Holdings) -> None:
        self._problem = problem
        self._plan = plan
        self._left = {key: Counter(shards) for key, shards in held.by_node.items()}
        self._free = {
            (kind, n): node.device_count
            for kind, nodes in problem.nodes_of_type.items()
            for n, node in enumerate(nodes)
        }

    def nodes(self) -> dict[Group, int]:
        """Nodes of the groups that hold something; the others are left open."""
        found: dict[Group, int] = {}
        groups = node_groups(self._plan)
        for width in sorted({g.devices for g in groups}, reverse=True):
            for group in (g for g in groups if g.devices == width):
                key = self._best(group)
                if key is not None:
                    self._free[key] -= group.devices
                    self._take(group, key)
                    found[group] = key[1]
        return found

    def _best(self, group: Group) -> NodeKey | None:
        """The node with most rows of the group; of those without any, the fullest one."""
        kind = group.kind.device_type
        fitting = [
            (kind, n)
            for n, node in enumerate(self._problem.nodes_of_type.get(kind, ()))
            if node.zone == group.kind.zone and self._free[kind, n] >= group.devices
        ]
        if not fitting:
            return None
        return max(fitting, key=lambda key: (self._score(group, key), -self._free[key], -key[1]))

    def _score(self, group: Group, key: NodeKey) -> int:
        left = self._left.get(key)
        if not left:
            return 0
        return sum(min(left[shard], len(group.members)) for shard in self._shards(group))

    def _take(self, group: Group, key: NodeKey) -> None:
        left = self._left.get(key)
        for shard in self._shards(group) if left else ():
            self._left[key][shard] -= min(self._left[key][shard], len(group.members))

    def _shards(self, group: Group) -> list[Shard]:
        stage = self._plan.pipelines[group.pipeline].stages[group.stage]
        return [Shard(r, group.kind.tp, group.kind.ep) for r in range(stage.first, stage.end)]


def _placed(plan: PipelinePlan) -> bool:
    return all(r.node is not None for _, _, stage in plan.stages() for r in stage.replicas)


def _with_nodes(plan: PipelinePlan, nodes: dict[Group, int]) -> PipelinePlan:
    """The plan with these nodes, all others open."""
    named = {(g.pipeline, g.stage, m): n for g, n in nodes.items() for m in g.members}
    pipelines = tuple(
        replace(
            pipe,
            stages=tuple(
                replace(
                    stage,
                    replicas=tuple(
                        Replica(r.kind, named.get((p, i, m))) for m, r in enumerate(stage.replicas)
                    ),
                )
                for i, stage in enumerate(pipe.stages)
            ),
        )
        for p, pipe in enumerate(plan.pipelines)
    )
    return replace(plan, pipelines=pipelines)
