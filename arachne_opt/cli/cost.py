"""``arachne cost``: learn cost models from measurements, and say how far off they are."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from arachne_opt.cli.cost_models import CASCADES, LAYERS, found, keep
from arachne_opt.cli.options import FILE, OUTPUT, database_option, format_option
from arachne_opt.cli.output import emit_json, emit_table, percent, write_whole
from arachne_opt.cli.progress import ProgressLine
from arachne_opt.errors import InputError
from arachne_opt.settings import database_url

if TYPE_CHECKING:
    from arachne_opt.costs.learned.layers import LayerSample
    from arachne_opt.records import Measurement

_SEED = click.option("--seed", type=int, default=0, show_default=True, help="Seed of the fit.")
_NAME = click.option("--name", required=True, help="Name under which the model is kept.")
_OUT = click.option("--out", type=OUTPUT, help="Write the model to this file, too.")


@click.group()
def cost() -> None:
    """Learn cost models from measurements, and report their errors."""


@cost.group()
def fit() -> None:
    """Learn from measurements; keeps a new version in the database."""


@fit.command("cascade")
@_NAME
@click.option("--model", required=True, help="Video model that was measured, such as tiny-wan.")
@click.option("--device-type", "device_types", multiple=True, help="Only these types.")
@click.option(
    "--source",
    type=click.Choice(["profile", "replay"]),
    help="Only what was measured alone, or inside of runs. [default: both]",
)
@click.option("--durations", type=FILE, help="A file of published durations, not the database.")
@_SEED
@_OUT
@database_option
def fit_cascades(**options: Any) -> None:  # noqa: ANN401
    """Learn the time and memory of encode and denoise tasks.

    \b
    Example:
      arachne profile cascade --workload clips.csv --model tiny-wan --degrees 1,2
      arachne cost fit cascade --name here --model tiny-wan
      arachne solve cascade --workload clips.csv --cluster CPU:2 --cost-model here
    """
    from arachne_opt.costs.learned.cascade import fit_cascade
    from arachne_opt.costs.learned.fitting import FitOptions
    from arachne_opt.costs.learned.reports import cascade_report
    from arachne_opt.models import model_spec

    _require_name(options["name"])
    spec, rows = model_spec(options["model"]), _measurements(options)
    line, choices = ProgressLine(), FitOptions(seed=options["seed"])
    line.show(f"learning from {len(rows)} measurements of {spec.name}", force=True)
    model = fit_cascade(options["name"], spec, rows, choices)
    line.show("errors on held-out shapes", force=True)
    report = cascade_report(spec, rows, choices)
    line.clear()
    value = {"learned": model.to_json(), "report": report}
    _keep(model.version, spec.name, value, options)
    _show_report(model.version, report)


@fit.command("layers")
@_NAME
@click.option(
    "--profiles",
    "folder",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    help="Folder of measured profiles; without it, the database's (arachne profile layers).",
)
@click.option("--model", "models", multiple=True, help="Only these models. [default: all]")
@click.option(
    "--arithmetic",
    "arithmetics",
    multiple=True,
    metavar="MODEL:TYPE=KIND",
    help="How matrix products were computed: single, tf32 or half. [default: the type's usual]",
)
@_SEED
@_OUT
@database_option
def fit_layer_rows(**options: Any) -> None:  # noqa: ANN401
    """Learn the times of the rows of large models.

    \b
    Example:
      arachne cost fit layers --name pool --profiles FOLDER --arithmetic OPT-30:A100-40=single
      arachne solve pipeline --profiles FOLDER --cost-model pool ...
    """
    from arachne_opt.costs.learned.layers import fit_layers
    from arachne_opt.costs.learned.reports import layer_options, layer_report

    _require_name(options["name"])
    samples, line = _layer_samples(options), ProgressLine()
    line.show(f"errors on held-out step tables, {len(samples)} samples", force=True)
    choices = layer_options(options["seed"])
    report, error = layer_report(samples, choices)
    line.show("learning", force=True)
    model = fit_layers(options["name"], samples, error, choices)
    line.clear()
    value = {"learned": model.to_json(), "report": report}
    _keep(model.version, "layer rows", value, options)
    _show_report(model.version, report)


@cost.command()
@click.argument("name")
@click.option("--plot", type=OUTPUT, help="Draw predicted over measured times (PNG, SVG, PDF).")
@database_option
@format_option
def report(name: str, plot: Path | None, db_url: str | None, form: str) -> None:
    """Print held-out errors and coverage of a learned model, beside simpler ones.

    Example: arachne cost report wan-here --plot errors.png
    """
    version, description = found(name, (CASCADES, LAYERS), db_url)
    value = description.get("report")
    if not isinstance(value, dict):
        raise InputError("this cost model has no report", where=version, hint="arachne cost fit")
    if plot is not None:
        from arachne_opt.report.cost_plot import draw_report

        draw_report(value, plot, version)
        click.echo(f"drawn to {plot}", err=True)
    if form == "json":
        emit_json("cost-report", {"version": version, **value})
        return
    _show_report(version, value)


def _show_report(version: str, value: dict[str, Any]) -> None:
    """A row per part and method."""
    click.echo(version)
    rows = []
    for part, found_ in value["parts"].items():
        for method, error in found_["errors"].items():
            mine = method == "learned"
            covered = percent(found_["coverage"]) if mine else None
            outside = found_["count"] - found_["near"] if mine else None
            rows.append([part, method, found_["count"], percent(error), covered, outside])
    emit_table(
        ["what", "method", "points", "held-out error", "in 90 % interval", "core alone"], rows
    )
    for note in value.get("notes", ()):
        click.echo(note)


def _measurements(options: dict[str, Any]) -> tuple[Measurement, ...]:
    types = set(options["device_types"])
    if options["durations"] is not None:
        from arachne_opt.importers.durations import read_durations

        rows = read_durations(options["durations"], model=options["model"])
    else:
        from arachne_opt.db.store import PlanStore

        with PlanStore.open(database_url(options["db_url"])) as store:
            rows = store.measurements(model=options["model"], source=options["source"])
    # Where activations are computed again, tasks are others: they would blur what is learnt.
    return tuple(m for m in rows if not m.recompute and (not types or m.device_type in types))


def _layer_samples(options: dict[str, Any]) -> tuple[LayerSample, ...]:
    from arachne_opt.costs.learned.arithmetic import stated_arithmetic
    from arachne_opt.costs.learned.layers import samples_of

    arithmetic = stated_arithmetic(options["arithmetics"])
    if options["folder"] is None:
        from arachne_opt.cli.layer_rows import measured_samples

        return measured_samples(options["models"], options["db_url"], arithmetic)
    from arachne_opt.importers.pipeline_profiles import profiled_models, read_profiles

    names = options["models"] or profiled_models(options["folder"])
    profiles = [read_profiles(options["folder"], name) for name in names]
    return samples_of(profiles, arithmetic)


def _require_name(name: str) -> None:
    if not name or any(sign in name for sign in "/:%"):
        raise InputError(f"a cost model cannot be called {name!r}", hint="letters and digits")


def _keep(version: str, model: str, value: dict[str, Any], options: dict[str, Any]) -> None:
    from arachne_opt.db.store import PlanStore

    error = max(part["errors"]["learned"] for part in value["report"]["parts"].values())
    with PlanStore.open(database_url(options["db_url"])) as store:
        keep(store, version, model, value, error)
    if options["out"] is not None:
        write_whole(options["out"], json.dumps(value) + "\n")
        click.echo(f"written to {options['out']}", err=True)
