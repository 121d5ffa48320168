"""The loop of a rank under a pipeline plan: steps, measurements, checkpoints, a report."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol

import torch
import torch.distributed as dist

from arachne_opt.errors import ArachneError, RunError
from arachne_opt.executor.checkpoint_files import newest, refuse_begun
from arachne_opt.executor.distributed import gather, meet
from arachne_opt.executor.pipeline.checkpoint import load_checkpoint, save_checkpoint
from arachne_opt.executor.pipeline.job import PipelineJob, job_from_json, job_to_json
from arachne_opt.executor.pipeline.next_plan import NextPlan, nodes_of_processes
from arachne_opt.executor.pipeline.pretrained import load_pretrained, save_pretrained
from arachne_opt.executor.pipeline.recorder import Recorder
from arachne_opt.executor.pipeline.rehearsal import Rehearsal
from arachne_opt.executor.pipeline.report import (
    REPORTED_STEPS,
    MoveReport,
    PipelineReport,
    StepReport,
    stage_reports,
)
from arachne_opt.executor.pipeline.samples import open_samples
from arachne_opt.executor.pipeline.takeover import move_to
from arachne_opt.executor.pipeline.training import (
    PipelineTraining,
    StepResult,
    TrainingOptions,
    refuse_other_model,
)
from arachne_opt.executor.pipeline.uniform import Engine
from arachne_opt.executor.schedule import learning_rate
from arachne_opt.executor.watchdog import Watchdog
from arachne_opt.pipeline.problem import Schedule

StepCallback = Callable[[StepReport], None]

_WRITING_LIMIT_S = 3600.0
_WATCH_EVERY = 50

_NOTHING = StepResult(loss=0.0, norm=0.0, tokens=0)


class _Work(Protocol):
    """What is run again and again."""

    def step(self, learning_rate: float) -> StepResult:
        """One iteration."""


class PipelineTrainer:
    """Trains, or rehearses, on one rank inside an initialised process group.

    Args:
        job: what to run; the same on all ranks.
        device: of this rank.
        watchdog: ends the process when a step hangs.
        resume: begin with the newest checkpoint, whatever the job says.

    Raises:
        InputError: the model or the data does not fit the plan.
        RunError: the world has another size than the plan.
    """

    def __init__(
        self,
        job: PipelineJob,
        device: torch.device,
        *,
        watchdog: Watchdog | None = None,
        resume: bool = False,
    ) -> None:
        self.job, self._first, self.device = job, job, device
        self.rank = dist.get_rank()
        self._watchdog = watchdog or Watchdog(self.rank)
        self._recorder = Recorder(self.rank, device)
        self._training = None if job.emulated else self._build(resume or job.checkpoints.resume)
        self._work: _Work = self._training or self._rehearsal()
        self._next = NextPlan(job) if job.moves and self.rank == 0 else None
        self.first_step = self._training.position.step if self._training else 0
        self.notes: list[str] = []
        self._moves: list[MoveReport] = []

    def run(self, on_step: StepCallback | None = None) -> PipelineReport | None:
        """The report of the newest steps on rank 0, None elsewhere.

        Args:
            on_step: called on every rank after each step.
        """
        reports: deque[StepReport] = deque(maxlen=REPORTED_STEPS)
        for step in range(self.first_step, self.job.steps):
            if self.job.moves:
                self._move(step)
            reports.append(self._step(step))
            self._keep(step + 1)
            if on_step is not None:
                on_step(reports[-1])
        spans = self._recorder.gather_spans()
        if self._training is not None and self._training.takes_part and self.job.save:
            with self._watchdog.task("writing the weights", _WRITING_LIMIT_S):
                save_pretrained(self._training, self.job.save)
        if self.rank != 0:
            return None
        done = self.job.steps - self.first_step
        if done > REPORTED_STEPS:
            self.notes.append(f"the report has the last {REPORTED_STEPS} of {done} steps")
        return PipelineReport(
            model=self.job.model_name,
            plan_id=self._first.plan_id,
            world_size=self._first.world_size,
            device=self.device.type,
            steps=tuple(reports),
            spans=spans,
            notes=tuple(self.notes),
            emulated=self.job.emulated,
            speed=self.job.speed,
            moves=tuple(self._moves),
        )

    def _move(self, step: int) -> None:
        """Goes on under the plan that was handed over, if any; all processes together."""
        assert self._training is not None  # rehearsals do not move
        found: list[Any] = [self._handed_over(step)]
        dist.broadcast_object_list(found)
        if found[0] is None:
            return
        job, begin_s = job_from_json(found[0]), time.perf_counter()
        with self._watchdog.task("moving to another plan", _WRITING_LIMIT_S):
            nodes = nodes_of_processes(self._first, job)
            old = self._training
            self._training, moved = move_to(old, job.plan, nodes, self._recorder)
        self.job, self._work = job, self._training
        rank = self._training.seats.rank
        self._recorder.rank = -1 if rank is None else rank
        move = MoveReport(
            step=step,
            plan_id=job.plan_id,
            world_size=job.world_size,
            network_bytes=moved.network_bytes,
            inside_bytes=moved.inside_bytes,
            took_us=round(1e6 * (time.perf_counter() - begin_s)),
        )
        self._moves.append(move)
        self.notes.append(str(move))

    def _handed_over(self, step: int) -> dict[str, Any] | None:
        """The job under a newer plan, on rank 0; None where there is none that fits."""
        if self._next is None:
            return None
        try:
            newer = self._next.newer(self.job)
            if newer is not None and newer.spec is not None:
                refuse_other_model(newer.spec, newer.layout)
        except ArachneError as error:  # the training goes on as it is
            self.notes.append(f"step {step}: the plan that was handed over does not fit: {error}")
            return None
        return None if newer is None else job_to_json(newer)

    def _step(self, step: int) -> StepReport:
        job, result = self.job, _NOTHING
        rate = learning_rate(job.learning_rate, step, job.steps, job.update)
        with self._watchdog.task(f"step {step}", job.timeout_s):
            meet()
            self._recorder.begin(watch=self._watched(step))
            if self._training is None or self._training.takes_part:
                result = self._work.step(rate)
            end_us = 1e6 * self._recorder.end_s()
            own = [result.loss, result.norm, float(result.tokens)]
            by_process = gather([*own, end_us, *self._recorder.sums_us()])
        seats = range(job.world_size) if self._training is None else self._training.seats.seats
        rows = [by_process[process] for process in seats]
        places = [(m.pipeline, m.stage) for m in job.layout.members]
        sums = [row[4:] for row in rows] if self._recorder.watching else []
        loss, norm, tokens = rows[0][:3]
        return StepReport(
            step=step,
            loss=loss,
            norm=norm,
            tokens=round(tokens),
            learning_rate=rate,
            planned_us=job.planned_us,
            measured_us=round(max(row[3] for row in rows)),
            stages=stage_reports(places, sums) if sums else (),
        )

    def _watched(self, step: int) -> bool:
        """Whether a step is told apart even where that costs time: the last one and a few."""
        return step in (self.first_step + 1, self.job.steps - 1) or step % _WATCH_EVERY == 0

    def _keep(self, done: int) -> None:
        """Writes a checkpoint where one is due."""
        options = self.job.checkpoints
        due = done == self.job.steps or (options.every and done % options.every == 0)
        if self._training is None or not options.folder or not due:
            return
        if not self._training.takes_part:
            return
        with self._watchdog.task("writing a checkpoint", _WRITING_LIMIT_S):
            try:
                save_checkpoint(self._training, Path(options.folder), keep=options.keep)
            except RunError as error:  # the training goes on; the checkpoints before stay
                self.notes.append(f"checkpoint of step {done} not kept: {error.what}")

    def _rehearsal(self) -> Rehearsal:
        job = self.job
        return Rehearsal(
            job.problem,
            job.plan,
            speed=job.speed,
            schedule=Schedule(job.schedule),
            observer=self._recorder,
            timeout_s=job.timeout_s,
        )

    def _build(self, resume: bool) -> PipelineTraining:
        job = self.job
        assert job.spec is not None  # a training has a model
        assert job.source is not None
        folder = Path(job.checkpoints.folder) if job.checkpoints.folder else None
        if folder is not None and not resume:
            refuse_begun(folder)
        training = PipelineTraining(
            job.spec,
            job.plan,
            open_samples(job.source, job.spec.vocabulary, job.seed),
            TrainingOptions(
                seed=job.seed,
                dtype=torch.bfloat16 if job.update.precision == "bf16" else torch.float32,
                weight_decay=job.weight_decay,
                clip_norm=job.update.clip_norm,
                balance=job.balance,
                schedule=Schedule(job.schedule),
                chunks=job.chunks,
                engine=Engine(job.engine),
                timeout_s=job.timeout_s,
            ),
            device=self.device,
            observer=self._recorder,
        )
        found = resume and folder is not None and newest(folder) is not None
        if found and folder is not None:
            load_checkpoint(training, folder)
        elif job.pretrained:
            load_pretrained(training, job.pretrained)
        return training
