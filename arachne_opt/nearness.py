"""How far planning problems are from each other, from small facts about each.

The distance of two problems is the sum of

- **nodes**: devices of the nodes that only one cluster has, over the devices of the larger one;
  0.1 more where links between nodes or the price of leaving a node differ;
- **work**: for cascades, equal ones cost nothing, and the others are paired by device time, the
  longest first: a pair costs the difference of its times and a tenth of the smaller one, a cascade
  without partner its time, all over the device time of both problems; for pipelines
  1 - smaller / larger global batch, and 0.1 more where the permissions of a plan differ;
- **costs**: 0.05 where the prices are of another cost version.

0 means problems that differ in names only, 0.5 clusters of which one is half of the other.
Problems farther apart than ``FARTHEST``, or of another family (task names of cascades, architecture
of pipelines), are of no use to each other.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace
from itertools import zip_longest
from typing import TYPE_CHECKING, Any

from arachne_opt.canonical import digest
from arachne_opt.cluster import Cluster

if TYPE_CHECKING:
    from arachne_opt.cascade.problem import CascadeProblem
    from arachne_opt.pipeline.problem import PipelineProblem

FARTHEST = 0.5

_OTHER_LINKS = 0.1
_OTHER_SHAPE = 0.1
_OTHER_OPTIONS = 0.1
_OTHER_COSTS = 0.05
# Digits of a digest that tell the parts of a problem apart.
_DIGITS = 12


@dataclass(frozen=True, slots=True, kw_only=True)
class Features:
    """What the distance is computed from.

    Args:
        family: digest of what must be equal for a plan to be of use.
        cluster_kinds: digest of the kinds of nodes, whatever their numbers.
        devices: of all nodes.
        work: least device time of all cascades in us; samples of a pipeline problem.
        nodes: (number, devices of one) by kind of node.
        links: digest of the links between nodes and zones and of the penalty.
        parts: (number, least device time of one in us) by kind of cascade; empty for pipelines.
        options: digest of what a pipeline plan may do, empty for cascades.
    """

    family: str
    cluster_kinds: str
    devices: int
    work: int
    cost_version: str
    nodes: Mapping[str, tuple[int, int]]
    links: str
    parts: Mapping[str, tuple[int, int]]
    options: str = ""

    def detail(self) -> dict[str, Any]:
        """The facts that no index needs, as JSON values."""
        return {
            "cost_version": self.cost_version,
            "nodes": {kind: list(row) for kind, row in self.nodes.items()},
            "links": self.links,
            "parts": {kind: list(row) for kind, row in self.parts.items()},
            "options": self.options,
        }


def cascade_features(problem: CascadeProblem) -> Features:
    """The facts about a cascade problem."""
    parts: dict[str, tuple[int, int]] = {}
    for cascade in problem.cascades:
        # Pins name devices, whose numbers differ from cluster to cluster.
        free = [replace(task, allowed_devices=None).canonical() for task in cascade.tasks]
        kind = digest(free)[:_DIGITS]
        area_us = sum(min(o.area_us for o in task.options) for task in cascade.tasks)
        parts[kind] = parts.get(kind, (0, 0))[0] + 1, area_us
    names = sorted({task.name for _, _, task in problem.tasks()})
    return Features(
        family=digest(["cascade", names]),
        work=sum(number * area_us for number, area_us in parts.values()),
        cost_version=problem.cost_version,
        parts=parts,
        **_of_cluster(problem.cluster),
    )


def pipeline_features(problem: PipelineProblem) -> Features:
    """The facts about a pipeline problem."""
    return Features(
        family=digest(["pipeline", problem.model.canonical()]),
        work=problem.global_batch,
        cost_version=problem.cost_version,
        parts={},
        options=digest(problem.options.canonical())[:_DIGITS],
        **_of_cluster(problem.cluster),
    )


def features_of_json(kind: str, problem: object) -> Features:
    """The facts about a stored problem.

    Raises:
        InputError: it cannot be read.
    """
    # Late: who stores cascades must not pay for loading pipelines.
    if kind == "pipeline":
        from arachne_opt.pipeline import problem_json as pipeline_json

        return pipeline_features(pipeline_json.problem_from_json(problem))
    from arachne_opt.cascade import problem_json as cascade_json

    return cascade_features(cascade_json.problem_from_json(problem))


def distance(a: Features, b: Features) -> float:
    """How far two problems of one family are apart; the module says how."""
    total = _node_distance(a, b)
    total += _cascade_distance(a.parts, b.parts) if a.parts or b.parts else _batch_distance(a, b)
    return total + (_OTHER_COSTS if a.cost_version != b.cost_version else 0.0)


def _of_cluster(cluster: Cluster) -> dict[str, Any]:
    nodes: dict[str, tuple[int, int]] = {}
    for node in cluster.nodes:
        kind = digest(node.signature())[:_DIGITS]
        nodes[kind] = nodes.get(kind, (0, 0))[0] + 1, node.device_count
    whole = cluster.canonical()
    return {
        "cluster_kinds": digest(sorted(nodes)),
        "devices": cluster.device_count,
        "nodes": nodes,
        "links": digest([whole["inter_link"], whole["zone_links"], whole["penalty"]])[:_DIGITS],
    }


def _node_distance(a: Features, b: Features) -> float:
    changed = sum(
        abs(a.nodes.get(kind, (0, 0))[0] - b.nodes.get(kind, (0, 0))[0])
        * (a.nodes.get(kind) or b.nodes[kind])[1]
        for kind in {*a.nodes, *b.nodes}
    )
    return changed / max(a.devices, b.devices) + (_OTHER_LINKS if a.links != b.links else 0.0)


def _batch_distance(a: Features, b: Features) -> float:
    share = min(a.work, b.work) / max(a.work, b.work)
    return 1 - share + (_OTHER_OPTIONS if a.options != b.options else 0.0)


def _cascade_distance(a: Mapping[str, tuple[int, int]], b: Mapping[str, tuple[int, int]]) -> float:
    counts = [Counter({kind: row[0] for kind, row in parts.items()}) for parts in (a, b)]
    rest_a = [a[kind][1] for kind in (counts[0] - counts[1]).elements()]
    rest_b = [b[kind][1] for kind in (counts[1] - counts[0]).elements()]
    pairs = zip_longest(sorted(rest_a, reverse=True), sorted(rest_b, reverse=True), fillvalue=0)
    cost_us = sum(abs(x - y) + _OTHER_SHAPE * min(x, y) for x, y in pairs)
    return cost_us / sum(number * area_us for parts in (a, b) for number, area_us in parts.values())
