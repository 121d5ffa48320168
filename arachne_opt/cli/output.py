"""Answers on stdout: tables for people, versioned JSON for programs."""

from __future__ import annotations

import json
import os
import shutil
import sys
from collections.abc import Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import click

from arachne_opt.cascade.plan import CascadePlan
from arachne_opt.cascade.problem import CascadeProblem
from arachne_opt.errors import InputError
from arachne_opt.units import format_seconds


def emit_json(kind: str, body: dict[str, Any]) -> None:
    """Prints a JSON document that names its format, ``arachne.<kind>/1``."""
    click.echo(json.dumps({"format": f"arachne.{kind}/1", **body}, indent=1, ensure_ascii=False))


def emit_table(head: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """Prints aligned columns; numbers are right-aligned, None is a dash."""
    cells = [[_cell(value) for value in row] for row in rows]
    numeric = [bool(cells) and all(_is_number(row[i]) for row in cells) for i in range(len(head))]
    widths = [max(len(r[i]) for r in [list(head), *cells]) for i in range(len(head))]
    for row in [list(head), *cells]:
        parts = [
            text.rjust(width) if right else text.ljust(width)
            for text, width, right in zip(row, widths, numeric, strict=True)
        ]
        click.echo("  ".join(parts).rstrip())


def percent(share: float | None) -> str | None:
    """A share such as 0.0412 as ``4.1 %``."""
    return None if share is None else f"{100 * share:.1f} %"


def iteration_text(problem: CascadeProblem, makespan_us: int) -> str:
    """The time of the iteration that a makespan makes, with what its tail is."""
    whole = format_seconds(problem.iteration_us(makespan_us))
    if not problem.tail_us:
        return f"{whole} (gradient synchronisation and optimizer are not priced)"
    tail = format_seconds(problem.tail_us)
    return f"{whole} with {tail} of gradient synchronisation and optimizer"


def draw(problem: CascadeProblem, plan: CascadePlan, width: int | None = None) -> str:
    """A plan as a Gantt chart, as wide as the terminal, in colour where it is one."""
    from arachne_opt.report.gantt import render_gantt

    columns = width or shutil.get_terminal_size((100, 24)).columns
    return render_gantt(problem, plan, columns, colour=sys.stdout.isatty())


def write_whole(path: Path, text: str) -> None:
    """Writes a file whole or not at all.

    Raises:
        InputError: the place cannot be written.
    """
    write_whole_bytes(path, text.encode())


def write_whole_bytes(path: Path, data: bytes) -> None:
    """The same for bytes."""
    part = part_beside(path)
    try:
        part.write_bytes(data)
        put_in_place(part, path)
    except OSError as error:
        if part != path:
            with suppress(OSError):
                part.unlink()
        raise InputError(f"cannot write: {error.strerror}", where=str(path)) from error


def part_beside(path: Path) -> Path:
    """Where a file is written before it takes its name.

    That is the path itself where a device or a pipe stands: it must stay what it is.
    """
    if path.exists() and not path.is_file():
        return path
    # Not a temporary file: that would be readable by its owner alone.
    return path.with_name(f".{path.name}.{os.getpid()}.part")


def put_in_place(part: Path, path: Path) -> None:
    """Gives a written part its name."""
    if part != path:
        os.replace(part, path)


def _cell(value: object) -> str:
    return "–" if value is None else str(value)


def _is_number(text: str) -> bool:
    return text[:1].isdigit() or text in ("–", "") or text[:1] == "-"
