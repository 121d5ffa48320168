"""Like AMP: one grid for all devices, chosen as if all had the average speed of their types.

Source of the rule: Li et al., AMP, NeurIPS 2022.
"""

from __future__ import annotations

from collections.abc import Iterator

from arachne_opt.pipeline.plan import ReplicaKind
from arachne_opt.solvers.baselines.pipeline.layouts import (
    Layout,
    Proposal,
    full_layouts,
    split_rows,
)
from arachne_opt.solvers.pipeline.workbench import Workbench


def amp_like(bench: Workbench) -> Iterator[Proposal]:
    """Grids on all devices with the time that the average device would take."""
    rows = bench.costs.row_count
    types = len(bench.space.places)
    for layout in full_layouts(bench, one_tp=True):
        if len({(k.device_type, k.zone) for k in layout.kinds}) < types:
            continue
        cuts = split_rows(rows, [1.0] * len(layout.kinds))
        yield Proposal(layout, cuts, _average_s(bench, layout))


def _average_s(bench: Workbench, layout: Layout) -> float:
    """Rounds of an average stage, and the gradient ring of an average stage."""
    m, stages = layout.microbatch, len(layout.kinds)
    rounds = -(-bench.problem.global_batch // (m * layout.replicas))
    work = sum(float(bench.costs.work_prefix_s(k, m)[-1]) for k in layout.kinds) / stages
    rings = [_ring_s(bench, k, layout.replicas) for k in layout.kinds]
    return (rounds - 1 + stages) * work / stages + sum(rings) / stages / stages


def _ring_s(bench: Workbench, kind: ReplicaKind, replicas: int) -> float:
    return float(bench.costs.stage_sync_s([kind] * replicas)[0, -1])
