"""Newer plans on their way to a run that is under way; knows no torch.

Whoever plans puts an iteration with its plan into the run's plan folder; rank 0 looks there
before each step. A file appears as a whole and may be replaced by a better plan at any time.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from arachne_opt.canonical import digest
from arachne_opt.errors import ArachneError, InputError
from arachne_opt.executor.job import ReplayIteration, ReplayJob, check_iteration
from arachne_opt.executor.job_json import iteration_from_json, iteration_to_json
from arachne_opt.workload import Iteration

_log = logging.getLogger(__name__)


def iteration_key(iteration: Iteration) -> str:
    """Key of the micro-batches of an iteration, whatever their plan."""
    batches = [
        [batch.id, str(batch.shape), *(clip.id for clip in batch.clips)]
        for batch in iteration.micro_batches
    ]
    return digest([iteration.name, *batches])[:32]


def plan_fingerprint(iteration: ReplayIteration) -> str:
    """Digest of all that a rank does in an iteration: micro-batches, groups, order, recomputation.

    Ranks of a group exchange once more where activations are computed again.
    """
    runs = [
        [
            iteration.problem.cascades[p.cascade].id,
            iteration.task_name(p),
            *sorted(p.devices),
            *["recompute"] * p.recompute,
        ]
        for p in iteration.plan.placements
    ]
    return digest([iteration_key(iteration.batches), iteration.plan_id, runs])[:32]


def deliver(folder: Path, iteration: ReplayIteration) -> None:
    """Puts a plan where the run finds it before its next step of these micro-batches.

    Raises:
        OSError: the folder cannot be written.
    """
    path = folder / f"{iteration_key(iteration.batches)}.json"
    partial = path.with_suffix(".partial")
    partial.write_text(json.dumps(iteration_to_json(iteration)), encoding="utf-8")
    partial.replace(path)


class PlanMail:
    """Reads what was delivered; a plan that does not fit is reported and passed over."""

    def __init__(self, job: ReplayJob) -> None:
        self._job = job
        self._folder = Path(job.plan_folder)
        self._seen: dict[str, int] = {}

    def newer(self, iteration: ReplayIteration) -> ReplayIteration | None:
        """The iteration with a plan that came since the last look, None where none did."""
        if not self._job.plan_folder:
            return None
        key = iteration_key(iteration.batches)
        path = self._folder / f"{key}.json"
        with suppress(OSError):
            changed = path.stat().st_mtime_ns
            if self._seen.get(key) == changed:
                return None
            self._seen[key] = changed
            return self._read(path, iteration)
        return None

    def _read(self, path: Path, iteration: ReplayIteration) -> ReplayIteration | None:
        try:
            value = json.loads(path.read_text(encoding="utf-8"))
            found = iteration_from_json(value, path.name)
            check_replacement(self._job, iteration, found)
        except (ArachneError, ValueError) as error:
            _log.warning("a new plan for %s is passed over: %s", iteration.name, error)
            return None
        return found


def check_replacement(job: ReplayJob, iteration: ReplayIteration, newer: ReplayIteration) -> None:
    """Refuses a plan for other micro-batches, another number of ranks or illegal degrees."""
    if iteration_key(newer.batches) != iteration_key(iteration.batches):
        raise InputError("the plan is for other micro-batches", where=iteration.name)
    planned = newer.problem.cluster.device_count
    if planned != job.world_size:
        what = f"the plan is for {planned} devices, this run has {job.world_size} ranks"
        raise InputError(what, where=iteration.name)
    check_iteration(job.model.config(), newer, job.model.name)


def plan_ids(iterations: Sequence[ReplayIteration]) -> tuple[str, ...]:
    """The stored plans of iterations, each once."""
    return tuple(dict.fromkeys(it.plan_id for it in iterations if it.plan_id))
