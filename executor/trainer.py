"""The training loop of a rank: replay a plan, sum gradients, step the optimizer, report."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist

from arachne_opt.errors import InputError, RunError
from arachne_opt.executor.adapters import build_adapter
from arachne_opt.executor.adapters.base import VideoAdapter
from arachne_opt.executor.agreement import PlanDesk, agree_on_job
from arachne_opt.executor.cascade_runner import CascadeRunner
from arachne_opt.executor.checkpoint import WRITING_LIMIT_S, Checkpoints
from arachne_opt.executor.checkpoint_files import Training, refuse_begun
from arachne_opt.executor.distributed import gather, pick_device, require_group
from arachne_opt.executor.flat_update import FlatUpdate
from arachne_opt.executor.flush import flush_task
from arachne_opt.executor.fsdp_update import FsdpUpdate
from arachne_opt.executor.groups import GroupPool
from arachne_opt.executor.job import ReplayIteration, ReplayJob, check_world_size
from arachne_opt.executor.plan_mail import plan_ids
from arachne_opt.executor.precision import run_in_bf16
from arachne_opt.executor.report import REPORTED_STEPS, IterationReport, ReplayReport
from arachne_opt.executor.sampler import Sampler
from arachne_opt.executor.schedule import learning_rate
from arachne_opt.executor.step_report import step_report
from arachne_opt.executor.trace import RankTrace, merge
from arachne_opt.executor.update import Update
from arachne_opt.executor.watchdog import Watchdog

StepCallback = Callable[[IterationReport], None]


class CascadeTrainer:
    """Trains on one rank; every rank makes one, inside an initialised process group.

    ``run`` is the whole training. A loop of one's own calls ``train_step`` for each of ``steps``,
    or ``backward`` and then an optimizer of its own.

    Args:
        job: what to run; the same on all ranks.
        adapter: a model of the user's; the job's choice where None.
        watchdog: ends the process when a task hangs; errors are only named where None.
        resume: begin with the newest checkpoint, whatever the job says.

    Raises:
        InputError: a plan for another world size, or a checkpoint of another training.
        RunError: the ranks have not been joined, or their jobs differ.
    """

    def __init__(
        self,
        job: ReplayJob,
        *,
        adapter: VideoAdapter | None = None,
        watchdog: Watchdog | None = None,
        resume: bool = False,
    ) -> None:
        require_group()
        check_world_size(job, dist.get_world_size())
        agree_on_job(job)
        self.job = job
        self.adapter = adapter or build_adapter(job.model, pick_device(job.device))
        self.watchdog = watchdog or Watchdog(dist.get_rank())
        self.pool = GroupPool()
        self.update = _update(job, self.adapter)
        if job.update.precision == "bf16":
            run_in_bf16(self.adapter)
        self.runner = CascadeRunner(job, self.adapter, self.pool, self.watchdog)
        self._desk = PlanDesk(job)
        self._notes: list[str] = []
        self._kept_step = -1
        self.checkpoints: Checkpoints | None = None
        self.sampler = Sampler(job)
        if job.checkpoints.folder:
            self._open_checkpoints(resume or job.checkpoints.resume)

    @property
    def steps(self) -> range:
        """Numbers of the steps that are left."""
        return range(self.sampler.position.step, self.sampler.total_steps)

    def run(self, on_step: StepCallback | None = None) -> ReplayReport | None:
        """The report of the newest steps on rank 0, None elsewhere.

        Args:
            on_step: called on every rank after each step with its report.
        """
        reports: deque[IterationReport] = deque(maxlen=REPORTED_STEPS)
        first = self.sampler.position.step
        for step in self.steps:
            report = self.train_step(step)
            if self.watchdog.rank == 0:
                reports.append(report)
            if on_step is not None:
                on_step(report)
        self.finish()
        done = self.sampler.position.step - first
        if done > REPORTED_STEPS:
            self._notes.append(f"the report has the last {REPORTED_STEPS} of {done} steps")
        return self._report(list(reports)) if self.watchdog.rank == 0 else None

    def train_step(self, step: int) -> IterationReport:
        """One optimizer step; the report is the same on all ranks."""
        iteration, trace = self._gradients(step)
        rate = learning_rate(
            self.job.learning_rate, step, self.sampler.total_steps, self.job.update
        )
        with self.watchdog.task("updating the weights", self.job.iteration_timeout_s):
            trace.norm = self.update.step(rate)
        return self._close(iteration, trace, rate)

    def backward(self, step: int) -> IterationReport:
        """Leaves the gradient of the whole iteration in the parameters, for any optimizer.

        Raises:
            InputError: with sharded updates no rank has the whole gradient.
        """
        if self.update.sharded:
            what = f"with {self.job.update.sharding} no rank holds the whole gradient"
            raise InputError(what, hint="the sharding replicated, or train_step")
        iteration, trace = self._gradients(step)
        return self._close(iteration, trace, 0.0)

    def finish(self) -> None:
        """Keeps the last checkpoint and the parameters, where the job wants them."""
        if self.checkpoints is not None:
            if self._kept_step != self.sampler.position.step:
                self._checkpoint()
            with self.watchdog.task("writing a checkpoint", WRITING_LIMIT_S):
                self.checkpoints.finish()
        if self.job.save_parameters:
            path = Path(self.job.save_parameters)
            self._save(path, averaged=False)
            if self.update.ema is not None:
                self._save(path.with_suffix(f".ema{path.suffix}"), averaged=True)

    def _gradients(self, step: int) -> tuple[ReplayIteration, RankTrace]:
        """Replays a step and sums the gradients."""
        limit_s = self.job.iteration_timeout_s
        with self.watchdog.task(f"comparing plans for step {step}", limit_s):
            iteration = self._desk.plan(self.sampler.iteration_at(step))
        self.update.begin()
        more = step + 1 < self.sampler.total_steps
        following = self.sampler.iteration_at(step + 1) if more else None
        trace = self.runner.run(
            step,
            iteration,
            following=following,
            before_last=self.update.arm,
            after_tasks=self.update.start_sums,
        )
        with self.watchdog.task("summing gradients", limit_s):
            self.update.finish_sums(lambda: flush_task(self.adapter, self.job, iteration))
        trace.synced_us = self.runner.now_us()
        return iteration, trace

    def _close(self, iteration: ReplayIteration, trace: RankTrace, rate: float) -> IterationReport:
        """Exchanges what the ranks measured, moves on, keeps a checkpoint where one is due."""
        trace.stepped_us = self.runner.now_us()
        with self.watchdog.task("exchanging reports", self.job.iteration_timeout_s):
            rows = gather(trace.to_row(iteration))
        report = step_report(
            iteration, merge(trace.step, rows, iteration), rate, self.runner.left_out
        )
        self.sampler.advance(iteration.batches)
        if self.checkpoints is not None:
            self.checkpoints.poll()
            every = self.job.checkpoints.every
            if every and self.sampler.position.step % every == 0:
                self._checkpoint()
        return report

    def _open_checkpoints(self, resume: bool) -> None:
        folder = Path(self.job.checkpoints.folder)
        if not resume:
            refuse_begun(folder)
        self.checkpoints = Checkpoints(self.job.checkpoints, self.update)
        training = self.checkpoints.load() if resume else None
        if training is None:
            return
        for what, own in (("model", self.job.model.name), ("seed", self.job.seed)):
            if (kept := getattr(training, what)) != own:
                where = str(folder)
                raise InputError(f"the checkpoint is of the {what} {kept}, not {own}", where=where)
        self.sampler = Sampler(self.job, training.position)
        self._notes.append(f"went on after step {training.position.step} from {folder}")

    def _checkpoint(self) -> None:
        assert self.checkpoints is not None  # asked for only where there are some
        self._kept_step = self.sampler.position.step
        training = Training(
            position=self.sampler.position,
            model=self.job.model.name,
            seed=self.job.seed,
            weight_rule=self.job.weight_rule,
            sharding=self.job.update.sharding,
            world_size=dist.get_world_size(),
            averaged=self.update.ema is not None,
            plan_ids=plan_ids(self.job.iterations),
        )
        with self.watchdog.task("keeping a checkpoint", WRITING_LIMIT_S):
            self.checkpoints.save(training)

    def _save(self, path: Path, *, averaged: bool) -> None:
        """Writes the weights beside their place and moves them there when they are whole."""
        weights = self.update.weights(averaged=averaged)
        if self.watchdog.rank != 0:
            return
        partial = path.with_name(path.name + ".partial")
        try:
            torch.save(weights, partial)
            partial.replace(path)
        except (OSError, RuntimeError) as error:  # torch reports a full disk as the latter
            raise RunError(f"cannot save the parameters: {error}", where=str(path)) from error

    def _report(self, reports: Sequence[IterationReport]) -> ReplayReport:
        failures = self.checkpoints.failures if self.checkpoints is not None else []
        return ReplayReport(
            model=self.job.model.name,
            world_size=dist.get_world_size(),
            device=self.adapter.device.type,
            threads_per_rank=torch.get_num_threads(),
            weight_rule=self.job.weight_rule,
            iterations=tuple(reports),
            notes=(*self._notes, *failures),
            emulated=self.job.model.emulated,
        )


def _update(job: ReplayJob, adapter: VideoAdapter) -> Update:
    if job.update.sharding == "fsdp2":
        return FsdpUpdate(adapter.transformer, job.update, weight_decay=job.weight_decay)
    # A group of its own: sums may run while other ranks still work on tasks.
    timeout = timedelta(seconds=job.iteration_timeout_s)
    group = dist.new_group(timeout=timeout) if dist.get_world_size() > 1 else None
    return FlatUpdate(adapter.transformer, job.update, weight_decay=job.weight_decay, group=group)
