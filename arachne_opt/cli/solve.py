"""``arachne solve``: plan iterations."""

from __future__ import annotations

from contextlib import ExitStack
from typing import Any

import click

from arachne_opt.cascade.problem import CascadeProblem
from arachne_opt.cascade.usable import without_devices
from arachne_opt.cli.cost_models import (
    cost_model_option,
    learned_cascades,
    require_learned,
    tell_fallbacks,
)
from arachne_opt.cli.options import (
    FILE,
    OUTPUT,
    PATH,
    database_option,
    format_option,
    group_option,
    limit_options,
    limits_of,
    recompute_option,
    seeds_option,
    text_encoder_option,
    warm_start_option,
    workload_options,
)
from arachne_opt.cli.pipeline import pipeline
from arachne_opt.cli.restrictions import Restrictions, restriction_options
from arachne_opt.cli.session import PlanFile, Session, show_answers
from arachne_opt.cli.sources import (
    GroupingOptions,
    build_problems,
    load_costs,
    load_workload,
    parse_degrees,
)
from arachne_opt.cli.workers import workers_of, workers_options
from arachne_opt.cluster import Cluster
from arachne_opt.costs.base import CostModel
from arachne_opt.costs.learned.cascade import LearnedCostModel
from arachne_opt.models import model_spec
from arachne_opt.planning.service import DEFAULT_SOLVER, PlanService
from arachne_opt.settings import database_url


@click.group()
def solve() -> None:
    """Plan iterations, with a proven gap."""


solve.add_command(pipeline)


@solve.command()
@click.option("--instances", type=PATH, help="Public instances: a JSON file or a folder of them.")
@click.option("--allow-estimates", is_flag=True, help="Use estimated candidates of instances too.")
@click.option("--only", multiple=True, metavar="GLOB", help="Only instances with such an id.")
@click.option("--exclude", multiple=True, metavar="GLOB", help="No instances with such an id.")
@click.option("--workload", "manifest", type=FILE, help="Manifest of clips, CSV or JSONL.")
@click.option("--cluster", help="Cluster file, or a shorthand such as H100-80:8x4.")
@click.option("--costs", "cost_table", type=FILE, help="Measured costs (arachne profile).")
@click.option("--model", help="Analytic costs of a model, such as wan2.1-14b, or of a config.json.")
@cost_model_option
@click.option("--degrees", help="Sequence-parallel degrees to choose from, such as 1,2,4.")
@text_encoder_option
@recompute_option
@restriction_options
@workload_options
@group_option
@click.option("--solver", default=DEFAULT_SOLVER, show_default=True, help="Method by name.")
@click.option("--no-cache", is_flag=True, help="Solve afresh even where a plan is stored.")
@warm_start_option
@seeds_option
@workers_options
@click.option("--out", type=OUTPUT, help="Write the plans to this file, one JSON line each.")
@limit_options
@database_option
@format_option
def cascade(**options: Any) -> int:  # noqa: ANN401
    """Place the cascades of iterations on a cluster.

    \b
    Examples:
      arachne solve cascade --workload clips.csv --cluster H100-80:8x4 --model wan2.1-14b
      arachne solve cascade --instances instances.json --time-limit 10 --out plans.jsonl
    """
    if not workers_of(options).alone and options["warm_start"] is not None:
        raise click.UsageError("--warm-start goes with one process only")
    require_learned(options)
    if options["group"] == "clips" and Restrictions.taken_from(options):
        raise click.UsageError("--group clips goes with neither --forbid nor --pin")
    if options["group"] == "clips":
        if options["warm_start"] is not None:
            raise click.UsageError("--warm-start goes with the micro-batches of buckets only")
        from arachne_opt.cli.batching import solve_clips

        return solve_clips(options)
    problems = _problems(options)
    limits = limits_of(options)
    session = Session(
        limits=limits,
        solver=options["solver"],
        use_cache=not options["no_cache"],
        warm_start=options["warm_start"],
        workers=workers_of(options),
    )
    try:
        with ExitStack() as stack:
            from arachne_opt.db.store import PlanStore

            store = stack.enter_context(PlanStore.open(database_url(options["db_url"])))
            out = stack.enter_context(PlanFile(options["out"])) if options["out"] else None
            session.run(PlanService(store, seeds=options["seeds"]), problems, out)
    finally:
        show_answers(session.answers, options["form"])
    return session.exit_code(options["gap"])


def _problems(options: dict[str, Any]) -> tuple[CascadeProblem, ...]:
    restrictions = Restrictions.taken_from(options)
    if (options["instances"] is None) == (options["manifest"] is None):
        raise click.UsageError("name either --instances FILE or --workload MANIFEST")
    if options["instances"] is not None and options["text_encoder"]:
        raise click.UsageError("--text-encoder goes with --workload: instances have their tasks")
    if options["instances"] is not None:
        from arachne_opt.importers.instances import read_instances

        found = read_instances(
            options["instances"],
            allow_estimates=options["allow_estimates"],
            only=options["only"],
            exclude=options["exclude"],
        )
        return tuple(restrictions.applied(instance.problem) for instance in found)
    if options["cluster"] is None:
        raise click.UsageError("--workload needs --cluster FILE or a shorthand")
    from arachne_opt.cluster_file import read_cluster

    cluster = read_cluster(options["cluster"])
    costs = _costs(options, without_devices(cluster, restrictions.forbidden))
    workload = load_workload(options["manifest"], GroupingOptions.taken_from(options), costs.model)
    degrees = parse_degrees(options["degrees"])
    problems = build_problems(workload, cluster, costs, degrees, restrictions.forbidden)
    if isinstance(costs, LearnedCostModel):
        tell_fallbacks(costs, cluster)
    return tuple(map(restrictions.applied, problems))


def _costs(options: dict[str, Any], usable: Cluster) -> CostModel:
    """Measured costs, learned ones, or those of the analytic model."""
    if options["cost_model"] is None:
        return load_costs(
            options["cost_table"],
            options["model"],
            usable,
            text_encoder=options["text_encoder"],
            recompute=options["recompute"],
        )
    if options["cost_table"] or options["model"] or options["text_encoder"]:
        what = "--cost-model goes with neither --costs, --model nor --text-encoder"
        raise click.UsageError(what)
    from arachne_opt.costs.analytic import analytic_for_cluster

    return learned_cascades(
        options["cost_model"],
        options["db_url"],
        lambda name: analytic_for_cluster(model_spec(name), usable),
        options["risk"],
    )
