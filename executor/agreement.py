"""All ranks do the same: jobs are shared out, newer plans passed on, and both compared.

A rank with another plan would wait for peers that never come, or mix up tensors. So the ranks
compare what they are about to do before the first group of the iteration is made.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable

import torch
import torch.distributed as dist

from arachne_opt.canonical import digest
from arachne_opt.errors import RunError
from arachne_opt.executor.job import ReplayIteration, ReplayJob
from arachne_opt.executor.job_json import (
    iteration_from_json,
    iteration_to_json,
    job_from_json,
    job_to_json,
)
from arachne_opt.executor.plan_mail import (
    PlanMail,
    check_replacement,
    iteration_key,
    plan_fingerprint,
)

# Where each machine keeps its own copy of a job these may differ without harm.
_LOCAL = ("iterations", "opening", "threads_per_rank", "save_parameters", "plan_folder")


def share_job(make: Callable[[], ReplayJob]) -> ReplayJob:
    """The job that rank 0 makes, on every rank; an error of ``make`` is raised on every rank."""
    box: list[object] = [None]
    if dist.get_rank() == 0:
        try:
            box = [job_to_json(make())]
        except Exception as error:
            dist.broadcast_object_list([str(error)])
            raise
    dist.broadcast_object_list(box)
    if isinstance(box[0], str):
        raise RunError(f"no job: {box[0]}", where="rank 0")
    return job_from_json(box[0])


def agree_on_job(job: ReplayJob) -> None:
    """Refuses to train where the ranks have different jobs; plans are compared step by step."""
    value = {key: v for key, v in job_to_json(job).items() if key not in _LOCAL}
    _compare("job", digest(json.dumps(value, sort_keys=True))[:32])


class PlanDesk:
    """Gives every rank the same plan before a step."""

    def __init__(self, job: ReplayJob) -> None:
        self._job = job
        self._mail = PlanMail(job)
        self._newer: dict[str, ReplayIteration] = {}
        self._fingerprints: dict[str, tuple[ReplayIteration, str]] = {}

    def plan(self, iteration: ReplayIteration) -> ReplayIteration:
        """The iteration with its newest plan, compared over all ranks.

        Raises:
            RunError: a rank has another plan; names it.
        """
        key = iteration_key(iteration.batches)
        if self._job.plan_folder:
            self._pass_on(key, iteration)
            iteration = self._newer.get(key, iteration)
        _compare(f"plan of {iteration.name}", self._fingerprint(key, iteration))
        return iteration

    def _pass_on(self, key: str, iteration: ReplayIteration) -> None:
        """Rank 0 looks for a newer plan and tells the others."""
        box: list[object] = [None]
        if dist.get_rank() == 0 and (found := self._mail.newer(iteration)) is not None:
            box = [iteration_to_json(found)]
        dist.broadcast_object_list(box)
        if box[0] is not None:
            newer = iteration_from_json(box[0], iteration.name)
            check_replacement(self._job, iteration, newer)
            self._newer[key] = newer

    def _fingerprint(self, key: str, iteration: ReplayIteration) -> str:
        kept = self._fingerprints.get(key)
        if kept is None or kept[0] is not iteration:
            kept = iteration, plan_fingerprint(iteration)
            self._fingerprints[key] = kept
        return kept[1]


def _compare(what: str, fingerprint: str) -> None:
    """Compares a hexadecimal digest over all ranks."""
    own = torch.tensor(list(bytes.fromhex(fingerprint)), dtype=torch.uint8)
    rows = [torch.empty_like(own) for _ in range(dist.get_world_size())]
    dist.all_gather(rows, own)
    found = [bytes(row.tolist()).hex() for row in rows]
    usual, count = Counter(found).most_common(1)[0]
    if count == len(found):
        return
    odd = [rank for rank, text in enumerate(found) if text != usual]
    named = ", ".join(f"rank {rank} has {found[rank][:8]}" for rank in odd)
    raise RunError(f"the ranks disagree on the {what}: {named}, the others {usual[:8]}")
