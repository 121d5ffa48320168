"""Timelines as a still picture, by matplotlib: for papers, slides and issue trackers."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from arachne_opt.errors import InputError, MissingDependencyError
from arachne_opt.report.timeline import Span, Timeline
from arachne_opt.report.wording import count, spans_of
from arachne_opt.units import US_PER_S, format_seconds

if TYPE_CHECKING:
    from matplotlib.axes import Axes

FORMATS = (".png", ".svg", ".pdf")

# Okabe and Ito, 2008: apart for colour-blind eyes.
_KINDS = ("#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#d55e00", "#f0e442")
_INK, _SOFT, _LINE = "#14181d", "#5b6573", "#dde1e7"
_ROW_INCHES, _LEAST_INCHES, _MOST_INCHES = 0.22, 1.6, 9.0
_WIDTH_INCHES = 11.0
_MOST_LABELS = 400


def save_plot(path: Path, title: str, timelines: Sequence[Timeline], bound_us: int = 0) -> None:
    """Draws timelines below each other on one scale; devices downwards, time to the right.

    Args:
        path: its ending decides the format: PNG, SVG or PDF.
        title: stands above the picture.
        timelines: such as planned and measured.
        bound_us: drawn as a dashed line where it is known.

    Raises:
        InputError: another ending, or the place cannot be written.
        MissingDependencyError: matplotlib is not installed.
    """
    if path.suffix.lower() not in FORMATS:
        what = f"pictures end in {', '.join(FORMATS)}, not in {path.suffix or 'nothing'!r}"
        raise InputError(what, where=str(path))
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        what = "pictures need matplotlib"
        raise MissingDependencyError(what, hint="pip install 'arachne-opt[plot]'") from error
    rows = max(len(_devices(line)) for line in timelines)
    each = min(_MOST_INCHES, max(_LEAST_INCHES, rows * _ROW_INCHES))
    # A figure of its own: the global state of pyplot stays as it is.
    figure = Figure(figsize=(_WIDTH_INCHES, each * len(timelines) + 1.3), layout="constrained")
    axes = figure.subplots(len(timelines), 1, sharex=True, squeeze=False)[:, 0]
    end_us = max([bound_us, *(line.end_us for line in timelines)])
    kinds = _kinds(timelines)
    for axis, timeline in zip(axes, timelines, strict=True):
        _draw(axis, timeline, kinds, end_us, bound_us)
    axes[-1].set_xlabel("seconds", color=_SOFT)
    axes[0].set_title(_title(title, timelines, bound_us), loc="left", fontsize=11, color=_INK)
    _legend(figure, kinds, bound_us)
    try:
        figure.savefig(path, dpi=160, metadata=_no_date(path))
    except OSError as error:
        raise InputError(f"cannot write: {error.strerror}", where=str(path)) from error


def _draw(
    axis: Axes, timeline: Timeline, kinds: dict[str, str], end_us: int, bound_us: int
) -> None:
    """Bars of equal work on neighbouring devices are one bar."""
    from matplotlib.collections import PatchCollection
    from matplotlib.patches import Rectangle

    devices = _devices(timeline)
    row_of = {device: row for row, device in enumerate(devices)}
    boxes: dict[str, list[Rectangle]] = {}
    labels = 0
    for (name, kind, start_us, stop_us), mine in _same(timeline, row_of).items():
        runs = spans_of(mine)
        for first, length in zip(runs[::2], runs[1::2], strict=True):
            left, width = start_us / US_PER_S, (stop_us - start_us) / US_PER_S
            boxes.setdefault(kind, []).append(Rectangle((left, first), width, length))
            roomy = len(name) * 0.0075 < (stop_us - start_us) / max(1, end_us)
            high = length * _MOST_INCHES / len(devices) > 0.12
            if roomy and high and labels < _MOST_LABELS:
                labels += 1
                at, ink = (left + width / 2, first + length / 2), _ink(kinds[kind])
                axis.annotate(name, at, ha="center", va="center", fontsize=6, color=ink)
    edge = 0.4 if len(devices) <= 128 else 0.1
    for kind, found in boxes.items():
        axis.add_collection(
            PatchCollection(found, facecolor=kinds[kind], edgecolor="white", linewidth=edge)
        )
    _frame(axis, timeline, devices, end_us)
    if bound_us:
        axis.axvline(bound_us / US_PER_S, color="#0a5fb4", linestyle="--", linewidth=1)
    axis.axvline(timeline.end_us / US_PER_S, color=_INK, linewidth=0.8)


def _frame(axis: Axes, timeline: Timeline, devices: Sequence[int], end_us: int) -> None:
    """Axes, and the names of nodes in the middle of their devices."""
    axis.set_xlim(0, max(1, end_us) / US_PER_S * 1.01)
    axis.set_ylim(len(devices), 0)
    process = {t.device: t.process for t in timeline.tracks}
    groups = [process[d] for d in devices]
    firsts = [i for i in range(len(groups)) if i == 0 or groups[i] != groups[i - 1]]
    step = -(-len(firsts) // 32)
    ends = [*firsts[1:], len(groups)]
    middles = [(a + b) / 2 for a, b in zip(firsts, ends, strict=True)]
    axis.set_yticks(middles[::step], [groups[a] for a in firsts[::step]])
    for first in firsts[1:] if len(firsts) <= 32 else ():
        axis.axhline(first, color=_LINE, linewidth=0.6, zorder=0)
    axis.set_ylabel(timeline.name, color=_SOFT)
    axis.tick_params(colors=_SOFT, length=2, labelsize=8)
    for side in ("top", "right"):
        axis.spines[side].set_visible(False)


def _legend(figure: Any, kinds: dict[str, str], bound_us: int) -> None:  # noqa: ANN401
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch

    entries: list[Any] = [Patch(facecolor=colour, label=kind) for kind, colour in kinds.items()]
    if bound_us:
        entries.append(Line2D([], [], color="#0a5fb4", linestyle="--", label="proven bound"))
    figure.legend(
        handles=entries, loc="outside lower center", ncols=len(entries), frameon=False, fontsize=8
    )


def _same(timeline: Timeline, row_of: dict[int, int]) -> dict[tuple[str, str, int, int], list[int]]:
    """Rows that do the same at the same time, by name, kind, start and end."""
    found: dict[tuple[str, str, int, int], list[int]] = {}
    for span in timeline.compute_spans():
        row = row_of[timeline.tracks[span.track].device]
        found.setdefault(_key(span), []).append(row)
    return found


def _key(span: Span) -> tuple[str, str, int, int]:
    return span.name, span.category, span.start_us, span.end_us


def _devices(timeline: Timeline) -> list[int]:
    """Devices in the order of their processes."""
    order = {name: i for i, name in enumerate(timeline.processes)}
    process = {t.device: order[t.process] for t in timeline.tracks}
    return sorted(process, key=lambda device: (process[device], device))


def _kinds(timelines: Sequence[Timeline]) -> dict[str, str]:
    names = dict.fromkeys(span.category for line in timelines for span in line.compute_spans())
    return {name: _KINDS[i % len(_KINDS)] for i, name in enumerate(names)}


def _title(title: str, timelines: Sequence[Timeline], bound_us: int) -> str:
    # A dollar would begin a formula.
    text = title.replace("$", r"\$") + f", {count(len(_devices(timelines[0])), 'device')}: "
    text += ", ".join(f"{line.name} {format_seconds(line.end_us)}" for line in timelines)
    return text + (f"; no plan beats {format_seconds(bound_us)}" if bound_us else "")


def _ink(colour: str) -> str:
    red, green, blue = (int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5))
    bright = 0.2126 * red**2.2 + 0.7152 * green**2.2 + 0.0722 * blue**2.2
    return _INK if bright > 0.32 else "white"


def _no_date(path: Path) -> dict[str, Any]:
    """Equal plans make equal files."""
    return {".svg": {"Date": None}, ".pdf": {"CreationDate": None}}.get(path.suffix.lower(), {})
