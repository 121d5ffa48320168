"""The plan under which a training that runs is to go on; knows no torch.

``arachne replan --hand-to FOLDER`` puts it there; rank 0 of a run with ``--moves FOLDER`` looks
there before each step. The file appears as a whole. The processes stay: those on nodes that the
new plan does without wait until a later plan takes them up.
"""

from __future__ import annotations

import json
from collections import Counter
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from arachne_opt.errors import InputError, RunError
from arachne_opt.executor.pipeline.job import PipelineJob
from arachne_opt.fields import Fields
from arachne_opt.pipeline.cluster_change import NodeKey, surviving_nodes
from arachne_opt.pipeline.placement import place
from arachne_opt.pipeline.plan import PipelinePlan
from arachne_opt.pipeline.plan_json import plan_from_json, plan_to_json
from arachne_opt.pipeline.problem import PipelineProblem
from arachne_opt.pipeline.problem_json import problem_from_json, problem_to_json

NEXT_PLAN_FORMAT = "arachne.next-plan/1"
NEXT_PLAN_FILE = "next-plan.json"


def hand_over(folder: Path, problem: PipelineProblem, plan: PipelinePlan, plan_id: str) -> None:
    """Puts a plan where a training looks before its next step.

    Raises:
        RunError: the folder cannot be written.
    """
    value = {
        "format": NEXT_PLAN_FORMAT,
        "problem": problem_to_json(problem),
        "plan": plan_to_json(place(problem, plan)),
        "plan_id": plan_id,
    }
    path = folder / NEXT_PLAN_FILE
    partial = path.with_suffix(".partial")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        partial.write_text(json.dumps(value), encoding="utf-8")
        partial.replace(path)
    except OSError as error:
        raise RunError(f"cannot hand over the plan: {error}", where=str(folder)) from error


class NextPlan:
    """Looks for what was handed over; rank 0 has one.

    Args:
        first: the job that the processes were started with.
    """

    def __init__(self, first: PipelineJob) -> None:
        self._first = first
        self._path = Path(first.moves) / NEXT_PLAN_FILE
        # When the file changed, and its number: each hand-over brings a new file.
        self._seen = (0, 0)

    def newer(self, job: PipelineJob) -> PipelineJob | None:
        """The job under a plan that came since the last look; None where none did.

        Args:
            job: as it runs.

        Raises:
            InputError: these processes cannot run that plan.
        """
        with suppress(OSError):
            found = self._path.stat()
            if (changed := (found.st_mtime_ns, found.st_ino)) == self._seen:
                return None
            self._seen = changed
            content = self._path.read_bytes()
            return self._read(content, job)
        return None

    def _read(self, content: bytes, job: PipelineJob) -> PipelineJob | None:
        where = str(self._path)
        try:
            value: Any = json.loads(content)
        except ValueError as error:
            raise InputError(f"not JSON: {error}", where=where) from error
        top = Fields(value, where, ("format", "problem", "plan", "plan_id"))
        top.require_format(NEXT_PLAN_FORMAT)
        found = replace(
            job,
            problem=problem_from_json(top.raw("problem")),
            plan=plan_from_json(top.raw("plan")),
            plan_id=top.text("plan_id"),
        )
        if found.plan == job.plan and found.problem == job.problem:
            return None
        nodes_of_processes(self._first, found)
        return found


def nodes_of_processes(first: PipelineJob, newer: PipelineJob) -> tuple[NodeKey, ...]:
    """Where the processes of a run are, as a newer plan calls the nodes.

    Args:
        first: the job that the processes were started with, one for each rank of its plan.
        newer: with a node for every replica.

    Raises:
        InputError: the newer plan wants processes that are not there.
    """
    names = surviving_nodes(first.problem, newer.problem)
    found = []
    for member in first.layout.members:
        assert member.node is not None  # a job's plan is placed
        old = member.kind.device_type, member.node
        found.append(names.get(old, (f"{old[0]}, left", old[1])))
    here = Counter(found)
    nodes = newer.problem.nodes_of_type
    for kind, number, ranks in newer.layout.nodes():
        assert number is not None  # a job's plan is placed
        if len(ranks) > (have := here[kind, number]):
            name = nodes[kind][number].name
            what = f"the plan wants {len(ranks)} devices of {name} ({kind}), the run has {have}"
            hint = "the newest checkpoint: --checkpoint-dir, --resume under the new plan"
            raise InputError(what, where="--moves", hint=hint)
    return tuple(found)
