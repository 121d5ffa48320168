"""``arachne replan``: a plan for a cluster that has changed."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from arachne_opt.cli.options import OUTPUT, database_option, format_option, limit_options, limits_of
from arachne_opt.cli.output import emit_json, iteration_text, write_whole
from arachne_opt.cli.progress import catch_interrupts
from arachne_opt.errors import INTERRUPTED, InputError
from arachne_opt.settings import database_url

if TYPE_CHECKING:
    from arachne_opt.cluster import Cluster
    from arachne_opt.db.store import PlanStore
    from arachne_opt.pipeline.problem import PipelineProblem
    from arachne_opt.planning.replanning import Replanned
    from arachne_opt.records import PlanRecord


@click.command()
@click.option("--plan", "plan_id", required=True, metavar="ID", help="The plan that ran until now.")
@click.option("--cluster", "pool", required=True, help="What is there now: a file or a shorthand.")
@click.option("--gpus-per-node", help="One number, or by type; by default that of the old nodes.")
@click.option(
    "--horizon",
    type=click.IntRange(min=0),
    default=1000,
    show_default=True,
    metavar="ITERATIONS",
    help="A move of weights has to pay within so many.",
)
@click.option(
    "--profiles",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    help="Profiles for types of devices that the old plan did not have.",
)
@click.option("--allow-estimates", is_flag=True, help="Estimate what was not measured.")
@click.option("--no-cache", is_flag=True, help="Solve afresh even where a plan is stored.")
@click.option("--out", type=OUTPUT, help="Write the plan to this file.")
@click.option(
    "--hand-to",
    type=click.Path(file_okay=False, path_type=Path),
    metavar="FOLDER",
    help="Give the plan to a training that runs with --moves FOLDER.",
)
@limit_options
@database_option
@format_option
def replan(**options: Any) -> int:  # noqa: ANN401
    """Plan again after the cluster changed; a pipeline plan moves only where that pays.

    \b
    Examples:
      arachne replan --plan 3fa9 --cluster A100-40=16,V100-16=48 --horizon 500
      arachne replan --plan 81c2 --cluster H100-80:8x3
    """
    from arachne_opt.db.store import PlanStore

    with PlanStore.open(database_url(options["db_url"])) as store:
        record = store.get_plan(options["plan_id"])
        if record.kind == "pipeline":
            return _pipeline(store, record, options)
        return _cascade(store, record, options)


def _pipeline(store: PlanStore, record: PlanRecord, options: dict[str, Any]) -> int:
    from arachne_opt.pipeline.problem_json import problem_from_json
    from arachne_opt.planning.pipeline_service import PipelineService, pipeline_plan_of_record
    from arachne_opt.planning.replanning import replan as replan_pipeline

    old = problem_from_json(record.problem)
    problem = _new_problem(old, _cluster(options, old.cluster), options)
    with catch_interrupts() as interrupts:
        done = interrupts.run(
            lambda: replan_pipeline(
                PipelineService(store),
                (old, pipeline_plan_of_record(record)),
                problem,
                limits_of(options),
                horizon=options["horizon"],
                use_cache=not options["no_cache"],
                should_stop=interrupts.pressed,
            )
        )
        interrupted = interrupts.pressed()
    if options["out"]:
        from arachne_opt.pipeline.plan_json import plan_to_json

        write_whole(options["out"], json.dumps(plan_to_json(done.answer.plan), indent=1) + "\n")
    _show(record, done, options["form"])
    if options["hand_to"] and not interrupted:
        _hand_over(options["hand_to"], done)
    return INTERRUPTED if interrupted else 0


def _new_problem(
    old: PipelineProblem, cluster: Cluster, options: dict[str, Any]
) -> PipelineProblem:
    from arachne_opt.pipeline.cluster_change import problem_on

    if options["profiles"] is None:
        return problem_on(old, cluster)
    from arachne_opt.costs.pipeline.build import build_problem
    from arachne_opt.importers.pipeline_profiles import read_profiles

    return build_problem(
        read_profiles(options["profiles"], old.model.name),
        cluster,
        old.global_batch,
        options=old.options,
        memory=old.memory,
        allow_estimates=options["allow_estimates"],
    )


def _cluster(options: dict[str, Any], old: Cluster) -> Cluster:
    """The new cluster; a pool is cut into nodes like the old ones of its types."""
    text = options["pool"]
    if "=" not in text or Path(text).is_file():
        from arachne_opt.cluster_file import read_cluster

        return read_cluster(text)
    from arachne_opt.pipeline.pool import parse_pool

    given = options["gpus_per_node"]
    if given is not None:
        return parse_pool(text, int(given) if given.isdigit() else given)
    sizes: Counter[str] = Counter()
    for node in old.nodes:
        name = node.device_type.name
        sizes[name] = max(sizes[name], node.device_count)
    return parse_pool(text, sizes)


def _hand_over(folder: Path, done: Replanned) -> None:
    from arachne_opt.executor.pipeline.next_plan import hand_over

    answer = done.answer
    hand_over(folder, answer.problem, answer.plan, answer.record.id)
    click.echo(f"handed to {folder}; the training takes it up before its next step", err=True)


def _show(record: PlanRecord, done: Replanned, form: str) -> None:
    from arachne_opt.cli.pipeline import answer_json, describe

    if form == "json":
        body = answer_json(done.answer) | {
            "from": record.id,
            "choice": done.choice.value,
            "horizon": done.horizon,
            "nodes_left": done.nodes_left,
            "relayout": asdict(done.chosen.relayout),
            "words": done.words(),
        }
        emit_json("replan", body)
        return
    answer = done.answer
    click.echo(f"{answer.problem.name}: plan {answer.record.id[:12]} after {record.id[:12]}")
    for line in (*done.words(), *describe(answer.plan)):
        click.echo(line)


def _cascade(store: PlanStore, record: PlanRecord, options: dict[str, Any]) -> int:
    from arachne_opt.cascade.problem_json import problem_from_json
    from arachne_opt.planning.replanning_cascades import replan_cascade
    from arachne_opt.planning.service import PlanService

    if options["profiles"] is not None or options["allow_estimates"]:
        raise InputError("profiles and estimates are for pipeline plans", where=record.id)
    if options["hand_to"]:
        what = "--hand-to is for pipeline plans"
        raise InputError(what, where=record.id, hint="arachne train --replan-above for cascades")
    cluster = _cluster(options, problem_from_json(record.problem).cluster)
    with catch_interrupts() as interrupts:
        answer = interrupts.run(
            lambda: replan_cascade(
                PlanService(store),
                record,
                cluster,
                limits_of(options),
                use_cache=not options["no_cache"],
                should_stop=interrupts.pressed,
            )
        )
    if options["out"]:
        write_whole(options["out"], json.dumps(answer.plan.to_json(answer.problem)) + "\n")
    if options["form"] == "json":
        from arachne_opt.cli.session import answer_json

        emit_json("replan", answer_json(answer) | {"from": record.id})
    else:
        problem, new = answer.problem, answer.record
        click.echo(f"{problem.name}: plan {new.id[:12]} after {record.id[:12]}")
        before = iteration_text(problem_from_json(record.problem), record.objective_us)
        click.echo(f"on {record.cluster_name}: {before}")
        after = iteration_text(problem, new.objective_us)
        click.echo(f"on {cluster.name}: {after}; nothing has to move between iterations")
    return INTERRUPTED if answer.interrupted else 0
