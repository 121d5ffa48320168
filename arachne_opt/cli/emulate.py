"""``arachne train --emulate``: rehearse plans with real processes that sleep instead of working."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

import click

from arachne_opt.cli.output import write_whole
from arachne_opt.cli.replays import replay
from arachne_opt.cli.run_report import keep_runs_if_possible, show_report, write_trace
from arachne_opt.errors import INTERRUPTED
from arachne_opt.planning.service import Answer, plan_of_record
from arachne_opt.settings import database_url

if TYPE_CHECKING:
    from arachne_opt.db.store import PlanStore
    from arachne_opt.executor.report import ReplayReport

Command = TypeVar("Command", bound=Callable[..., Any])

# Tells planned answers for the options of train; None after Ctrl-C.
Planner = Callable[["PlanStore"], "list[Answer] | None"]


def emulation_options(command: Command) -> Command:
    """``--emulate --speed``."""
    options = [
        click.option(
            "--emulate",
            is_flag=True,
            help="Sleep for the planned times instead of training; --plan alone is enough.",
        ),
        click.option(
            "--speed",
            type=click.FloatRange(min=0, min_open=True),
            default=1.0,
            show_default=True,
            help="With --emulate: so many times faster than planned.",
        ),
    ]
    for option in reversed(options):
        command = option(command)
    return command


def require_workload(options: dict[str, Any]) -> None:
    """Refuses a training without clips, cluster or model; stored plans are enough to emulate."""
    if options["emulate"] and options["plan_ids"] and not options["manifest"]:
        return
    wanted = {"--workload": "manifest", "--cluster": "cluster", "--model": "model"}
    if missing := [name for name, key in wanted.items() if not options[key]]:
        raise click.UsageError(f"Missing option '{missing[0]}'.")


def emulate(options: dict[str, Any], planned: Planner) -> int:
    """Rehearses plans, named or made for a workload, and shows what the runtime adds."""
    from arachne_opt.db.store import PlanStore
    from arachne_opt.executor.report import report_to_json

    with PlanStore.open(database_url(options["db_url"])) as store:
        if options["manifest"]:
            answers = planned(store)
        else:
            answers = [_stored(store, plan_id) for plan_id in options["plan_ids"]]
        if answers is None:
            return INTERRUPTED
        report = _rehearsed(answers, options)
        keep_runs_if_possible(store, report)
    if options["report"]:
        write_whole(options["report"], json.dumps(report_to_json(report), indent=1) + "\n")
    if options["trace"]:
        write_trace(options["trace"], answers, report)
    show_report(report, options["form"])
    return 0


def _stored(store: PlanStore, plan_id: str) -> Answer:
    from arachne_opt.cascade.problem_json import problem_from_json

    record = store.get_plan(plan_id)
    problem, plan = problem_from_json(record.problem), plan_of_record(record)
    return Answer(problem=problem, plan=plan, record=record, cached=True, lookup_s=0.0)


def _rehearsed(answers: list[Answer], options: dict[str, Any]) -> ReplayReport:
    from arachne_opt.executor.emulation import emulated_job

    job = emulated_job(
        options["model"] or "toy",
        [answer.problem for answer in answers],
        [answer.plan for answer in answers],
        plan_ids=[answer.record.id for answer in answers],
        speed=options["speed"],
        epochs=options["epochs"],
    )
    return replay(job)
