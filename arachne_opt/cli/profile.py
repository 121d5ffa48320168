"""``arachne profile``: measure tasks on the devices at hand."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from arachne_opt.cli.options import (
    FILE,
    OUTPUT,
    database_option,
    recompute_option,
    text_encoder_option,
    workload_options,
)
from arachne_opt.cli.output import emit_table, write_whole
from arachne_opt.cli.profile_devices import layers, links
from arachne_opt.cli.profile_rounds import (
    choose_shapes,
    finish,
    in_rounds,
    is_first_rank,
    under_torchrun,
)
from arachne_opt.cli.progress import ProgressLine
from arachne_opt.cli.sources import GroupingOptions, load_workload, parse_degrees
from arachne_opt.models import model_spec
from arachne_opt.settings import database_url
from arachne_opt.units import format_bytes, format_seconds
from arachne_opt.workload import MicroBatch, Workload

if TYPE_CHECKING:
    from arachne_opt.executor.launch import ProgressCallback
    from arachne_opt.executor.measure import MeasureJob
    from arachne_opt.records import Measurement


@click.group()
def profile() -> None:
    """Measure tasks, rows and links on the devices at hand."""


profile.add_command(layers)
profile.add_command(links)


@profile.command()
@click.option("--workload", "manifest", type=FILE, required=True, help="Manifest of clips.")
@workload_options
@click.option("--model", required=True, help="Model preset to run, such as tiny-wan or toy.")
@click.option("--checkpoint", default="", help="Local folder in diffusers' layout instead.")
@recompute_option
@text_encoder_option
@click.option("--degrees", default="1,2", show_default=True, help="Degrees to measure.")
@click.option("--ranks", type=click.IntRange(min=1), help="Processes. [default: largest degree]")
@click.option(
    "--repeats",
    type=click.IntRange(min=1),
    default=3,
    show_default=True,
    help="Measurements of each point; the median counts.",
)
@click.option("--threads", type=click.IntRange(min=0), default=0, help="Per rank; 0 shares cores.")
@click.option("--device-type", default="CPU", show_default=True, help="Name of the device type.")
@click.option(
    "--budget",
    "budget_s",
    type=click.FloatRange(min=0, min_open=True),
    help="Seconds: measure the shapes that a learned model is the least sure of, until then.",
)
@click.option("--out", type=OUTPUT, help="Cost table to write.")
@database_option
def cascade(**options: Any) -> None:  # noqa: ANN401
    """Measure encode and denoise for every shape of a workload at each degree.

    Alone, it starts the ranks that it needs; under torchrun, it uses those. The medians go to the
    database, for ``arachne cost fit``, and to a cost table for ``solve cascade --costs``.

    Example: arachne profile cascade --workload clips.csv --model tiny-wan --out costs.json
    """
    job = _task_job(options)
    ranks = options["ranks"] or max(job.degrees)
    if options["budget_s"] is None:
        rows = measure(job, ranks)
    else:
        rows = _measure_unsure(job, ranks, options["budget_s"])
    if is_first_rank():
        keep(rows, options["db_url"])
        if options["out"]:
            write_table(rows, options["model"], options["out"])
            click.echo(f"{len(rows)} measurements written to {options['out']}", err=True)
        show_measurements(rows)
    finish()


def _task_job(options: dict[str, Any]) -> MeasureJob:
    from arachne_opt.executor.job import TASK_CHAIN, TASKS
    from arachne_opt.executor.measure import MeasureJob
    from arachne_opt.executor.model_config import ModelChoice

    grouping = GroupingOptions.taken_from(options)
    workload = load_workload(options["manifest"], grouping, model_spec(options["model"]))
    degrees = parse_degrees(options["degrees"])
    assert degrees is not None
    return MeasureJob(
        model=ModelChoice(
            preset=options["model"],
            checkpoint=options["checkpoint"],
            checkpointing=options["recompute"] == "always",
        ),
        batches=distinct_shapes(workload),
        degrees=degrees,
        repeats=options["repeats"],
        threads_per_rank=options["threads"],
        device_type=options["device_type"],
        recompute=options["recompute"] == "planned",
        tasks=TASKS if options["text_encoder"] else TASK_CHAIN,
    )


def _measure_unsure(job: MeasureJob, ranks: int, budget_s: float) -> tuple[Measurement, ...]:
    """The shapes of a job, the least sure first, until the budget ends."""
    spec = model_spec(job.model.preset)
    choose = choose_shapes(spec, job.batches, job.degrees, job.device_type)

    def some(chosen: Sequence[int], on_progress: ProgressCallback) -> tuple[Measurement, ...]:
        part = replace(job, batches=tuple(job.batches[i] for i in chosen))
        return run_ranks(part, ranks, on_progress)

    rows = in_rounds(len(job.batches), budget_s, choose, some)
    count = len({(m.batch, m.frames, m.height, m.width) for m in rows})
    if is_first_rank():
        click.echo(f"measured {count} of {len(job.batches)} shapes", err=True)
    return rows


def keep(rows: Sequence[Measurement], db_url: str | None) -> None:
    """Stores measurements."""
    from arachne_opt.db.store import PlanStore

    with PlanStore.open(database_url(db_url)) as store:
        store.add_measurements(rows)


def distinct_shapes(workload: Workload) -> tuple[MicroBatch, ...]:
    """One micro-batch per size and shape, the smallest first."""
    found: dict[str, MicroBatch] = {}
    for iteration in workload.iterations:
        for batch in iteration.micro_batches:
            found.setdefault(batch.label, batch)

    def pixels(batch: MicroBatch) -> int:
        return batch.size * batch.shape.frames * batch.shape.height * batch.shape.width

    return tuple(sorted(found.values(), key=pixels))


def measure(job: MeasureJob, ranks: int) -> tuple[Measurement, ...]:
    """Runs a measurement with a progress line."""
    line = ProgressLine()
    try:
        return run_ranks(
            job,
            ranks,
            lambda p: line.show(f"measured {p.done}/{p.total}  {p.text}"),
        )
    finally:
        line.clear()


def run_ranks(
    job: MeasureJob, ranks: int, on_progress: ProgressCallback
) -> tuple[Measurement, ...]:
    """Runs a measurement on ranks of torchrun's, or on its own ones."""
    if under_torchrun():
        from arachne_opt.executor.measure_here import measure_tasks_here

        return measure_tasks_here(job, on_progress)
    from arachne_opt.executor.measure import measure_local

    return measure_local(job, ranks, on_progress=on_progress)


