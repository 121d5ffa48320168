"""Learned cost models by name: kept in the plan database, or in a file."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from arachne_opt.cluster import Cluster
from arachne_opt.costs.analytic import AnalyticCostModel
from arachne_opt.errors import InputError
from arachne_opt.settings import database_url
from arachne_opt.suggest import did_you_mean

if TYPE_CHECKING:
    from collections.abc import Callable

    from arachne_opt.costs.learned.cascade import LearnedCostModel
    from arachne_opt.costs.learned.layers import LearnedLayers
    from arachne_opt.db.store import PlanStore

CASCADES = "learned"
LAYERS = "learned-layers"

_SHOWN = 3


def cost_model_option(command: Callable[..., Any]) -> Callable[..., Any]:
    """``--cost-model NAME`` and ``--risk Q``."""
    risk = click.option(
        "--risk",
        type=click.FloatRange(min=0, max=1, min_open=True, max_open=True),
        metavar="Q",
        help="Plan with this quantile of the predicted times, such as 0.9. [default: the middle]",
    )
    name = click.option(
        "--cost-model",
        "cost_model",
        metavar="NAME",
        help="Learned costs (arachne cost fit): a name in the database, or a file.",
    )
    return name(risk(command))


def keep(
    store: PlanStore, version: str, model: str, description: dict[str, Any], error: float
) -> None:
    """Keeps a fitted model with its report."""
    from arachne_opt.db.cost_rows import keep_cost_model

    store.database.write(lambda c: keep_cost_model(c, version, model, description, error))


def found(name: str, families: tuple[str, ...], db_url: str | None) -> tuple[str, dict[str, Any]]:
    """Version and description of the newest model of a name, or of a file.

    Raises:
        InputError: there is none of this name, or the file cannot be read.
    """
    if Path(name).is_file():
        return name, _of_file(Path(name))
    from arachne_opt.db.cost_rows import cost_model_families, newest_cost_model
    from arachne_opt.db.store import PlanStore

    known: list[str] = []
    with PlanStore.open(database_url(db_url)) as store:
        for family in families:
            key = f"{family}/{name}"
            hit = store.database.read(lambda c, key=key: newest_cost_model(c, key))  # type: ignore[misc]  # a default binds the loop's value
            if hit is not None:
                return hit
            known += store.database.read(lambda c, family=family: cost_model_families(c, family))  # type: ignore[misc]  # likewise
    what = f"no learned cost model is called {name!r}{did_you_mean(name, known)}"
    hint = f"one of {', '.join(sorted(set(known)))}" if known else "arachne cost fit"
    raise InputError(what, hint=hint)


def learned_cascades(
    name: str, db_url: str | None, analytic: Callable[[str], AnalyticCostModel], risk: float | None
) -> LearnedCostModel:
    """The newest learned model of cascade tasks, with the analytic model of a cluster.

    Args:
        name: name or file.
        db_url: database flag.
        analytic: makes the analytic model of a named video model.
        risk: quantile of the durations.
    """
    from arachne_opt.costs.learned.cascade import learned_from_json

    version, description = found(name, (CASCADES,), db_url)
    model = learned_from_json(description["learned"], version)
    return model.for_cluster(analytic(model.spec.name), risk)


def learned_layers(name: str, db_url: str | None) -> LearnedLayers:
    """The newest learned model of layer rows."""
    from arachne_opt.costs.learned.layers import layers_from_json

    version, description = found(name, (LAYERS,), db_url)
    return layers_from_json(description["learned"], version)


def tell_fallbacks(model: LearnedCostModel, cluster: Cluster) -> None:
    """Says on stderr what the analytic core alone has priced."""
    outside = [
        where for where in model.fallbacks if where[2] <= max(cluster.count_of_type.values())
    ]
    if not outside:
        return
    shown = ", ".join(f"{task} {label} at degree {k}" for task, label, k, _ in outside[:_SHOWN])
    more = f" and {len(outside) - _SHOWN} more" if len(outside) > _SHOWN else ""
    what = f"{len(outside)} prices lie outside what {model.name} was trained on"
    click.echo(f"{what}; its analytic core was used: {shown}{more}", err=True)


def require_learned(options: dict[str, Any]) -> None:
    """Refuses ``--risk`` without a learned model, and one where prices come from elsewhere."""
    if options["risk"] is not None and options["cost_model"] is None:
        raise click.UsageError("--risk goes with --cost-model: other costs know no error")
    if options["cost_model"] is None:
        return
    if options.get("instances") is not None:
        raise click.UsageError("--cost-model goes with --workload: instances have their prices")
    if options.get("group") == "clips":
        raise click.UsageError("--cost-model goes with the micro-batches of buckets only")


def _of_file(path: Path) -> dict[str, Any]:
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise InputError(f"cannot read the cost model: {error}", where=str(path)) from error
    if not isinstance(value, dict) or not isinstance(value.get("learned"), dict):
        raise InputError(
            "no learned cost model", where=str(path), hint="a file of arachne cost fit --out"
        )
    return value
