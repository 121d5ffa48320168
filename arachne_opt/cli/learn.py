"""``arachne learn``: train the policies that searches begin with."""

from __future__ import annotations

import functools
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from arachne_opt.cli.options import OUTPUT, database_option, format_option
from arachne_opt.cli.output import emit_json, emit_table
from arachne_opt.cli.progress import Interrupts, ProgressLine, catch_interrupts
from arachne_opt.cli.workers import workers_of, workers_options
from arachne_opt.errors import INTERRUPTED
from arachne_opt.settings import data_folder, database_url

if TYPE_CHECKING:
    from arachne_opt.db.store import PlanStore
    from arachne_opt.learning.lessons import Case
    from arachne_opt.learning.policies import Learned

_UNITS = {"cascades": 0.3, "templates": 100.0}
_COUNTS = {"cascades": 240, "templates": 900}
_SEARCHES = {"cascades": 1 << 30, "templates": 250}


@click.group()
def learn() -> None:
    """Train the policies that searches begin with.

    Examples are random problems that our own solvers plan, or the plans in the database. A policy
    is kept only where it does better on held-out examples than the one before it.
    """


def _options(name: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    options = [
        click.option(
            "--count",
            type=click.IntRange(min=1),
            default=_COUNTS[name],
            show_default=True,
            help="Random problems to learn from.",
        ),
        click.option(
            "--units",
            type=click.FloatRange(min=0, min_open=True),
            default=_UNITS[name],
            show_default=True,
            help="Work of each search, in about seconds of a quiet core.",
        ),
        click.option(
            "--searches",
            type=click.IntRange(min=0),
            default=_SEARCHES[name],
            show_default=True,
            hidden=name == "cascades",
            help="Problems that are searched as a whole; others only have templates priced.",
        ),
        click.option(
            "--examples",
            type=click.Path(dir_okay=False, path_type=Path),
            help="File of examples, made or gone on with. [default: in this user's folder]",
        ),
        click.option("--from-db", is_flag=True, help="Learn from the stored plans instead."),
        click.option("--only-examples", is_flag=True, help="Make examples, train nothing."),
        click.option("--seed", type=int, default=0, show_default=True, help="Of the training."),
        click.option("--out", type=OUTPUT, help="Write the policy to this file too."),
        workers_options,
        database_option,
        format_option,
    ]

    def decorated(command: Callable[..., Any]) -> Callable[..., Any]:
        for option in reversed(options):
            command = option(command)
        return command

    return decorated


@learn.command()
@_options("cascades")
def cascades(**options: Any) -> int:  # noqa: ANN401
    """Learn degrees and start orders of cascades.

    \b
    Examples:
      arachne learn cascades --count 240 --jobs 8
      arachne learn cascades --from-db
    """
    return _learn("cascades", options)


@learn.command()
@_options("templates")
def templates(**options: Any) -> int:  # noqa: ANN401
    """Learn which structural templates of pipelines to price first.

    \b
    Examples:
      arachne learn templates --count 300 --dask tcp://head:8786
      arachne learn templates --from-db
    """
    return _learn("templates", options)


def _learn(name: str, options: dict[str, Any]) -> int:
    from arachne_opt.db.store import PlanStore

    # A wrong address must not be found out after hours of work.
    with catch_interrupts() as interrupts, PlanStore.open(database_url(options["db_url"])) as store:
        cases = _stored(name, options, store, interrupts)
        if cases is None:
            cases = _generated(name, options, interrupts)
        if interrupts.pressed():
            click.echo("interrupted; the examples so far are kept", err=True)
            return INTERRUPTED
        if options["only_examples"]:
            return 0
        learned = interrupts.run(functools.partial(_train, name, cases, options, store))
        if learned.better:
            _keep(name, learned, options, store)
    _show(name, learned, options["form"])
    return 0


def _generated(name: str, options: dict[str, Any], interrupts: Interrupts) -> list[Case]:
    from arachne_opt.learning.examples import Recipe
    from arachne_opt.learning.generation import generate
    from arachne_opt.learning.lessons import cases_of_file
    from arachne_opt.learning.worlds import LEARNED
    from arachne_opt.solvers.seeds.policy_file import FEATURES

    path = options["examples"] or data_folder() / f"examples-{name}.jsonl"
    recipe = Recipe(
        policy=name,
        world=LEARNED.name,
        units=options["units"],
        features=FEATURES[name],
        searched=options["searches"],
    )
    line = ProgressLine()
    generate(
        path,
        recipe,
        range(options["count"]),
        workers_of(options),
        told=lambda done, of: line.show(bar(done, of, "examples"), force=done == of),
        should_stop=interrupts.pressed,
    )
    line.clear()
    click.echo(f"examples: {path}", err=True)
    return [] if interrupts.pressed() else cases_of_file(path, name)[: options["count"]]


def bar(done: int, of: int, what: str) -> str:
    """Progress as a bar with numbers."""
    full = 30 * done // max(1, of)
    return f"[{'#' * full}{'.' * (30 - full)}] {done}/{of} {what}"


def _stored(
    name: str, options: dict[str, Any], store: PlanStore, interrupts: Interrupts
) -> list[Case] | None:
    if not options["from_db"]:
        return None
    from arachne_opt.learning.stored import stored_cases

    line = ProgressLine()
    found = stored_cases(
        store,
        name,
        workers_of(options),
        told=lambda done, of: line.show(bar(done, of, "plans"), force=done == of),
        should_stop=interrupts.pressed,
    )
    line.clear()
    return found


def _train(name: str, cases: list[Case], options: dict[str, Any], store: PlanStore) -> Learned:
    from arachne_opt.learning.policies import learn as train
    from arachne_opt.planning.policies import policy_in_use

    source = "--from-db" if options["from_db"] else f"--count {options['count']}"
    units = "" if options["from_db"] else f" --units {options['units']:g}"
    command = f"arachne learn {name} {source}{units} --seed {options['seed']}"
    return train(
        name,
        cases,
        seed=options["seed"],
        current=policy_in_use(store, name),
        refresh=options["from_db"],
        report={"command": command},
    )


def _keep(name: str, learned: Learned, options: dict[str, Any], store: PlanStore) -> None:
    from arachne_opt.cli.output import write_whole_bytes
    from arachne_opt.records import PolicyRecord

    policy = learned.policy
    store.add_policy(
        PolicyRecord(
            name=name,
            version=policy.version,
            metrics=dict(policy.report),
            artifact=learned.data,
        )
    )
    if options["out"]:
        write_whole_bytes(options["out"], learned.data)


def _show(name: str, learned: Learned, form: str) -> None:
    policy, before = learned.policy, learned.before
    if form == "json":
        body = {
            "policy": name,
            "version": policy.version,
            "accepted": learned.better,
            "score": learned.score.value,
            "score_before": None if before is None else before.value,
            "report": dict(policy.report),
        }
        emit_json("learn", body)
        return
    rows = []
    for key, value in learned.score.details.items():
        rows.append([key, None if before is None else before.details[key], value])
    rows.append(
        ["score", None if before is None else f"{before.value:.5f}", f"{learned.score.value:.5f}"]
    )
    emit_table(["on held-out examples", "before", "new"], rows)
    if learned.better:
        click.echo(f"policy {policy.version} is kept and will be used from now on")
    else:
        click.echo(f"policy {policy.version} is rejected: it is no better than the one in use")
