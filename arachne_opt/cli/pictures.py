"""Traces and still pictures of timelines, for every command that has some."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import click

from arachne_opt.cli.options import OUTPUT, Command
from arachne_opt.cli.output import write_whole
from arachne_opt.report.timeline import Timeline
from arachne_opt.report.trace import trace_of


def plot_option(command: Command) -> Command:
    """``--plot FILE``, refused at once where its ending is no format."""
    return click.option(
        "--plot",
        type=OUTPUT,
        callback=_known_format,
        help="Draw the timelines to this file: PNG, SVG or PDF, with matplotlib.",
    )(command)


def _known_format(
    context: click.Context, parameter: click.Parameter, path: Path | None
) -> Path | None:
    from arachne_opt.report.plot import FORMATS

    if path is not None and path.suffix.lower() not in FORMATS:
        raise click.BadParameter(f"{str(path)!r} does not end in {', '.join(FORMATS)}")
    return path


def write_trace(path: Path, timelines: Sequence[Timeline], about: Mapping[str, Any]) -> None:
    """Writes a Chrome/Perfetto trace of timelines beside each other, and says so."""
    write_whole(path, json.dumps(trace_of(timelines, about)))
    click.echo(f"trace written to {path}", err=True)


def write_plot(path: Path, title: str, timelines: Sequence[Timeline], bound_us: int = 0) -> None:
    """Draws timelines below each other with matplotlib, and says so."""
    from arachne_opt.report.plot import save_plot

    save_plot(path, title, timelines, bound_us)
    click.echo(f"picture written to {path}", err=True)
