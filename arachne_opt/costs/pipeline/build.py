"""From profiles and a cluster to a problem: only what the cluster's types and zones need."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product

from arachne_opt.canonical import digest
from arachne_opt.cluster import Cluster
from arachne_opt.cost_version import cost_version
from arachne_opt.costs.pipeline.analytic import constant_curve
from arachne_opt.costs.pipeline.estimates import with_estimates
from arachne_opt.costs.pipeline.profiles import Profiles
from arachne_opt.errors import InputError
from arachne_opt.pipeline.memory import MEASURED_FP32, MemoryRule
from arachne_opt.pipeline.problem import PipelineOptions, PipelineProblem
from arachne_opt.pipeline.rows import check_device_type
from arachne_opt.pipeline.tables import Port, PriceTables, Route

DEFAULT_ZONE = "default"
# What estimates fill in unless the options name micro-batches.
USUAL_MICROBATCHES = (1, 2, 3, 4, 6, 8, 12, 16)
USUAL_DEGREES = (1, 2, 4, 8)


def build_problem(
    profiles: Profiles,
    cluster: Cluster,
    global_batch: int,
    *,
    options: PipelineOptions | None = None,
    memory: MemoryRule = MEASURED_FP32,
    allow_estimates: bool = False,
    name: str | None = None,
) -> PipelineProblem:
    """The problem with the tables of the types and zones in a cluster.

    Args:
        profiles: what was measured for the model.
        cluster: nodes and zones.
        global_batch: samples per iteration.
        options: what a plan may do.
        memory: rule for the memory of a device.
        allow_estimates: step times may be estimated for types, micro-batches and degrees that
            were not measured.
        name: by default that of model and cluster.

    Raises:
        InputError: a type has no profile, or two zones have no link.
    """
    where = f"model {profiles.model.name}"
    choices = options or PipelineOptions()
    if allow_estimates:
        profiles = with_estimates(
            profiles,
            cluster.device_types,
            microbatches=choices.microbatches or USUAL_MICROBATCHES,
            degrees=USUAL_DEGREES,
        )
    for kind in cluster.device_types:
        check_device_type(kind, profiles.device_types, where)
    return PipelineProblem(
        name=name or f"{profiles.model.name} on {cluster.name}",
        cluster=cluster,
        model=profiles.model,
        global_batch=global_batch,
        tables=_tables(profiles, cluster),
        memory=memory,
        options=choices,
        cost_version=cost_version(
            "profiles",
            (profiles.model.name, memory.name, *sorted(profiles.device_types)),
            digest([profiles.version, memory.name]),
        ),
        notes=profiles.notes,
    )


def _tables(profiles: Profiles, cluster: Cluster) -> PriceTables:
    types = cluster.device_types
    return PriceTables(
        steps=tuple(s for s in profiles.steps if s.device_type in types),
        routes=tuple(_routes(profiles, cluster)),
        node_links=tuple(n for n in profiles.node_links if n.device_type in types),
    )


def _routes(profiles: Profiles, cluster: Cluster) -> Iterator[Route]:
    """Curves between the types and zones of the cluster, under the cluster's zone names."""
    places = sorted({(n.device_type.name, n.zone) for n in cluster.nodes})
    measured: dict[tuple[str, str, str, str], list[Route]] = {}
    for route in profiles.routes:
        a, b = route.source, route.target
        measured.setdefault((a.device_type, a.zone, b.device_type, b.zone), []).append(route)
    joined: set[tuple[str, str]] = set()
    for kind_a, zone_a in places:
        for kind_b, zone_b in places:
            there = (_known_zone(profiles, zone_a), _known_zone(profiles, zone_b))
            found = measured.get((kind_a, there[0], kind_b, there[1]), [])
            routes = [_moved(r, zone_a, zone_b) for r in found]
            if not found and zone_a != zone_b:
                routes = _from_link(cluster, Port(kind_a, zone_a, 1), Port(kind_b, zone_b, 1))
            if routes:
                joined.add((zone_a, zone_b))
            yield from routes
    zones = sorted({zone for _, zone in places})
    for home, other in product(zones, zones):
        if (home, other) not in joined:
            known = ", ".join(sorted({r.source.zone for r in profiles.routes}))
            what = f"no link from zone {home} to zone {other}; curves exist for {known or 'none'}"
            raise InputError(what, where=f"cluster {cluster.name}", hint="a [[zone_link]]")


def _known_zone(profiles: Profiles, zone: str) -> str:
    return profiles.home_zone if zone == DEFAULT_ZONE else zone


def _moved(route: Route, zone_a: str, zone_b: str) -> Route:
    return Route(
        source=route.source._replace(zone=zone_a),
        target=route.target._replace(zone=zone_b),
        curve=route.curve,
    )


def _from_link(cluster: Cluster, source: Port, target: Port) -> list[Route]:
    """A route of constant bandwidth where the cluster's own description joins two zones."""
    for entry in cluster.zone_links:
        if set(entry.zones) == {source.zone, target.zone}:
            return [Route(source=source, target=target, curve=constant_curve(entry.link))]
    return []
