"""``arachne profile layers|links``: rows of large models, and curves of the links."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import click
import numpy as np

from arachne_opt.cli.options import database_option
from arachne_opt.cli.output import emit_table, percent
from arachne_opt.cli.profile_rounds import (
    Choose,
    finish,
    in_rounds,
    is_first_rank,
    under_torchrun,
)
from arachne_opt.cli.progress import ProgressLine
from arachne_opt.cli.sources import parse_degrees
from arachne_opt.settings import database_url
from arachne_opt.units import format_bytes, format_seconds

if TYPE_CHECKING:
    from collections.abc import Callable

    from arachne_opt.executor.device_job import DeviceJob
    from arachne_opt.executor.launch import ProgressCallback
    from arachne_opt.records import Measurement

_SIZES = "16384,131072,1048576,8388608"


def _device_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Options of both commands."""
    options = [
        click.option(
            "--ranks", type=click.IntRange(min=1), help="Processes. [default: largest degree]"
        ),
        click.option(
            "--repeats",
            type=click.IntRange(min=1),
            default=5,
            show_default=True,
            help="Measurements of each point; the median counts.",
        ),
        click.option(
            "--warmup",
            type=click.IntRange(min=0),
            default=2,
            show_default=True,
            help="Runs before these.",
        ),
        click.option(
            "--threads", type=click.IntRange(min=0), default=0, help="Per rank; 0 shares cores."
        ),
        click.option(
            "--device-type", default="CPU", show_default=True, help="Name of the device type."
        ),
    ]
    for option in reversed(options):
        command = option(command)
    return command


@click.command()
@click.option("--model", required=True, help="Language model, such as OPT-350M, or module:NAME.")
@click.option("--sequence-length", type=click.IntRange(min=1), help="Tokens of a sample.")
@click.option("--tp", "tps", default="1,2", show_default=True, help="Tensor-parallel degrees.")
@click.option("--microbatches", default="1,2,4", show_default=True, help="Samples at a time.")
@click.option(
    "--budget",
    "budget_s",
    type=click.FloatRange(min=0, min_open=True),
    help="Seconds: measure the points that a learned model is the least sure of, until then.",
)
@_device_options
@database_option
def layers(**options: Any) -> None:  # noqa: ANN401
    """Measure forward, backward and update of embedding, block and head.

    Every repeat is kept as a measurement of its own, for ``arachne cost fit layers``.

    Example: arachne profile layers --model OPT-350M --tp 1,2 --budget 60
    """
    tps, counts = parse_degrees(options["tps"]), parse_degrees(options["microbatches"])
    assert tps is not None
    assert counts is not None
    points = tuple((tp, m) for tp in tps for m in counts)
    job = _job(
        options, model=options["model"], sequence_length=options["sequence_length"] or 0,
        points=points,
    )  # fmt: skip
    if options["budget_s"] is None:
        rows = _measure(job, options["ranks"] or job.widest)
    else:

        def some(chosen: Sequence[int], on_progress: ProgressCallback) -> tuple[Measurement, ...]:
            part = replace(job, points=tuple(points[i] for i in chosen))
            return _run_ranks(part, options["ranks"] or job.widest, on_progress)

        rows = in_rounds(len(points), options["budget_s"], _choose_points(job), some)
    if is_first_rank():
        _keep(rows, options["db_url"])
        _show_rows(rows)
    finish()


@click.command()
@click.option("--degrees", default="2", show_default=True, help="Ranks that exchange messages.")
@click.option("--sizes", default=_SIZES, show_default=True, help="Bytes of a rank's message.")
@_device_options
@database_option
def links(**options: Any) -> None:  # noqa: ANN401
    """Measure all-to-all, all-reduce and p2p over sizes; fits latency and bandwidth.

    Example: arachne profile links --degrees 2,4
    """
    degrees, sizes = parse_degrees(options["degrees"]), parse_degrees(options["sizes"])
    assert degrees is not None
    assert sizes is not None
    if max(degrees) < 2:
        raise click.UsageError("a link needs at least two ranks: --degrees 2")
    job = _job(options, degrees=degrees, sizes_bytes=sizes)
    rows = _measure(job, options["ranks"] or job.widest)
    if is_first_rank():
        _keep(rows, options["db_url"])
        _show_links(rows)
    finish()


