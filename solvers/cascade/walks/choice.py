"""What a list schedule is made of: a mode and a priority for each task."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from arachne_opt.solvers.cascade.decoder import useful_modes
from arachne_opt.solvers.cascade.digest import Digest, FlatTask, Mode
from arachne_opt.solvers.cascade.schedule import Schedule

ANYWHERE = -1


# For each node of a group, in rising order, the set of its devices as bits by their places in it.
Group = tuple[tuple[int, int], ...]
FREE: Group = ()


class Choice(NamedTuple):
    """For each task a pick among its modes in a ``ModeTable``, a priority, a site and a group.

    A site is a node to be on, ``ANYWHERE`` or one without room for the group for the best one. A
    group is of devices that the task is held on, whatever its site; ``FREE`` for none. Walkers let
    go of groups that are not of their nodes or not as the mode wants them.
    """

    picks: array[int]
    priority: array[int]
    sites: array[int]
    groups: list[Group]

    def copy(self) -> Choice:
        """The same to be changed."""
        return Choice(self.picks[:], self.priority[:], self.sites[:], self.groups[:])


def blank(tasks: int) -> Choice:
    """The first modes, equal priorities, and no particular sites."""
    picks, priority = array("i", bytes(4 * tasks)), array("q", bytes(8 * tasks))
    return free_choice(picks, priority)


def free_choice(picks: array[int], priority: array[int]) -> Choice:
    """Picks and priorities, with no particular sites or groups."""
    return Choice(picks, priority, array("i", [ANYWHERE]) * len(picks), [FREE] * len(picks))


def ranked(priority: Sequence[int]) -> array[int]:
    """The priorities, or their ranks where one is too large: only their order matters."""
    try:
        return array("q", priority)
    except OverflowError:
        rank = {value: k for k, value in enumerate(sorted(set(priority)))}
        return array("q", [rank[value] for value in priority])


class ModeTable:
    """Modes of every task: those that are worth to be drawn first, then the others."""

    def __init__(self, digest: Digest) -> None:
        self._digest = digest
        drawn = [useful_modes(task) for task in digest.tasks]
        self.drawn = tuple(map(len, drawn))
        self.rows = tuple(map(_others_last, digest.tasks, drawn))
        self._pick_of = tuple(
            {(mode.degree, mode.kind): k for k, mode in enumerate(row)} for row in self.rows
        )

    def pick(self, task: int, degree: int, kind: int) -> int:
        """The number of a mode.

        Raises:
            KeyError: the task has no such mode.
        """
        return self._pick_of[task][degree, kind]

    def choice(self, modes: Sequence[Mode], priority: Sequence[int]) -> Choice:
        """The choice of some modes."""
        picks = [self.pick(t, mode.degree, mode.kind) for t, mode in enumerate(modes)]
        return free_choice(array("i", picks), ranked(priority))

    def of_schedule(self, schedule: Schedule) -> Choice:
        """The degrees, the order, the nodes and the groups of a schedule of all tasks."""
        choice, digest = blank(len(self.rows)), self._digest
        for i, devices in schedule.runs:
            choice.picks[i] = self.pick(i, len(devices), digest.kind_of[devices[0]])
            choice.priority[i] = -schedule.starts_us[i]
            choice.sites[i] = self.site(devices)
            choice.groups[i] = self.group(devices)
        return choice

    def site(self, devices: Sequence[int]) -> int:
        """The node of a group, ``ANYWHERE`` for one over several nodes."""
        nodes = {self._digest.node_of[d] for d in devices}
        return nodes.pop() if len(nodes) == 1 else ANYWHERE

    def group(self, devices: Iterable[int]) -> Group:
        """The devices by node."""
        digest, masks = self._digest, dict[int, int]()
        for d in devices:
            n = digest.node_of[d]
            masks[n] = masks.get(n, 0) | 1 << digest.nodes[n].devices.index(d)
        return tuple(sorted(masks.items()))

    def modes(self, picks: Sequence[int]) -> list[Mode]:
        """The modes of some picks."""
        return [row[pick] for row, pick in zip(self.rows, picks, strict=True)]


def _others_last(task: FlatTask, drawn: Sequence[Mode]) -> tuple[Mode, ...]:
    return (*drawn, *[mode for mode in task.modes if mode not in drawn])
