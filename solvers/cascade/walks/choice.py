"""What a list schedule is made of: a mode and a priority for each task."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from typing import NamedTuple

from arachne_opt.solvers.cascade.decoder import useful_modes
from arachne_opt.solvers.cascade.digest import Digest, FlatTask, Mode
from arachne_opt.solvers.cascade.schedule import Schedule

ANYWHERE = -1


class Choice(NamedTuple):
    """For each task a pick among its modes in a ``ModeTable``, a priority and a site.

    A site is a node to be on, ``ANYWHERE`` or one without room for the group for the best one.
    """

    picks: array[int]
    priority: array[int]
    sites: array[int]

    def copy(self) -> Choice:
        """The same to be changed."""
        return Choice(self.picks[:], self.priority[:], self.sites[:])


def blank(tasks: int) -> Choice:
    """The first modes, equal priorities, and no particular sites."""
    picks, priority = array("i", bytes(4 * tasks)), array("q", bytes(8 * tasks))
    return Choice(picks, priority, array("i", [ANYWHERE]) * tasks)


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
        sites = array("i", [ANYWHERE]) * len(picks)
        return Choice(array("i", picks), ranked(priority), sites)

    def of_schedule(self, schedule: Schedule) -> Choice:
        """The degrees, the order and the nodes of a schedule of all tasks."""
        choice, digest = blank(len(self.rows)), self._digest
        for i, devices in schedule.runs:
            choice.picks[i] = self.pick(i, len(devices), digest.kind_of[devices[0]])
            choice.priority[i] = -schedule.starts_us[i]
            choice.sites[i] = self.site(devices)
        return choice

    def site(self, devices: Sequence[int]) -> int:
        """The node of a group, ``ANYWHERE`` for one over several nodes."""
        nodes = {self._digest.node_of[d] for d in devices}
        return nodes.pop() if len(nodes) == 1 else ANYWHERE

    def modes(self, picks: Sequence[int]) -> list[Mode]:
        """The modes of some picks."""
        return [row[pick] for row, pick in zip(self.rows, picks, strict=True)]


def _others_last(task: FlatTask, drawn: Sequence[Mode]) -> tuple[Mode, ...]:
    return (*drawn, *[mode for mode in task.modes if mode not in drawn])
