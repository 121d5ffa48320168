"""Which process runs which rank of a plan, and the process groups that they need."""

from __future__ import annotations

from collections.abc import Iterable

import torch.distributed as dist

from arachne_opt.errors import RunError
from arachne_opt.executor.groups import GroupPool
from arachne_opt.executor.pipeline.seams import Company
from arachne_opt.pipeline.layout import Layout


class Seats:
    """The processes of a layout; all processes make one, also those without a rank in it.

    Args:
        layout: the ranks.
        seats: process of each rank; the first ones unless given.
        timeout_s: of the groups.
        pool: groups of earlier layouts of these processes, which are used again.

    Raises:
        RunError: there are fewer processes than ranks.
    """

    def __init__(
        self,
        layout: Layout,
        seats: tuple[int, ...] | None = None,
        *,
        timeout_s: float = 600.0,
        pool: GroupPool | None = None,
    ) -> None:
        self.layout = layout
        self.seats = seats or tuple(range(layout.world_size))
        world = dist.get_world_size()
        if len(self.seats) != layout.world_size or max(self.seats) >= world:
            what = f"the plan has {layout.world_size} ranks, the run {world} processes"
            raise RunError(what, hint=f"{layout.world_size} processes")
        process = dist.get_rank()
        self.rank = self.seats.index(process) if process in self.seats else None
        self._timeout_s = timeout_s
        self.pool = pool or GroupPool()
        self.all = self.processes(range(layout.world_size))

    def prepare(self, groups: Iterable[tuple[int, ...]]) -> None:
        """Makes groups of ranks, and those of the layout, on all processes in one order."""
        layout, needed = self.layout, dict.fromkeys([self.all], self._timeout_s)
        for m in layout.members:
            for ranks in (layout.tp_group(m.rank), layout.ep_group(m.rank)):
                needed.setdefault(self.processes(ranks), self._timeout_s)
        for ranks in groups:
            needed.setdefault(self.processes(ranks), self._timeout_s)
        self.pool.prepare(needed)

    def processes(self, ranks: Iterable[int]) -> tuple[int, ...]:
        """The processes of some ranks, ascending, as their group has them."""
        return tuple(sorted(self.seats[r] for r in ranks))

    def group(self, ranks: Iterable[int]) -> dist.ProcessGroup | None:
        """The process group of some ranks that include this one; None for this one alone."""
        return self.pool.get(self.processes(ranks))

    def members(self) -> Company | None:
        """The tensor-parallel group of this rank; None where it is alone."""
        assert self.rank is not None  # asked by ranks of the layout
        return self._company(self.layout.tp_group(self.rank), "tp_index")

    def experts(self) -> Company | None:
        """The group over which this rank's experts are spread; None where it has all."""
        assert self.rank is not None  # asked by ranks of the layout
        return self._company(self.layout.ep_group(self.rank), "ep_index")

    def _company(self, ranks: tuple[int, ...], index: str) -> Company | None:
        group = self.group(ranks)
        if group is None:
            return None
        by_process = sorted(ranks, key=lambda r: self.seats[r])
        order = tuple(getattr(self.layout.members[r], index) for r in by_process)
        return Company(group=group, order=order)
