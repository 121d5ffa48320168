"""A cascade plan as a Gantt chart for the terminal: devices downwards, time to the right."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from arachne_opt.cascade.plan import CascadePlan, Placement
from arachne_opt.cascade.problem import CascadeProblem
from arachne_opt.errors import InputError
from arachne_opt.units import format_seconds

# Stages in their order; a task of the last stage is the densest.
_FILLS = "░▒█"
_IDLE = "·"
_LEVELS = " ▁▂▃▄▅▆▇█"
_COLOURS = (39, 208, 76, 170, 220, 45, 203, 141, 113, 216, 75, 179)
_MAX_ROWS = 64
_MIN_CELLS = 10
_LEGEND = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class _Row:
    """Devices shown on one line: with one schedule, or folded to their load."""

    label: str
    devices: tuple[int, ...]
    placements: tuple[Placement, ...]
    folded: bool = False


def render_gantt(
    problem: CascadeProblem, plan: CascadePlan, width: int = 100, *, colour: bool = False
) -> str:
    """The chart of a legal plan as text, ``width`` columns wide, without a final line break.

    Devices of a node with the same tasks share a line. Where that leaves more than 64 lines, a
    line is a whole node, or several nodes, and shows how many of its devices run. ``colour``
    paints each cascade with an ANSI colour.
    """
    rows = _rows(problem, plan)
    margin = max(len(row.label) for row in rows) + 2
    cells = width - margin - 1
    if cells < _MIN_CELLS:
        raise InputError(f"a chart needs at least {margin + 1 + _MIN_CELLS} columns, not {width}")
    span_us = max(plan.makespan_us, 1)
    lines = [_headline(problem, plan), ""]
    lines += [
        f"{row.label:>{margin - 2}} ▕{_line(problem, row, span_us, cells, colour)}▏" for row in rows
    ]
    lines += [" " * margin + _axis(plan.makespan_us, cells), ""]
    lines += _legend(problem, any(row.folded for row in rows), colour)
    return "\n".join(lines)


# --------------------------------------------------------------------------------------- rows


def _rows(problem: CascadeProblem, plan: CascadePlan) -> list[_Row]:
    on_device: list[list[Placement]] = [[] for _ in problem.cluster.devices]
    for p in plan.placements:
        for d in p.devices:
            on_device[d].append(p)
    rows: list[_Row] = []
    for n, node in enumerate(problem.cluster.nodes):
        rows += _rows_of_node(node.name, problem.cluster.devices_of_node(n), on_device)
    return rows if len(rows) <= _MAX_ROWS else _folded_rows(problem, plan)


def _rows_of_node(
    name: str, devices: range, on_device: Sequence[Sequence[Placement]]
) -> list[_Row]:
    """One row per schedule of a node; devices are numbered through the cluster."""
    same: dict[tuple[Placement, ...], list[int]] = {}
    for d in devices:
        same.setdefault(tuple(on_device[d]), []).append(d)
    return [
        _Row(label=f"{name} {_ranges(group)}", devices=tuple(group), placements=placements)
        for placements, group in same.items()
    ]


def _folded_rows(problem: CascadeProblem, plan: CascadePlan) -> list[_Row]:
    """One row for as many neighbouring nodes as it takes to stay within the limit."""
    cluster = problem.cluster
    step = -(-len(cluster.nodes) // _MAX_ROWS)
    row_of_device = [device.node // step for device in cluster.devices]
    inside: dict[int, list[Placement]] = {row: [] for row in row_of_device}
    for p in plan.placements:
        for row in {row_of_device[d] for d in p.devices}:
            inside[row].append(p)
    rows = []
    for row, placements in inside.items():
        nodes = cluster.nodes[row * step : (row + 1) * step]
        devices = tuple(d for d, r in enumerate(row_of_device) if r == row)
        name = nodes[0].name if len(nodes) == 1 else f"{nodes[0].name}-{nodes[-1].name}"
        label = f"{name} ({len(devices)})"
        rows.append(_Row(label=label, devices=devices, placements=tuple(placements), folded=True))
    return rows


# -------------------------------------------------------------------------------------- cells


def _line(problem: CascadeProblem, row: _Row, span_us: int, cells: int, colour: bool) -> str:
    if row.folded:
        return _load_line(row, span_us, cells)
    owners = _owners(row.placements, span_us, cells)
    text, at = "", 0
    while at < cells:
        end = at + 1
        while end < cells and owners[end] is owners[at]:
            end += 1
        text += _bar(problem, owners[at], end - at, colour)
        at = end
    return text


def _owners(placements: Sequence[Placement], span_us: int, cells: int) -> list[Placement | None]:
    """For each cell the task that fills most of it, None where idle time does."""
    best_us = [0.0] * cells
    used_us = [0.0] * cells
    owners: list[Placement | None] = [None] * cells
    for p in placements:
        for cell, inside_us in _shares(p, span_us, cells):
            used_us[cell] += inside_us
            if inside_us > best_us[cell]:
                best_us[cell], owners[cell] = inside_us, p
    cell_us = span_us / cells
    return [
        owner if best >= cell_us - used else None
        for owner, best, used in zip(owners, best_us, used_us, strict=True)
    ]


def _bar(problem: CascadeProblem, p: Placement | None, length: int, colour: bool) -> str:
    """A task's bar: the number of its cascade where there is room, then its stage's filling."""
    if p is None:
        return _IDLE * length
    label = str(p.cascade)
    head = label if len(label) < length else ""
    bar = head + _fill(problem, p) * (length - len(head))
    return _paint(bar, p.cascade) if colour else bar


def _load_line(row: _Row, span_us: int, cells: int) -> str:
    """The share of a row's devices that run, cell by cell, as the height of a block."""
    used_us = [0.0] * cells
    inside = set(row.devices)
    for p in row.placements:
        count = len(inside.intersection(p.devices))
        for cell, inside_us in _shares(p, span_us, cells):
            used_us[cell] += count * inside_us
    full_us = span_us / cells * len(row.devices)
    top = len(_LEVELS) - 1
    # Rounded up, but for the float's last digits: a single busy device among many should show.
    heights = [math.ceil(top * used / full_us - 1e-9) for used in used_us]
    return "".join(_LEVELS[min(top, height)] for height in heights)