def write_table(rows: Sequence[Measurement], model: str, out: Path) -> None:
    """Writes measurements as a cost table."""
    import json

    from arachne_opt.costs.table import TableCostModel, cost_table_to_json

    table = TableCostModel.from_measurements(model_spec(model), rows)
    write_whole(out, json.dumps(cost_table_to_json(table), indent=1) + "\n")


def show_measurements(rows: Sequence[Measurement]) -> None:
    """Prints a row per shape and task with the time at each degree."""
    degrees = sorted({row.degree for row in rows})
    lines: dict[tuple[str, str], dict[int, tuple[int, int]]] = {}
    for row in rows:
        label = f"{row.batch}x{row.frames}x{row.height}x{row.width}"
        task = f"{row.task}, recomputed" if row.recompute else row.task
        lines.setdefault((label, task), {})[row.degree] = row.duration_us, row.memory_bytes
    emit_table(
        ["clips x shape", "task", *(f"degree {k}" for k in degrees)],
        [
            [*key, *(_cell(costs[k]) if k in costs else None for k in degrees)]
            for key, costs in lines.items()
        ],
    )


def _cell(cost: tuple[int, int]) -> str:
    duration_us, memory_bytes = cost
    return f"{format_seconds(duration_us)} {format_bytes(memory_bytes)}"
