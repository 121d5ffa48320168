"""Process groups of the plans, made in plan order on all ranks and used again.

``new_group`` is collective: all ranks make the same groups in the same order, members or not.
(``use_local_synchronization`` hangs on overlapping groups, pytorch issue 173608.)
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping
from datetime import timedelta

import torch.distributed as dist

from arachne_opt.errors import RunError

Devices = tuple[int, ...]

DEFAULT_BOUND = 256


class GroupPool:
    """Groups by their set of ranks; a group of one needs none and the world is there already.

    Args:
        bound: most groups kept; the longest unused goes first, on all ranks alike.
    """

    def __init__(self, bound: int = DEFAULT_BOUND) -> None:
        self._bound = bound
        self._timeouts: dict[Devices, float] = {}
        # torch gives a mere number to ranks outside of a group.
        self._groups: OrderedDict[Devices, dist.ProcessGroup | int] = OrderedDict()
        self.made = 0

    def prepare(self, needed: Mapping[Devices, float]) -> None:
        """Makes the groups that are not there, in the given order, on all ranks.

        A group that a longer task now needs is made again with the longer time-out.

        Args:
            needed: time-out in seconds of each group, by its ranks in ascending order.
        """
        for devices in needed:
            if devices in self._groups:
                self._groups.move_to_end(devices)
        for devices, timeout_s in needed.items():
            if len(devices) > 1 and timeout_s > self._timeouts.get(devices, 0.0):
                self._drop(devices)
                self._make(devices, timeout_s)
        while len(self._groups) > max(self._bound, len(needed)):
            self._drop(next(iter(self._groups)))

    def get(self, devices: Devices) -> dist.ProcessGroup | None:
        """The group of some ranks; None for a single one.

        Raises:
            RunError: the group was never prepared, which would hang the others.
        """
        if len(devices) == 1:
            return None
        group = self._groups.get(devices)
        if not isinstance(group, dist.ProcessGroup):
            raise RunError(f"this rank has no process group for the devices {devices}")
        return group

    def _drop(self, devices: Devices) -> None:
        old = self._groups.pop(devices, None)
        self._timeouts.pop(devices, None)
        if isinstance(old, dist.ProcessGroup) and old is not dist.group.WORLD:
            dist.destroy_process_group(old)

    def _make(self, devices: Devices, timeout_s: float) -> None:
        self._timeouts[devices] = timeout_s
        if len(devices) == dist.get_world_size():
            assert dist.group.WORLD is not None  # the process group is initialised by now
            self._groups[devices] = dist.group.WORLD
            return
        # The time-out of the default group is not inherited.
        timeout = timedelta(seconds=timeout_s)
        self._groups[devices] = dist.new_group(list(devices), timeout=timeout)
        self.made += 1