def _shares(p: Placement, span_us: int, cells: int) -> Iterator[tuple[int, float]]:
    """The cells that a task touches, each with the time that it spends there."""
    cell_us = span_us / cells
    last = min(cells - 1, int(p.end_us / cell_us))
    for cell in range(int(p.start_us / cell_us), last + 1):
        inside_us = min(p.end_us, (cell + 1) * cell_us) - max(p.start_us, cell * cell_us)
        if inside_us > 0:
            yield cell, inside_us


def _fill(problem: CascadeProblem, p: Placement) -> str:
    """The last task of a cascade is the densest; earlier ones are lighter."""
    before_last = len(problem.cascades[p.cascade].tasks) - 1 - p.task
    return _FILLS[max(0, len(_FILLS) - 1 - before_last)]


def _paint(text: str, cascade: int) -> str:
    return f"\x1b[38;5;{_COLOURS[cascade % len(_COLOURS)]}m{text}\x1b[0m"


# ------------------------------------------------------------------------------------- frames


def _headline(problem: CascadeProblem, plan: CascadePlan) -> str:
    count = problem.cluster.device_count
    busy_us = sum(p.degree * (p.end_us - p.start_us) for p in plan.placements)
    total_us = count * plan.makespan_us
    idle = 100 * (1 - busy_us / total_us) if total_us else 0.0
    text = f"{problem.name}: {_count(len(problem.cascades), 'cascade')}, "
    text += f"{_count(len(plan.placements), 'task')} on {_count(count, 'device')}, "
    return text + f"makespan {format_seconds(plan.makespan_us)}, idle {idle:.1f} %"


def _axis(makespan_us: int, cells: int) -> str:
    """Start, middle and end of the time, below their places."""
    start, middle, end = "0", format_seconds(makespan_us // 2), format_seconds(makespan_us)
    half = cells // 2 - len(middle) // 2
    text = start.ljust(half) + middle if half > len(start) else start
    room = cells - len(text) - len(end)
    return text + " " * room + end if room > 0 else start + end.rjust(cells - len(start))


def _legend(problem: CascadeProblem, folded: bool, colour: bool) -> list[str]:
    if folded:
        return [f"height = share of the line's devices that run: {_LEVELS[1:]}"]
    longest = max(problem.cascades, key=lambda c: len(c.tasks))
    fills = []
    for t, task in enumerate(longest.tasks):
        level = max(0, len(_FILLS) - len(longest.tasks) + t)
        fills.append(f"{_FILLS[level]} {task.name}")
    lines = ["  ".join([*fills, f"{_IDLE} idle", "number = cascade"])]
    shown = list(enumerate(problem.cascades))[:_LEGEND]
    names = [f"{i} {cascade.label or cascade.id}" for i, cascade in shown]
    if colour:
        names = [_paint(name, i) for i, name in enumerate(names)]
    rest = len(problem.cascades) - len(shown)
    return [*lines, "  ".join(names) + (f"  and {rest} more" if rest else "")]


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def _ranges(numbers: Sequence[int]) -> str:
    """Numbers with runs written short: ``0-3,6``."""
    runs: list[list[int]] = []
    for number in numbers:
        if runs and number == runs[-1][-1] + 1:
            runs[-1].append(number)
        else:
            runs.append([number])
    return ",".join(str(r[0]) if len(r) == 1 else f"{r[0]}-{r[-1]}" for r in runs)
