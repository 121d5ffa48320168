"""Megatron-LM's grid: one tp, one dp, even layers, whatever the types of the devices.

Source of the grid: Narayanan et al., Efficient large-scale language model training on GPU clusters
using Megatron-LM, SC 2021.
"""

from __future__ import annotations

from collections.abc import Iterator

from arachne_opt.solvers.baselines.pipeline.layouts import Proposal, full_layouts, split_rows
from arachne_opt.solvers.pipeline.workbench import Workbench


def uniform(bench: Workbench) -> Iterator[Proposal]:
    """Every grid on the devices of some or all types; the best is taken."""
    rows = bench.costs.row_count
    for layout in full_layouts(bench, one_tp=True):
        cuts = split_rows(rows, [1.0] * len(layout.kinds))
        yield Proposal(layout, cuts)
