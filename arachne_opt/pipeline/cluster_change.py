"""A pipeline problem on another cluster, and which of the old nodes are still there."""

from __future__ import annotations

from dataclasses import replace

from arachne_opt.cluster import Cluster, Node
from arachne_opt.errors import InputError
from arachne_opt.pipeline.problem import PipelineProblem
from arachne_opt.pipeline.tables import PriceTables
from arachne_opt.suggest import did_you_mean

# A node by (device type, number among the nodes of its type), as plans name it.
NodeKey = tuple[str, int]


def problem_on(problem: PipelineProblem, cluster: Cluster) -> PipelineProblem:
    """The same task on another cluster, with the tables of its types and zones only.

    Raises:
        InputError: the tables lack a type of the new cluster, or a link between two zones.
    """
    where, tables = f"cluster {cluster.name}", problem.tables
    for name in cluster.device_types:
        if name not in tables.device_types:
            what = f"no profile for type {name}{did_you_mean(name, tables.device_types)}: "
            what += f"the plan's tables have {', '.join(tables.device_types)}"
            raise InputError(what, where=where, hint="--profiles FOLDER")
    places = {(n.device_type.name, n.zone) for n in cluster.nodes}
    routes = tuple(
        r
        for r in tables.routes
        if (r.source.device_type, r.source.zone) in places
        and (r.target.device_type, r.target.zone) in places
    )
    joined = {(r.source.zone, r.target.zone) for r in routes}
    zones = sorted({zone for _, zone in places})
    for a in zones:
        for b in zones:
            if (a, b) not in joined:
                what = f"the plan's tables have no link from zone {a} to zone {b}"
                raise InputError(what, where=where, hint="--profiles FOLDER")
    return replace(
        problem,
        name=f"{problem.model.name} on {cluster.name}",
        cluster=cluster,
        tables=PriceTables(
            steps=tuple(s for s in tables.steps if s.device_type in cluster.device_types),
            routes=routes,
            node_links=tuple(n for n in tables.node_links if n.device_type in cluster.device_types),
        ),
    )


def surviving_nodes(old: PipelineProblem, new: PipelineProblem) -> dict[NodeKey, NodeKey]:
    """For each old node that is still there its new name.

    Nodes are the same by name where every new node that has an old name has its type, zone and
    size too. Otherwise those of one type, zone and size are taken in order, so that the last ones
    of a kind are the ones that left.
    """
    return _by_name(old, new) or _by_order(old, new)


def _by_name(old: PipelineProblem, new: PipelineProblem) -> dict[NodeKey, NodeKey]:
    before = {node.name: (key, node) for key, node in _nodes(old).items()}
    found = {}
    for key, node in _nodes(new).items():
        if node.name not in before:
            continue
        old_key, old_node = before[node.name]
        if _kind(old_node) != _kind(node):
            return {}
        found[old_key] = key
    return found


def _by_order(old: PipelineProblem, new: PipelineProblem) -> dict[NodeKey, NodeKey]:
    waiting: dict[object, list[NodeKey]] = {}
    for key, node in _nodes(new).items():
        waiting.setdefault(_kind(node), []).append(key)
    found = {}
    for key, node in _nodes(old).items():
        same = waiting.get(_kind(node))
        if same:
            found[key] = same.pop(0)
    return found


def _nodes(problem: PipelineProblem) -> dict[NodeKey, Node]:
    return {
        (kind, number): node
        for kind, nodes in problem.nodes_of_type.items()
        for number, node in enumerate(nodes)
    }


def _kind(node: Node) -> tuple[str, str, int]:
    return node.device_type.name, node.zone, node.device_count
