"""``arachne plans export --to``: plans in the forms of other trainers."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from arachne_opt.cli.output import write_whole
from arachne_opt.errors import InputError

if TYPE_CHECKING:
    from arachne_opt.exporters.text import ExportedText
    from arachne_opt.exporters.trainers import Trainer
    from arachne_opt.pipeline.plan import PipelinePlan
    from arachne_opt.pipeline.problem import PipelineProblem
    from arachne_opt.records import PlanRecord

CASCADE_TARGETS = ("per-rank", "groups")
PIPELINE_TARGETS = ("megatron", "torchtitan", "accelerate", "deepspeed")


def export_to(
    record: PlanRecord, target: str, out: Path | None, *, nearest: bool, time_limit_s: float
) -> None:
    """Writes a plan for a trainer, or says what that one cannot be told.

    Args:
        record: the stored plan.
        target: name of the form.
        out: file to write; None for stdout.
        nearest: write the nearest plan that the trainer can be told.
        time_limit_s: for finding that one.

    Raises:
        InputError: a plan of the other kind, or one that the trainer cannot be told.
    """
    kinds = {"cascade": CASCADE_TARGETS, "pipeline": PIPELINE_TARGETS}
    if target not in kinds[record.kind]:
        what = f"{record.id[:12]} is a {record.kind} plan, which has no form {target!r}"
        raise InputError(what, hint=f"--to {' or '.join(kinds[record.kind])}")
    source = f"plan {record.id[:12]}"
    if record.kind == "cascade":
        if nearest:
            raise click.UsageError("--nearest goes with pipeline plans: cascades lose no structure")
        made = _cascade(record, target)
    else:
        made = _pipeline(record, target, source, nearest=nearest, time_limit_s=time_limit_s)
    for line in made.lost:
        click.echo(f"lost: {line}", err=True)
    if out is None:
        click.echo(made.text, nl=False)
        return
    write_whole(out, made.text)
    click.echo(f"{source} for {target} written to {out}", err=True)


def _cascade(record: PlanRecord, target: str) -> ExportedText:
    from arachne_opt.cascade.problem_json import problem_from_json
    from arachne_opt.exporters import group_list, rank_yaml
    from arachne_opt.planning.service import plan_of_record

    problem = problem_from_json(record.problem)
    plan = plan_of_record(record)
    export = rank_yaml.export if target == "per-rank" else group_list.export
    return export(plan, problem, source=record.id)


def _pipeline(
    record: PlanRecord, target: str, source: str, *, nearest: bool, time_limit_s: float
) -> ExportedText:
    from arachne_opt.exporters.grid import grid_of, losses
    from arachne_opt.exporters.trainers import TRAINERS
    from arachne_opt.pipeline.plan_json import plan_from_json
    from arachne_opt.pipeline.problem_json import problem_from_json

    trainer, problem = TRAINERS[target], problem_from_json(record.problem)
    plan = plan_from_json(record.plan)
    length = problem.model.sequence_length
    if not (lost := losses(plan, trainer.abilities)):
        return trainer.export(grid_of(plan), sequence_length=length, source=source)
    for line in lost:
        click.echo(f"lost: {line}", err=True)
    chosen = _offered(problem, plan, trainer, time_limit_s)
    if not nearest:
        what = f"{trainer.abilities.trainer} cannot be told {source}"
        raise InputError(what, hint="--nearest to write the nearest plan instead")
    near = f"nearest to {source}"
    return trainer.export(grid_of(chosen), sequence_length=length, source=near)


def _offered(
    problem: PipelineProblem, plan: PipelinePlan, trainer: Trainer, time_limit_s: float
) -> PipelinePlan:
    """The nearest plan that a trainer can be told; says what it costs."""
    from arachne_opt.cli.pipeline import describe
    from arachne_opt.pipeline.closed_form import price_plan
    from arachne_opt.planning.expressible import nearest
    from arachne_opt.solvers.base import Limits

    found = nearest(problem, trainer.abilities, Limits(time_limit_s=time_limit_s))
    asked_s = price_plan(problem, plan).iteration_s
    change = 100 * (found.iteration_s / asked_s - 1)
    text = f"nearest: {found.iteration_s:.3f} s an iteration instead of {asked_s:.3f} s"
    click.echo(f"{text} ({change:+.1f} %)", err=True)
    for line in describe(found.plan):
        click.echo(f"  {line}", err=True)
    return found.plan
