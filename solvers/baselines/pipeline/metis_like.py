"""Like Metis: blocks of types, groups of a power of two, layers in proportion to speed.

Source of the rule: Um et al., Metis, USENIX ATC 2024.
"""

from __future__ import annotations

from collections.abc import Iterator

from arachne_opt.solvers.baselines.pipeline.layouts import Proposal, full_layouts, split_rows
from arachne_opt.solvers.pipeline.workbench import Workbench


def metis_like(bench: Workbench) -> Iterator[Proposal]:
    """Every order of the types, tp by type, dp a power of two."""
    rows = bench.costs.row_count
    for layout in full_layouts(bench, one_tp=False, powers_of_two=True):
        speeds = [
            1 / float(bench.costs.work_prefix_s(k, layout.microbatch)[-1]) for k in layout.kinds
        ]
        yield Proposal(layout, split_rows(rows, speeds))
