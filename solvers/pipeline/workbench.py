"""What the parts of the pipeline search share: prices, limits and caches of one problem."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from arachne_opt.costs.pipeline.base import Floats, Ints, PipelineCosts
from arachne_opt.pipeline.packing import pack
from arachne_opt.pipeline.plan import PipelinePlan
from arachne_opt.pipeline.problem import PipelineProblem
from arachne_opt.solvers.pipeline.columns import Column
from arachne_opt.solvers.pipeline.exchange import Exchange
from arachne_opt.solvers.pipeline.options import Atom, Space, StageOption, node_width
from arachne_opt.solvers.pipeline.ranking import Ranking
from arachne_opt.solvers.pipeline.restrictions import FREE, Restrictions
from arachne_opt.solvers.pipeline.shares import covering_counts, exact_counts
from arachne_opt.solvers.pipeline.tables import BatchTables

_ODD = (1, 3, 5, 7)  # batches of parts are these times powers of two


@dataclass(frozen=True, slots=True, eq=False)
class Candidate:
    """Columns with their numbers of micro-batches; ``total_s`` is cautious."""

    columns: tuple[Column, ...]
    counts: tuple[int, ...]
    total_s: float
    source: str


class Workbench:
    """Caches and small computations on one problem."""

    def __init__(
        self, problem: PipelineProblem, costs: PipelineCosts, restrictions: Restrictions = FREE
    ) -> None:
        self.problem = problem
        self.costs = costs
        self.space = Space(problem, costs, restrictions)
        self.exchange = Exchange(costs)
        self.limits = self.space.limits
        # Without any kind there are no places, and an empty array of numpy has no integers.
        self.place_limits = self.limits[self.space.device_rows().astype(np.int64)]
        self._options: dict[int, list[StageOption]] = {}
        self._tables: dict[tuple[int, int], BatchTables] = {}

    @cached_property
    def ranking(self) -> Ranking:
        """Estimates of block templates; gathering the facts for them takes a while."""
        return Ranking(self.space)

    @cached_property
    def usual_batches(self) -> tuple[int, ...]:
        """Small odd numbers times powers of two."""
        microbatches = [a.microbatch for a in self.space.atoms]
        devices = max(self.place_limits.tolist(), default=0)
        most = min(devices * max(microbatches, default=0), self.problem.global_batch)
        odd = {o << shift for o in _ODD for shift in range(most.bit_length())}
        return tuple(sorted(b for b in odd if b <= most))

    @property
    def part_batches(self) -> tuple[int, ...]:
        """Batches of pipelines that share the samples with others."""
        usual = self.usual_batches
        return tuple(b for b in usual if 2 * b <= usual[-1]) or usual[:1]

    def tables(self, batch: int, pipelines: int = 1) -> BatchTables:
        """Prices at a batch in a plan of so many pipelines."""
        key = (batch, pipelines)
        if key not in self._tables:
            if batch not in self._options:
                self._options[batch] = self.space.options(batch)
            across = self.across_table(pipelines) if pipelines > 1 else None
            self._tables[key] = BatchTables(self.space, batch, self._options[batch], across)
        return self._tables[key]

    def across_table(self, pipelines: int) -> Floats:
        """Gradient exchange of a stage across so many pipelines, at worst."""
        return self.exchange.across_table(self.costs.kinds, pipelines)

    def option_of_atom(self, tables: BatchTables) -> Ints:
        """For each atom the number of its option; -1 where there is none."""
        number = {atom: a for a, atom in enumerate(self.space.atoms)}
        found = np.full(len(number), -1)
        for o, option in enumerate(tables.options):
            if len(option.blocks) == 1:
                found[number[Atom(option.blocks[0].kind, option.microbatch, option.recompute)]] = o
        return found

    def candidate(self, columns: Sequence[Column], source: str) -> Candidate | None:
        """The best shares of the global batch; None where devices or samples do not work out."""
        used = np.sum([c.used for c in columns], axis=0)
        if (used > self.limits).any() or not self.packs(columns) or not self._allowed(columns):
            return None
        samples = self.problem.global_batch
        if self.problem.options.allow_excess:
            counts = covering_counts(columns, samples)
        else:
            counts = exact_counts(columns, samples)
        if not counts:
            return None
        slowest = max(c.seconds(n) for c, n in zip(columns, counts, strict=True))
        total = slowest + self.exchange.seconds(columns)
        # The published price looks at the first of the longest pipelines only.
        weights = [(len(c.options), self.exchange.own_across_s(c, len(columns))) for c in columns]
        order = sorted(range(len(columns)), key=weights.__getitem__, reverse=True)
        ordered = tuple(columns[i] for i in order)
        return Candidate(ordered, tuple(counts[i] for i in order), total, source)

    def _allowed(self, columns: Sequence[Column]) -> bool:
        """Whether pipelines go together; what is inside each is restricted in the search."""
        if not self.space.restrictions.one_tp:
            return True
        kinds = {b.kind for c in columns for o in c.options for b in o.blocks}
        return len({(k.device_type, k.tp) for k in kinds}) == len({k.device_type for k in kinds})

    def packs(self, columns: Sequence[Column]) -> bool:
        """Whether all groups find nodes; the limits alone do not tell for all widths."""
        for place, (name, zone) in enumerate(self.space.places):
            nodes = self.problem.nodes_of_type[name]
            free = [n.device_count for n in nodes if n.zone == zone]
            groups = []
            for block in (b for c in columns for o in c.options for b in o.blocks):
                if self.space.place_of(block.kind) == place:
                    width = node_width(block.kind)
                    groups += [width] * (block.count * block.kind.tp // width)
            if groups and (sum(groups) > sum(free) or pack(groups, free) is None):
                return False
        return True

    def plan(self, candidate: Candidate) -> PipelinePlan:
        """The plan of a candidate, without nodes."""
        pairs = zip(candidate.columns, candidate.counts, strict=True)
        return PipelinePlan(
            model=self.problem.model.name,
            global_batch=self.problem.global_batch,
            pipelines=tuple(c.pipeline(n) for c, n in pairs),
            zero1=self.problem.options.zero1,
        )
