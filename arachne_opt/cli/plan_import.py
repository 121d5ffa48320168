"""``arachne plans import``: plans from other databases, each checked again before it is stored."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from arachne_opt.canonical import digest
from arachne_opt.cli.options import FILE, database_option, format_option
from arachne_opt.cli.output import emit_json
from arachne_opt.errors import DisagreementError, InputError
from arachne_opt.records import PlanRecord
from arachne_opt.settings import database_url

if TYPE_CHECKING:
    from arachne_opt.cascade.problem import CascadeProblem
    from arachne_opt.db.store import PlanStore

RECORD_FORMAT = "arachne.stored-plan/1"
# The solver of plans that somebody wrote, rank by rank.
BY_RANK = "by-rank"

# Given by the database that stores the plan.
_GIVEN = ("id", "created_at", "stale", "quarantine")


@click.command("import")
@click.argument("source", type=FILE)
@database_option
@format_option
def import_plans(source: Path, db_url: str | None, form: str) -> None:
    """Store plans that another database exported with --with-problem, one JSON line each.

    Every plan is checked, simulated and priced again; all are stored, or none is.
    A file of --to per-rank is read too, into the database that it came from.

    Example: arachne plans import plans.jsonl
    """
    from arachne_opt.db.store import PlanStore
    from arachne_opt.importers.rank_yaml import recognise

    by_rank = recognise(source)
    records = [] if by_rank else list(read_records(source))
    with PlanStore.open(database_url(db_url)) as store:
        if by_rank:
            records = [rank_record(source, store)]
        ids = [record.id for record in store.add_plans(records)]
    if form == "json":
        emit_json("plans-import", {"plans": ids})
        return
    click.echo(f"imported {len(ids)} plans")


def rank_record(source: Path, store: PlanStore) -> PlanRecord:
    """The plan of a file by ranks, for the problem of the stored plan that it came from.

    Raises:
        InputError: that plan is not stored, or the file's plan is not legal.
    """
    from arachne_opt.cascade.problem_json import problem_from_json
    from arachne_opt.cascade.verify import verify
    from arachne_opt.importers.rank_yaml import read_rank_plan

    found = read_rank_plan(source)
    origin = store.get_plan(found.source)
    problem = problem_from_json(origin.problem)
    plan = found.plan(problem)
    try:
        verify(problem, plan, plan.makespan_us)
    except DisagreementError as error:
        raise InputError(f"the plan is refused: {error}", where=found.where) from error
    same = plan.makespan_us == origin.objective_us
    return replace(
        origin,
        id="",
        created_at="",
        plan=plan.to_json(problem),
        objective_us=plan.makespan_us,
        status=origin.status if same else "feasible",
        solver=BY_RANK,
        wall_s=0.0,
        time_limit_s=0.0,
    )


def record_to_json(record: PlanRecord) -> dict[str, Any]:
    """A stored plan with its problem, for another database."""
    values = {f.name: getattr(record, f.name) for f in fields(record) if f.name not in _GIVEN}
    return {"format": RECORD_FORMAT, **values, "versions": dict(record.versions)}


def read_records(source: Path) -> Iterator[PlanRecord]:
    """The plans of a file, each verified.

    Raises:
        InputError: a line is no stored plan, or its plan is not what it claims to be.
    """
    try:
        lines = source.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"cannot read: {error}", where=str(source)) from error
    for number, line in enumerate(lines, start=1):
        if line.strip():
            yield _record(line, f"{source}: line {number}")


def _record(line: str, where: str) -> PlanRecord:
    try:
        value = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise InputError(f"no JSON: {error}", where=where) from error
    if not isinstance(value, dict) or value.pop("format", None) != RECORD_FORMAT:
        hint = "`arachne plans export --with-problem`"
        raise InputError(f"not a plan of format {RECORD_FORMAT!r}", where=where, hint=hint)
    types = {f.name: f.type for f in fields(PlanRecord) if f.name not in _GIVEN}
    if set(value) != set(types):
        wrong = ", ".join(sorted(set(value) ^ set(types)))
        raise InputError(f"missing or unknown: {wrong}", where=where)
    for name, kind in types.items():
        if not isinstance(value[name], _TYPES[str(kind)]) or isinstance(value[name], bool):
            raise InputError(f"{name} must be {kind}, not {value[name]!r}"[:200], where=where)
    record = PlanRecord(**value)
    try:
        _verify(record)
    except DisagreementError as error:
        raise InputError(f"the plan is refused: {error}", where=where) from error
    except (InputError, KeyError) as error:
        raise InputError(f"the plan cannot be read: {error}", where=where) from error
    return record


_TYPES: dict[str, Any] = {
    "str": str,
    "int": int,
    "float": (int, float),
    "Json": dict,
    "Mapping[str, str]": dict,
}


def _verify(record: PlanRecord) -> None:
    """Checks the plan, and that the key is that of the problem."""
    if record.kind == "cascade":
        from arachne_opt.cascade.plan import plan_from_json
        from arachne_opt.cascade.problem_json import problem_from_json
        from arachne_opt.cascade.verify import verify

        problem = problem_from_json(record.problem)
        verify(problem, plan_from_json(record.plan, problem), record.objective_us)
    elif record.kind == "pipeline":
        from arachne_opt.pipeline import problem_json
        from arachne_opt.planning.pipeline_service import checked_plan

        problem = problem_json.problem_from_json(record.problem)  # type: ignore[assignment]  # its own kind
        checked_plan(record, problem)  # type: ignore[arg-type]  # as above
    else:
        raise InputError(f"no plans are of kind {record.kind!r}")
    keys = {
        "fingerprint": _key(record, problem),
        "cluster_fingerprint": digest(problem.cluster.canonical()),
        "cost_version": problem.cost_version,
    }
    for name, value in keys.items():
        if getattr(record, name) != value:
            raise InputError(f"its {name} is {getattr(record, name)!r}, its problem says {value!r}")


def _key(record: PlanRecord, problem: CascadeProblem) -> str:
    """The key of a problem, or of the clips whose micro-batches it places."""
    from arachne_opt.cascade.batching_key import CLIPS, key_of_clips

    return (
        key_of_clips(record.problem, problem) if CLIPS in record.problem else problem.fingerprint()
    )
