"""Reads cascade plans that were exported rank by rank, ``arachne.rank-plan/1``."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from arachne_opt.cascade.plan import CascadePlan, plan_from_json
from arachne_opt.cascade.problem import CascadeProblem
from arachne_opt.errors import InputError
from arachne_opt.importers.node import Node, read_text
from arachne_opt.importers.yaml_file import read_yaml_file

RANK_FORMAT = "arachne.rank-plan/1"


@dataclass(frozen=True, slots=True, kw_only=True)
class RankPlan:
    """A plan of a file, before it is held against its problem.

    Args:
        source: id of the stored plan that it was exported from.
        fingerprint: of the problem that it is for.
        value: the exported form of the whole plan.
    """

    where: str
    source: str
    fingerprint: str
    value: dict[str, Any]

    def plan(self, problem: CascadeProblem) -> CascadePlan:
        """The plan in the numbering of its problem.

        Raises:
            InputError: it is for another problem, or names tasks that are not there.
        """
        if problem.fingerprint() != self.fingerprint:
            what = f"the plan is for problem {self.fingerprint}, not for {problem.name}"
            raise InputError(what, where=self.where, hint="the plan that it was exported from")
        try:
            return plan_from_json(self.value, problem)
        except InputError as error:
            raise InputError(error.what, where=self.where, hint=error.hint) from error


def recognise(source: Path) -> bool:
    """Whether a file is such a plan."""
    return source.suffix.lower() in (".yaml", ".yml") and RANK_FORMAT in read_text(source)


def read_rank_plan(source: Path) -> RankPlan:
    """The plan of a file; ranks must agree on the tasks that they share, and on their order.

    Raises:
        InputError: no such plan, or ranks disagree; says which line.
    """
    documents = list(read_yaml_file(source).items())
    if not documents:
        raise InputError("the file is empty", where=f"{source}:1", hint="another file")
    top = documents[0]
    found = top.get("format")
    if found.value != RANK_FORMAT:
        raise found.error(f"format is {found.value!r}, not {RANK_FORMAT!r}", "another file")
    runs: dict[int, Node] = {}
    for number, rank in enumerate(top.get("ranks").items()):
        if rank.get("rank").whole() != number:
            what = f"expected rank {number}, found {rank.get('rank').value}"
            raise rank.get("rank").error(what, "all ranks, from 0 on")
        _of_rank(rank, number, runs)
    for order, run in runs.items():
        _all_there(run, order, top)
    value = {
        "format": top.get("plan_format").text(),
        "instance": top.get("instance").text(),
        "runs": [_plain(runs[order]) for order in sorted(runs)],
    }
    return RankPlan(
        where=top.where,
        source=top.get("plan").text(),
        fingerprint=top.get("problem").text(),
        value=value,
    )


def _of_rank(rank: Node, number: int, runs: dict[int, Node]) -> None:
    last = -1
    for task in rank.child("tasks").items() if "tasks" in rank.table() else ():
        order = task.get("order").whole()
        if order <= last:
            what = f"task number {order} comes after number {last}"
            raise task.error(what, "the same order of shared tasks on all ranks")
        last = order
        group = [gpu.whole() for gpu in task.get("gpus").items()]
        if number not in group:
            raise task.error(f"rank {number} is not in the group {group}", "the rank of its group")
        known = runs.setdefault(order, task)
        if known.table() != task.table():
            what = f"differs from the same task at line {known.line}"
            raise task.error(what, "one start, end and group for all ranks of a task")


def _all_there(run: Node, order: int, top: Node) -> None:
    """Every rank of a group lists the task."""
    ranks = list(top.get("ranks").items())
    for gpu in run.get("gpus").items():
        number = gpu.whole()
        mine = ranks[number].find("tasks") if number < len(ranks) else None
        if mine is None or all(task.get("order").value != order for task in mine.items()):
            what = f"rank {number} is in the group {run.get('gpus').value} but lacks the task"
            raise run.error(what, f"task number {order} under rank {number}")


def _plain(run: Node) -> dict[str, Any]:
    return {key: value for key, value in run.table().items() if key != "order"}
