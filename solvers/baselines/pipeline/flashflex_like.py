"""Like FlashFlex: layers in proportion to the memory of the stages.

Source of the rule: Yan et al., FlashFlex, arXiv 2409.01143.
"""

from __future__ import annotations

from collections.abc import Iterator

from arachne_opt.solvers.baselines.pipeline.layouts import Proposal, full_layouts, split_rows
from arachne_opt.solvers.pipeline.workbench import Workbench


def flashflex_like(bench: Workbench) -> Iterator[Proposal]:
    """Every order of the types, tp by type and any dp."""
    rows = bench.costs.row_count
    types = bench.problem.cluster.device_types
    for layout in full_layouts(bench, one_tp=False):
        memory = [float(types[k.device_type].memory_bytes * k.tp) for k in layout.kinds]
        yield Proposal(layout, split_rows(rows, memory))
