"""A picture of a learned cost model's held-out errors: predicted over measured times."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from arachne_opt.errors import InputError, MissingDependencyError


def draw_report(report: dict[str, Any], path: Path, title: str) -> None:
    """Draws a panel per part, with the 90 % intervals, on logarithmic axes.

    Args:
        report: ``parts`` as they are kept with a model.
        path: picture to write; its ending decides the form.
        title: above the panels.

    Raises:
        MissingDependencyError: matplotlib is not installed.
        InputError: the picture cannot be written.
    """
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise MissingDependencyError("matplotlib draws pictures", hint="the extra plot") from error
    parts = report["parts"]
    figure = Figure(figsize=(4.6 * max(1, len(parts)), 4.8), layout="constrained")
    panels = figure.subplots(1, max(1, len(parts)), squeeze=False)[0]
    for panel, (name, part) in zip(panels, parts.items(), strict=False):
        _draw_part(panel, name, part, report["unit"])
    figure.suptitle(title, fontsize=9)
    try:
        figure.savefig(path, dpi=130)
    except (OSError, ValueError) as error:
        raise InputError(f"cannot draw: {error}", where=str(path)) from error


def _draw_part(panel: Any, name: str, part: dict[str, Any], unit: str) -> None:  # noqa: ANN401 - matplotlib types no axes
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

    points = part["points"]
    measured, predicted, low, high = ([row[i] for row in points] for i in range(4))
    below = [max(0.0, p - x) for p, x in zip(predicted, low, strict=True)]
    above = [max(0.0, x - p) for p, x in zip(predicted, high, strict=True)]
    panel.errorbar(
        measured,
        predicted,
        yerr=[below, above],
        fmt="o",
        markersize=3,
        linewidth=0.6,
        color="#1f4e79",
        ecolor="#9db8d2",
    )
    ends = [min(measured + predicted), max(measured + predicted)]
    panel.plot(ends, ends, color="#888888", linewidth=0.8)
    panel.set_xscale("log")
    panel.set_yscale("log")
    for axis in (panel.xaxis, panel.yaxis):
        axis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
        axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
        axis.set_minor_formatter(NullFormatter())
    panel.set_xlabel(f"measured ({unit})")
    panel.set_ylabel(f"predicted, held out ({unit})")
    error, covered = part["errors"]["learned"], part["coverage"]
    panel.set_title(f"{name}: {100 * error:.1f} % off, {100 * covered:.0f} % in 90 % intervals")
    panel.title.set_fontsize(9)
