"""``arachne solve pipeline``: choose pipelines for a mixed cluster."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from arachne_opt.cli.cost_models import cost_model_option, learned_layers, require_learned
from arachne_opt.cli.options import (
    OUTPUT,
    database_option,
    format_option,
    limit_options,
    limits_of,
    seeds_option,
    warm_start_option,
)
from arachne_opt.cli.output import emit_json, write_whole
from arachne_opt.cli.progress import ProgressLine, catch_interrupts
from arachne_opt.errors import INTERRUPTED, OUTSIDE_GAP
from arachne_opt.settings import database_url
from arachne_opt.units import format_seconds

if TYPE_CHECKING:
    from arachne_opt.cluster import Cluster
    from arachne_opt.costs.pipeline.profiles import Profiles
    from arachne_opt.db.store import PlanStore
    from arachne_opt.pipeline.plan import PipelinePlan, Stage
    from arachne_opt.pipeline.problem import PipelineOptions, PipelineProblem
    from arachne_opt.planning.pipeline_service import PipelineAnswer
    from arachne_opt.solvers.pipeline.base import PipelineProgress


@click.command()
@click.option(
    "--profiles",
    type=click.Path(exists=True, file_okay=False),
    help="Folder of measured times; without it they are computed from data sheets.",
)
@click.option("--scenario", metavar="FILE:ID", help="A task of a scenario file.")
@click.option("--trace", metavar="FILE:ID", help="Compare planners on a cluster that changes.")
@click.option(
    "--cluster", "pool", help="Devices: A100-40=32,V100-16=96 or A100-40=8+4+2+1; or a file."
)
@click.option("--gpus-per-node", default="4", show_default=True, help="One number, or by type.")
@click.option("--model", help="Name in the profiles; without them a public model or config.json.")
@click.option(
    "--sequence-length",
    type=click.IntRange(min=1),
    help="Tokens of a sample, where times are computed.  [default: those of the model]",
)
@click.option("--global-batch", type=click.IntRange(min=1), help="Samples per iteration.")
@click.option("--allow-excess", is_flag=True, help="Round micro-batches up where need be.")
@click.option("--allow-estimates", is_flag=True, help="Estimate what was not measured.")
@cost_model_option
@click.option("--recompute", is_flag=True, help="Stages may rebuild activations.")
@click.option("--zero1", is_flag=True, help="Optimizer state may be sharded over replicas.")
@click.option("--max-tp", type=click.IntRange(min=1), help="Widest tensor-parallel group.")
@click.option("--solver", default="portfolio", show_default=True, help="Method by name.")
@click.option("--no-cache", is_flag=True, help="Solve afresh even where a plan is stored.")
@warm_start_option
@seeds_option
@click.option("--out", type=OUTPUT, help="Write the plan to this file.")
@limit_options
@database_option
@format_option
def pipeline(**options: Any) -> int:  # noqa: ANN401
    """Choose pipelines, stages, device types and degrees on a mixed cluster.

    \b
    Examples:
      arachne solve pipeline --profiles FOLDER --cluster A100-40=32,V100-16=96 \\
        --gpus-per-node 4 --model OPT-350 --global-batch 1024
      arachne solve pipeline --model llama/config.json --sequence-length 4096 \\
        --cluster H100-80=16,A100-80=16 --gpus-per-node 8 --global-batch 256
    """
    if options["profiles"] is None and (options["trace"] or options["scenario"]):
        raise click.UsageError("--trace and --scenario need --profiles FOLDER")
    if options["trace"] is not None:
        return _trace(options)
    from arachne_opt.db.store import PlanStore

    problem = _problem(options)
    with PlanStore.open(database_url(options["db_url"])) as store:
        answer = _plan(store, problem, options)
    if options["out"]:
        from arachne_opt.pipeline.plan_json import plan_to_json

        write_whole(options["out"], json.dumps(plan_to_json(answer.plan), indent=1) + "\n")
    _show(answer, options["form"])
    if answer.result is not None and answer.result.interrupted:
        return INTERRUPTED
    gap, asked = answer.record.gap, options["gap"]
    return OUTSIDE_GAP if asked is not None and (gap is None or gap > asked) else 0


def _trace(options: dict[str, Any]) -> int:
    from arachne_opt.cli.trace import play_trace

    source = click.get_current_context().get_parameter_source("time_limit_s")
    given = source is not ParameterSource.DEFAULT
    return play_trace(options, _choices(options), limit_given=given)


def _choices(options: dict[str, Any]) -> PipelineOptions:
    from arachne_opt.pipeline.problem import PipelineOptions

    return PipelineOptions(
        allow_excess=options["allow_excess"],
        recomputation=options["recompute"],
        zero1=options["zero1"],
        max_tp=options["max_tp"],
    )


def _problem(options: dict[str, Any]) -> PipelineProblem:
    choices = _choices(options)
    require_learned(options)
    if options["cost_model"] is not None and options["scenario"] is not None:
        raise click.UsageError("--cost-model goes with --cluster: a scenario names its prices")
    if options["scenario"] is not None:
        return _of_scenario(options, choices)
    missing = [
        flag
        for flag, key in [
            ("--cluster", "pool"),
            ("--model", "model"),
            ("--global-batch", "global_batch"),
        ]
        if options[key] is None
    ]
    if missing:
        raise click.UsageError(f"name --scenario FILE:ID, or {', '.join(missing)}")
    from arachne_opt.costs.pipeline.build import build_problem
    from arachne_opt.importers.pipeline_profiles import read_profiles

    cluster = _cluster(options)
    if options["profiles"] is None:
        return _computed(cluster, options, choices)
    if options["sequence_length"] is not None:
        raise click.UsageError("--sequence-length goes without --profiles, which have their own")
    return build_problem(
        _learned(read_profiles(Path(options["profiles"]), options["model"]), cluster, options),
        cluster,
        options["global_batch"],
        options=choices,
        allow_estimates=options["allow_estimates"],
    )


def _cluster(options: dict[str, Any]) -> Cluster:
    """The cluster of a pool of devices, or of a cluster file."""
    from arachne_opt.cluster_file import read_cluster
    from arachne_opt.pipeline.pool import parse_pool

    text = options["pool"]
    if text.lower().endswith(".toml") or Path(text).is_file():
        return read_cluster(text)
    return parse_pool(text, _per_node(options["gpus_per_node"]))


def _of_scenario(options: dict[str, Any], choices: PipelineOptions) -> PipelineProblem:
    from arachne_opt.importers.pipeline_scenarios import read_scenario
    from arachne_opt.importers.scenario_problems import scenario_problem

    return scenario_problem(
        read_scenario(options["scenario"]),
        Path(options["profiles"]),
        model=options["model"],
        options=choices,
        allow_estimates=options["allow_estimates"],
    )


def _computed(
    cluster: Cluster, options: dict[str, Any], choices: PipelineOptions
) -> PipelineProblem:
    """The problem of a model that nobody has measured."""
    from arachne_opt.cli.named_models import language_model
    from arachne_opt.costs.pipeline.analytic import analytic_profiles
    from arachne_opt.costs.pipeline.build import build_problem
    from arachne_opt.pipeline.memory import MIXED_PRECISION

    model = language_model(options["model"], options["sequence_length"])
    profiles = analytic_profiles(model, cluster)
    if options["cost_model"] is not None:
        profiles = _learned(replace(profiles, steps=(), notes=()), cluster, options)
    return build_problem(
        profiles, cluster, options["global_batch"], options=choices, memory=MIXED_PRECISION
    )


def _learned(profiles: Profiles, cluster: Cluster, options: dict[str, Any]) -> Profiles:
    """The profiles with what a learned model says where nobody measured."""
    if options["cost_model"] is None:
        return profiles
    from arachne_opt.costs.pipeline.build import USUAL_DEGREES, USUAL_MICROBATCHES

    return learned_layers(options["cost_model"], options["db_url"]).filled(
        profiles,
        cluster.device_types,
        microbatches=USUAL_MICROBATCHES,
        degrees=USUAL_DEGREES,
        risk=options["risk"],
    )


def _per_node(text: str) -> int | str:
    return int(text) if text.isdigit() else text


def _plan(store: PlanStore, problem: PipelineProblem, options: dict[str, Any]) -> PipelineAnswer:
    from arachne_opt.planning.pipeline_service import PipelineService

    line, limits = ProgressLine(), limits_of(options)

    def on_progress(progress: PipelineProgress) -> None:
        bound = f"bound {progress.bound_s:.3f} s"
        line.show(f"{problem.name}  {progress.iteration_s:.3f} s  {bound}  {progress.source}")

    def on_wait(waited_s: float) -> None:
        line.show(f"{problem.name}  another process is solving it, waited {waited_s:.0f} s")

    with catch_interrupts() as interrupts:
        try:
            return interrupts.run(
                lambda: PipelineService(store, seeds=options["seeds"]).plan(
                    problem,
                    limits,
                    solver=options["solver"],
                    use_cache=not options["no_cache"],
                    on_progress=on_progress,
                    should_stop=interrupts.pressed,
                    warm_start=options["warm_start"],
                    on_wait=on_wait,
                )
            )
        finally:
            line.clear()


def answer_json(answer: PipelineAnswer) -> dict[str, Any]:
    """An answer for programs."""
    from arachne_opt.pipeline.plan_json import plan_to_json

    record, price = answer.record, answer.verdict.price
    return {
        "id": record.id,
        "name": record.name,
        "fingerprint": record.fingerprint,
        "status": record.status,
        "iteration_s": price.iteration_s,
        "cautious_s": price.cautious_s,
        "simulated_s": answer.verdict.simulation.iteration_s,
        "bound_s": record.bound_us / 1e6,
        "gap": record.gap,
        "solver": record.solver,
        "seed": record.seed,
        "wall_s": record.wall_s,
        "cached": answer.cached,
        "lookup_s": answer.lookup_s,
        "warm_from": answer.warm_from,
        "notes": list(answer.problem.notes),
        "plan": plan_to_json(answer.plan),
    }


def _show(answer: PipelineAnswer, form: str) -> None:
    if form == "json":
        emit_json("solve-pipeline", answer_json(answer))
        return
    record, price = answer.record, answer.verdict.price
    spent = f"hit {1e3 * answer.lookup_s:.1f} ms" if answer.cached else f"{record.wall_s:.2f} s"
    spent += f" from {answer.warm_from[:12]}" if answer.warm_from else ""
    click.echo(f"{record.name} on {record.cluster_name}: plan {record.id[:12]} in {spent}")
    bound = format_seconds(record.bound_us)
    gap = "–" if record.gap is None else f"{100 * record.gap:.1f} %"
    click.echo(f"iteration {price.iteration_s:.3f} s (cautious {price.cautious_s:.3f} s,")
    click.echo(f"  simulated {answer.verdict.simulation.iteration_s:.3f} s),")
    click.echo(f"  no plan at all takes less than {bound}: gap {gap}")
    for text in describe(answer.plan):
        click.echo(text)
    for note in answer.problem.notes:
        click.echo(f"assumed: {note}")


def describe(plan: PipelinePlan) -> list[str]:
    """A plan in words: a line per pipeline and stage."""
    lines = []
    for number, (pipe, count) in enumerate(zip(plan.pipelines, plan.counts, strict=True)):
        lines.append(f"pipeline {number}: {count} micro-batches of {pipe.microbatch}")
        lines += [f"  rows {s.first}-{s.end - 1}: {_replicas(s)}" for s in pipe.stages]
    return lines


def _replicas(stage: Stage) -> str:
    counts = Counter(replica.kind.label for replica in stage.replicas)
    parts = [f"{n} x {label}" for label, n in counts.items()]
    return ", ".join(parts) + (", recomputed" if stage.recompute else "")
