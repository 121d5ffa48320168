"""Devices that plans leave out, and tasks that keep to some devices."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import click

from arachne_opt.cascade.problem import CascadeProblem, Task
from arachne_opt.cli.options import Command
from arachne_opt.suggest import did_you_mean

_MOST = 1_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Restrictions:
    """What the user allows.

    Args:
        forbidden: devices that no task may use.
        pins: the devices of tasks by name.
    """

    forbidden: tuple[int, ...] = ()
    pins: tuple[tuple[str, tuple[int, ...]], ...] = ()

    @classmethod
    def taken_from(cls, options: dict[str, Any]) -> Restrictions:
        """The part of a command's options that is about devices."""
        forbidden = parse_devices(options["forbid"]) if options["forbid"] else ()
        return cls(forbidden=forbidden, pins=tuple(map(_pin, options["pins"])))

    def __bool__(self) -> bool:
        """Whether anything is restricted."""
        return bool(self.forbidden or self.pins)

    def applied(self, problem: CascadeProblem) -> CascadeProblem:
        """The problem under these restrictions."""
        names = {task.name for _, _, task in problem.tasks()}
        pins = dict(self.pins)
        for name in pins:
            if name not in names:
                what = f"no task is called {name!r}{did_you_mean(name, names)}"
                what += f"; there are {', '.join(sorted(names))}"
                raise click.BadParameter(what, param_hint="--pin")

        def pinned(task: Task) -> Task:
            return replace(task, allowed_devices=pins.get(task.name, task.allowed_devices))

        cascades = [replace(c, tasks=tuple(map(pinned, c.tasks))) for c in problem.cascades]
        return replace(problem, cascades=tuple(cascades), forbidden_devices=self.forbidden)


def restriction_options(command: Command) -> Command:
    """``--forbid --pin``."""
    forbid = click.option(
        "--forbid",
        metavar="DEVICES",
        help="Devices that no task may use, such as 3,7 or 8-15.",
    )
    pin = click.option(
        "--pin",
        "pins",
        multiple=True,
        metavar="TASK=DEVICES",
        help="Devices that tasks of a name keep to, such as encode=0-7.",
    )
    return forbid(pin(command))


def parse_devices(text: str) -> tuple[int, ...]:
    """Device numbers such as ``3,7`` or ``0-7,12``."""
    found: set[int] = set()
    for part in text.split(","):
        first, dash, last = part.strip().partition("-")
        if not (first.isdecimal() and (last.isdecimal() or not dash)):
            raise click.BadParameter(f"cannot read the devices {text!r}; try 3,7 or 0-7")
        low, high = int(first), int(last or first)
        if high < low or high - low > _MOST:
            raise click.BadParameter(f"{part.strip()!r} is no range of devices; try 0-7")
        found.update(range(low, high + 1))
    return tuple(sorted(found))


def _pin(text: str) -> tuple[str, tuple[int, ...]]:
    name, equals, devices = text.partition("=")
    if not (name and equals):
        raise click.BadParameter(f"cannot read the pin {text!r}; try encode=0-7")
    return name, parse_devices(devices)
