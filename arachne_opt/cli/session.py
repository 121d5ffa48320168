"""Plans problem after problem for a person who watches: progress, Ctrl-C, files and tables."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

import click

from arachne_opt.cascade.problem import CascadeProblem
from arachne_opt.cli.output import (
    emit_json,
    emit_table,
    part_beside,
    percent,
    put_in_place,
)
from arachne_opt.cli.progress import Interrupts, ProgressLine, catch_interrupts, search_text
from arachne_opt.errors import INTERRUPTED, OUTSIDE_GAP, InputError
from arachne_opt.learning.jobs import Workers
from arachne_opt.planning.service import Answer, PlanService
from arachne_opt.solvers.base import Limits, Progress
from arachne_opt.units import format_seconds


@dataclass
class Session:
    """Solves problems one after the other and remembers the answers."""

    limits: Limits
    solver: str
    use_cache: bool
    warm_start: str | None = None
    workers: Workers | None = None
    answers: list[Answer] = field(default_factory=list)
    interrupted: bool = False

    def run(
        self, service: PlanService, problems: tuple[CascadeProblem, ...], out: PlanFile | None
    ) -> None:
        """Plans every problem; stops after the current one when the user asks to."""
        if self.workers is not None and not self.workers.alone:
            self._run_many(service, problems, self.workers, out)
            return
        line = ProgressLine()
        with catch_interrupts() as interrupts:
            for number, problem in enumerate(problems, start=1):
                head = f"[{number}/{len(problems)}] {problem.name}"
                line.show(head, force=True)
                answer = self._one(service, problem, interrupts, line, head)
                line.clear()
                self.answers.append(answer)
                if out:
                    out.add(answer)
                if interrupts.pressed():
                    self.interrupted = True
                    click.echo(f"interrupted after {number} of {len(problems)} plans", err=True)
                    return

    def _run_many(
        self,
        service: PlanService,
        problems: tuple[CascadeProblem, ...],
        workers: Workers,
        out: PlanFile | None,
    ) -> None:
        """Plans problems at the same time; answers stay in the order of the problems."""
        from arachne_opt.planning.many import plan_many

        line, found = ProgressLine(), dict[int, Answer]()
        with catch_interrupts() as interrupts:
            try:
                for position, answer in plan_many(
                    service,
                    problems,
                    self.limits,
                    workers,
                    solver=self.solver,
                    use_cache=self.use_cache,
                    should_stop=interrupts.pressed,
                ):
                    found[position] = answer
                    line.show(f"[{len(found)}/{len(problems)}] {answer.problem.name}")
            finally:
                line.clear()
                self.answers += [found[position] for position in sorted(found)]
                for answer in self.answers:
                    if out is not None:
                        out.add(answer)
            self.interrupted = interrupts.pressed()

    def _one(
        self,
        service: PlanService,
        problem: CascadeProblem,
        interrupts: Interrupts,
        line: ProgressLine,
        head: str,
    ) -> Answer:
        def on_progress(progress: Progress) -> None:
            line.show(search_text(progress, head))

        def on_wait(waited_s: float) -> None:
            line.show(f"{head}  another process is solving it, waited {waited_s:.0f} s")

        return interrupts.run(
            lambda: service.plan_cascade(
                problem,
                self.limits,
                solver=self.solver,
                use_cache=self.use_cache,
                on_progress=on_progress,
                should_stop=interrupts.pressed,
                warm_start=self.warm_start,
                on_wait=on_wait,
            )
        )

    def exit_code(self, asked_gap: float | None) -> int:
        """0, 4 where a plan is outside a gap that was asked for, 130 after Ctrl-C."""
        if self.interrupted:
            return INTERRUPTED
        if asked_gap is None:
            return 0
        outside = [a for a in self.answers if a.record.gap is None or a.record.gap > asked_gap]
        return OUTSIDE_GAP if outside else 0


class PlanFile:
    """A file of plans that appears whole: lines go to a part file, renamed at the end."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._part = part_beside(path)

    def __enter__(self) -> PlanFile:
        """Opens the part file."""
        try:
            self._file: IO[str] = self._part.open("w", encoding="utf-8")
        except OSError as error:
            raise InputError(f"cannot write: {error.strerror}", where=str(self._path)) from error
        return self

    def add(self, answer: Answer) -> None:
        """Appends one plan."""
        try:
            self._file.write(json.dumps(answer.plan.to_json(answer.problem)) + "\n")
            self._file.flush()
        except OSError as error:
            raise InputError(f"cannot write: {error.strerror}", where=str(self._path)) from error

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        """Keeps what was written, in case of an error too: the plans in it are whole."""
        self._file.close()
        put_in_place(self._part, self._path)


def answer_json(answer: Answer) -> dict[str, Any]:
    """An answer for programs."""
    record = answer.record
    return {
        "id": record.id,
        "name": answer.problem.name,
        "fingerprint": record.fingerprint,
        "status": record.status,
        "makespan_us": record.objective_us,
        "tail_us": answer.problem.tail_us,
        "iteration_us": answer.problem.iteration_us(record.objective_us),
        "bound_us": record.bound_us,
        "gap": record.gap,
        "solver": record.solver,
        "seed": record.seed,
        "wall_s": record.wall_s,
        "cached": answer.cached,
        "lookup_s": answer.lookup_s,
        "interrupted": answer.interrupted,
        "warm_from": answer.warm_from,
        "versions": dict(record.versions),
    }


def show_answers(answers: list[Answer], form: str) -> None:
    """Prints a row per plan; the gap is that of the makespan, as the tail is the same for all."""
    if form == "json":
        emit_json("solve", {"plans": [answer_json(answer) for answer in answers]})
        return
    tails = any(answer.problem.tail_us for answer in answers)
    rows = []
    for answer in answers:
        record = answer.record
        spent = f"hit {1e3 * answer.lookup_s:.1f} ms" if answer.cached else f"{record.wall_s:.2f} s"
        spent += f" from {answer.warm_from[:12]}" if answer.warm_from else ""
        makespan, bound = format_seconds(record.objective_us), format_seconds(record.bound_us)
        row = [record.id[:12], answer.problem.name, makespan, bound, percent(record.gap)]
        whole = format_seconds(answer.problem.iteration_us(record.objective_us))
        rows.append([*row, *([whole] if tails else []), record.status, record.solver, spent])
    if rows:
        head = ["plan", "problem", "makespan", "bound", "gap"]
        head += ["iteration"] if tails else []
        emit_table([*head, "status", "solver", "time"], rows)
