"""What a report is about: a stored plan with its problem, a run of it, and what others would do."""

from __future__ import annotations

from dataclasses import dataclass

from arachne_opt.cascade.plan import CascadePlan
from arachne_opt.cascade.problem import CascadeProblem
from arachne_opt.pipeline.plan import PipelinePlan
from arachne_opt.pipeline.problem import PipelineProblem
from arachne_opt.records import PlanRecord
from arachne_opt.report.cascade_timeline import planned_timeline as cascade_timeline
from arachne_opt.report.timeline import Timeline


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """One iteration of a run, on the clock of the plan.

    Args:
        timeline: its tasks by device; spans of a cascade's task tell ``cascade`` and ``task``,
            those of a pipeline's operation ``pipeline``, ``stage``, ``forward``, ``microbatch``.
        planned_us: what the run was to take.
        measured_us: what it took.
        emulated: tasks slept for their planned times; nothing was trained.
        stretch: measured times were multiplied by so much, after a rehearsal that ran faster.
        step: number of the iteration in the run.
    """

    run_id: str
    timeline: Timeline
    planned_us: int
    measured_us: int
    emulated: bool = False
    stretch: float = 1.0
    step: int = 0

    @property
    def fidelity(self) -> float | None:
        """Measured over planned time."""
        return self.measured_us / self.planned_us if self.planned_us else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Rival:
    """What a rule of a peer makes of the same problem.

    Args:
        title: for people, such as ``one degree for all``.
        time_us: makespan or iteration; None where the rule has no plan.
        note: why it has none.
    """

    name: str
    title: str
    time_us: int | None
    note: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class CascadeSubject:
    """A cascade plan; the plan is in the numbering of the problem."""

    record: PlanRecord
    problem: CascadeProblem
    plan: CascadePlan
    measured: Measured | None = None
    rivals: tuple[Rival, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class PipelineSubject:
    """A pipeline plan; every replica may name its node."""

    record: PlanRecord
    problem: PipelineProblem
    plan: PipelinePlan
    measured: Measured | None = None
    rivals: tuple[Rival, ...] = ()


Subject = CascadeSubject | PipelineSubject


def timelines_of(subject: Subject) -> tuple[Timeline, ...]:
    """The planned timeline, then the measured one where there is a run."""
    if isinstance(subject, CascadeSubject):
        planned = cascade_timeline(subject.problem, subject.plan)
    else:
        # Late: profiles and tables are only for pipelines.
        from arachne_opt.report.pipeline_timeline import planned_timeline

        planned = planned_timeline(subject.problem, subject.plan)
    return (planned, *([subject.measured.timeline] if subject.measured else []))