def link_line(sizes: Sequence[int], times_us: Sequence[float]) -> tuple[float, float]:
    """Latency in microseconds and bytes per second of the best line through median times.

    Relative errors count, so that small messages decide the latency and large ones the rate.
    """
    x, y = np.array(sizes, dtype=np.float64), np.array(times_us, dtype=np.float64)
    design = np.column_stack([np.ones_like(x), x]) / y[:, None]
    latency, slope = np.linalg.lstsq(design, np.ones_like(y), rcond=None)[0]
    if latency < 0:
        latency, slope = 0.0, float(np.mean(y / x))
    return float(latency), float("inf") if slope <= 0 else 1e6 / float(slope)


def _job(options: dict[str, Any], **what: Any) -> DeviceJob:  # noqa: ANN401
    from arachne_opt.executor.device_job import DeviceJob

    return DeviceJob(
        warmup=options["warmup"],
        repeats=options["repeats"],
        threads_per_rank=options["threads"],
        device_type=options["device_type"],
        **what,
    )


def _measure(job: DeviceJob, ranks: int) -> tuple[Measurement, ...]:
    line = ProgressLine()
    try:
        return _run_ranks(job, ranks, lambda p: line.show(f"measured {p.done}/{p.total}  {p.text}"))
    finally:
        line.clear()


def _run_ranks(
    job: DeviceJob, ranks: int, on_progress: ProgressCallback
) -> tuple[Measurement, ...]:
    if under_torchrun():
        from arachne_opt.executor.measure_here import measure_devices_here

        return measure_devices_here(job, on_progress)
    from arachne_opt.executor.device_job import measure_devices

    return measure_devices(job, ranks, on_progress=on_progress)


def _choose_points(job: DeviceJob) -> Choose:
    """Points whose rows a committee is the least sure of."""
    from arachne_opt.cli.layer_rows import layer_samples, unsure_points
    from arachne_opt.costs.learned.active import FEWEST_GROUPS, most_unsure, spread_out
    from arachne_opt.costs.learned.arithmetic import usual

    places = np.log(np.array(job.points, dtype=np.float64))

    def choose(
        measured: Sequence[int], rows: Sequence[Measurement], wanted: int
    ) -> tuple[int, ...]:
        if len(measured) < FEWEST_GROUPS:
            return spread_out(places, measured, wanted)
        unsure = unsure_points(layer_samples(rows, usual), job.points)
        return most_unsure(places, unsure, measured, wanted)

    return choose


def _keep(rows: Sequence[Measurement], db_url: str | None) -> None:
    from arachne_opt.db.store import PlanStore

    with PlanStore.open(database_url(db_url)) as store:
        store.add_measurements(rows)


def _by_point(rows: Sequence[Measurement]) -> dict[tuple[str, int, int, int], list[Measurement]]:
    found: dict[tuple[str, int, int, int], list[Measurement]] = {}
    for m in rows:
        found.setdefault((m.task, m.degree, m.batch, m.width), []).append(m)
    return found


def _spread(times: Sequence[int]) -> str | None:
    """Distance from the lowest to the highest quarter, over the median."""
    if len(times) < 2:
        return None
    low, middle, high = np.percentile(times, [25, 50, 75])
    return percent(float((high - low) / middle))


def _show_rows(rows: Sequence[Measurement]) -> None:
    lines = []
    for (task, tp, batch, _), same in _by_point(rows).items():
        times = [m.duration_us for m in same]
        peak = format_bytes(max(m.memory_bytes for m in same))
        time = format_seconds(round(statistics.median(times)))
        lines.append([task.removeprefix("row "), tp, batch, time, _spread(times), peak])
    emit_table(["row", "tp", "micro-batch", "median", "spread", "peak memory"], lines)


def _show_links(rows: Sequence[Measurement]) -> None:
    lines, curves = [], dict[tuple[str, int], list[tuple[int, float]]]()
    for (task, degree, _, size), same in _by_point(rows).items():
        times = [m.duration_us for m in same]
        middle = statistics.median(times)
        name = task.removeprefix("link ")
        curves.setdefault((name, degree), []).append((size, middle))
        shown = format_seconds(round(middle))
        lines.append([name, degree, format_bytes(size), shown, _spread(times)])
    emit_table(["operation", "ranks", "message", "median", "spread"], lines)
    for (name, degree), curve in curves.items():
        latency, rate = link_line(*zip(*curve, strict=True))
        speed = f"{rate / 1e9:.3g} GB/s" if np.isfinite(rate) else "more than these sizes tell"
        click.echo(f"{name} among {degree}: {latency:.0f} us and {speed} of a rank")
