"""Puts planned sequence parallelism under a training loop of one's own.

    torchrun --nproc-per-node 2 examples/existing_loop.py examples/clips-tiny.csv

The loop keeps its optimizer, its schedule and its logging. What changes is where the gradient comes
from: ``trainer.backward`` runs the micro-batches of a step under a plan and leaves the gradient of
the whole global batch in the parameters, on every rank. A model of one's own comes in as
``CascadeTrainer(job, adapter=...)``.
"""

from __future__ import annotations

import os
import sys

import torch
import torch.distributed as dist

from arachne_opt.cluster_file import read_cluster
from arachne_opt.costs.analytic import analytic_for_cluster
from arachne_opt.costs.build import build_problem
from arachne_opt.executor import CascadeTrainer, share_job
from arachne_opt.executor.job import ReplayIteration, ReplayJob
from arachne_opt.executor.model_config import ModelChoice
from arachne_opt.executor.options import UpdateOptions
from arachne_opt.grouping import group_clips
from arachne_opt.manifest import read_manifest
from arachne_opt.models import model_spec
from arachne_opt.planning.service import PlanService
from arachne_opt.solvers.base import Limits


def plan(manifest: str, world_size: int) -> ReplayJob:
    """A job with a proven plan for each iteration; runs on rank 0 only."""
    cluster, model = read_cluster(f"CPU:{world_size}"), model_spec("toy")
    costs = analytic_for_cluster(model, cluster)
    clips = read_manifest(manifest)
    workload = group_clips(clips, model=model, iteration_size=6).workload
    iterations = []
    for batches in workload.iterations[:3]:
        problem = build_problem(batches, cluster, costs)
        answer = PlanService(None).plan_cascade(problem, Limits(time_limit_s=1.0))
        iterations.append(ReplayIteration(batches=batches, problem=problem, plan=answer.plan))
    return ReplayJob(
        model=ModelChoice(preset="toy"),
        iterations=tuple(iterations),
        update=UpdateOptions(sharding="replicated"),
    )


def main(manifest: str) -> None:
    """The loop."""
    dist.init_process_group("gloo")
    job = share_job(lambda: plan(manifest, dist.get_world_size()))
    trainer = CascadeTrainer(job)
    optimizer = torch.optim.SGD(trainer.adapter.transformer.parameters(), lr=0.05)
    for step in trainer.steps:
        report = trainer.backward(step)
        optimizer.step()
        if dist.get_rank() == 0:
            took, planned = report.measured_us / 1e6, report.planned_us / 1e6
            line = f"step {step}: loss {report.loss:.4f}, {took:.3f} s (planned {planned:.3f} s)"
            sys.stdout.write(line + "\n")
    sys.stdout.flush()
    dist.barrier()
    # A normal exit takes down torch's threads in an order that now and then aborts.
    os._exit(0)


if __name__ == "__main__":
    main(sys.argv[1])
