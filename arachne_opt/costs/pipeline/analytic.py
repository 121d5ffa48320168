"""Step times from operation counts and data sheets, for models that nobody has measured."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass

from arachne_opt.canonical import digest
from arachne_opt.cluster import Cluster, DeviceType, Link
from arachne_opt.costs.pipeline.profiles import Profiles
from arachne_opt.pipeline.architecture import Architecture, rows_of
from arachne_opt.pipeline.tables import Curve, NodeLink, Port, Route, StepTimes

USUAL_MICROBATCHES = (1, 2, 4, 8)


@dataclass(frozen=True, slots=True, kw_only=True)
class AnalyticRates:
    """How much of the data sheets' peaks training reaches.

    Args:
        compute: share of the peak operations; large models reach 0.3 to 0.5 (Narayanan et al.,
            2021, table 1).
        memory: share of the memory bandwidth.
        state_bytes: read and written per parameter in an optimizer update.
    """

    compute: float = 0.4
    memory: float = 0.7
    state_bytes: int = 32


def analytic_profiles(
    model: Architecture,
    cluster: Cluster,
    *,
    microbatches: tuple[int, ...] = USUAL_MICROBATCHES,
    rates: AnalyticRates | None = None,
    dtype_bytes: int = 2,
    imbalance: float = 1.0,
) -> Profiles:
    """Profiles of a model on the types of a cluster, all of it computed.

    A row takes the longer of its operations at the reached peak and its traffic at the reached
    bandwidth; a backward takes twice a forward; tensor parallelism adds two all-reduces each way.
    """
    known = rates or AnalyticRates()
    links = {n.device_type.name: n.intra_link for n in cluster.nodes}
    widest = max(n.device_count for n in cluster.nodes)
    degrees = tuple(tp for tp in (1, 2, 4, 8) if tp <= widest and model.heads % tp == 0)
    rows = rows_of(model, dtype_bytes=dtype_bytes, degrees=degrees, imbalance=imbalance)
    steps = tuple(
        analytic_step(model, kind, tp, m, links[kind.name], known, dtype_bytes)
        for kind in cluster.device_types.values()
        for tp in degrees
        for m in microbatches
    )
    note = f"step times computed from data sheets at {known.compute:.0%} of the peak, not measured"
    return Profiles(
        model=rows,
        steps=steps,
        routes=tuple(constant_routes(cluster)),
        node_links=tuple(
            NodeLink(device_type=name, width=1, curve=constant_curve(link))
            for name, link in links.items()
        ),
        home_zone="default",
        version=digest(["analytic/1", rows.canonical(), repr(known)]),
        notes=(note,),
    )


def analytic_step(
    model: Architecture,
    kind: DeviceType,
    tp: int,
    microbatch: int,
    link: Link,
    rates: AnalyticRates,
    dtype_bytes: int,
) -> StepTimes:
    """Times of all rows for one type, tp and micro-batch."""
    peak = kind.peak_flops_per_s * rates.compute * tp
    band = kind.memory_bandwidth_bytes_per_s * rates.memory * tp
    tokens = model.sequence_length * microbatch
    reduce_s = _all_reduce_s(tokens * model.hidden * dtype_bytes, tp, link)
    forward, of_experts, updates, expert_updates = [], [], [], []
    for dense, sparse, weights, expert_weights in _rows(model, tokens):
        bytes_read = (weights + expert_weights) * dtype_bytes
        time = max((dense + sparse) / peak, bytes_read / band)
        forward.append(time + 2 * reduce_s)
        of_experts.append(time * sparse / (dense + sparse) if sparse else 0.0)
        updates.append(weights * rates.state_bytes / band)
        expert_updates.append(expert_weights * rates.state_bytes / band)
    sparse_model = model.experts is not None
    return StepTimes(
        device_type=kind.name,
        tp=tp,
        microbatch=microbatch,
        forward_s=tuple(forward),
        backward_s=tuple(2 * t - 2 * reduce_s for t in forward),
        update_s=tuple(updates),
        expert_forward_s=tuple(of_experts) if sparse_model else (),
        expert_backward_s=tuple(2 * t for t in of_experts) if sparse_model else (),
        expert_update_s=tuple(expert_updates) if sparse_model else (),
    )


def constant_curve(link: Link) -> Curve:
    """The curve of a link of constant bandwidth."""
    return Curve(constant=link.bandwidth_bytes_per_s / 1e9, latency_s=link.latency_us / 1e6)


def constant_routes(cluster: Cluster) -> Iterator[Route]:
    """Routes inside each zone over the cluster's network; zones are joined by their own links."""
    places = sorted({(n.device_type.name, n.zone) for n in cluster.nodes})
    for (a, zone_a), (b, zone_b) in itertools.product(places, places):
        if zone_a == zone_b:
            curve = constant_curve(cluster.inter_link)
            yield Route(source=Port(a, zone_a, 1), target=Port(b, zone_b, 1), curve=curve)


def _rows(model: Architecture, tokens: int) -> Iterator[tuple[float, float, int, int]]:
    """Operations outside and inside experts of a forward, and the parameters of either."""
    context = model.sequence_length
    yield 2.0 * tokens * model.hidden, 0.0, model.embedding_parameters(), 0
    for layer in range(model.layers):
        weights, expert_weights = model.block_parameters(layer)
        # Scores and their product with the values: 2 + 2 operations per pair and channel.
        attention = 4.0 * tokens * context * model.query_width
        sparse = 0.0
        if model.experts is not None and model.is_sparse(layer):
            visited = model.experts.top_k * model.ffn_parameters(model.experts.width)
            sparse = 2.0 * tokens * visited
        yield 2.0 * tokens * weights + attention, sparse, weights, expert_weights
    yield 2.0 * tokens * model.head_parameters(), 0.0, model.head_parameters(), 0


def _all_reduce_s(size_bytes: int, tp: int, link: Link) -> float:
    if tp == 1:
        return 0.0
    sent = 2 * (tp - 1) / tp * size_bytes / link.bandwidth_bytes_per_s
    return sent + 2 * (tp - 1) * link.latency_us / 1e6
