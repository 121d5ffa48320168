"""Beside a training: better plans for the steps to come, and new costs when the old ones drift.

It runs in the process that started the ranks, hears of every step, and hands plans over through
the run's plan folder. Nothing that goes wrong here stops the training: it goes on with the plans
that it has, and the user is told once.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from arachne_opt.cluster import Cluster
from arachne_opt.costs.base import CostModel
from arachne_opt.costs.build import build_problem
from arachne_opt.costs.corrected import CorrectedCostModel, Correction
from arachne_opt.errors import ArachneError, StoreError
from arachne_opt.executor.drift import Deviation, DriftMonitor
from arachne_opt.executor.job import ReplayIteration
from arachne_opt.executor.plan_mail import deliver, plan_fingerprint
from arachne_opt.executor.report import IterationReport
from arachne_opt.planning.plan_ahead import PlanAhead, ReadyPlan
from arachne_opt.solvers.base import Limits
from arachne_opt.units import PPM
from arachne_opt.workload import Iteration

if TYPE_CHECKING:
    from arachne_opt.cascade.problem import CascadeProblem
    from arachne_opt.db.store import PlanStore

Tell = Callable[[str], None]

# The ranks begin a step while this process still hears of the one before.
_LEAD = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Outlook:
    """What a training will run.

    Args:
        steps: the micro-batches of each step to come, in order.
        first_step: number of the first of them.
        cluster: that the ranks stand for.
        costs: behind the plans that the training starts with.
        degrees: the degrees allowed, None for all.
    """

    steps: tuple[Iteration, ...]
    first_step: int
    cluster: Cluster
    costs: CostModel
    degrees: tuple[int, ...] | None = None


class Companion:
    """Plans ahead and watches for drift; use it as a context manager.

    Args:
        outlook: the steps to come.
        limits: for each plan.
        store: where plans and cost models are kept; None keeps none.
        database: the same for the planning process, by address.
        plan_folder: where the run looks for plans.
        replan_above: error of the durations from which on they are corrected; None never does.
        ahead: plan ahead from the beginning, not only after drift.
        tell: takes a line for the user.
    """

    def __init__(
        self,
        outlook: Outlook,
        limits: Limits,
        *,
        store: PlanStore | None,
        database: str | None,
        plan_folder: Path,
        replan_above: float | None,
        ahead: bool,
        tell: Tell,
    ) -> None:
        self._outlook, self._limits = outlook, limits
        self._store, self._database = store, database
        self._folder, self._tell = plan_folder, tell
        self._monitor = DriftMonitor(replan_above) if replan_above is not None else None
        self._costs = outlook.costs
        self._delivered: dict[str, str] = {}
        self._told: set[str] = set()
        self._ahead = self._planner() if ahead else None

    def __enter__(self) -> Companion:
        """Itself."""
        return self

    def __exit__(self, *error: object) -> None:
        """Ends the planning process."""
        if self._ahead is not None:
            self._ahead.close()

    @property
    def costs(self) -> CostModel:
        """The costs behind the plans that are made now."""
        return self._costs

    def on_step(self, report: IterationReport) -> None:
        """Hears of a step that is done."""
        try:
            if self._monitor is not None:
                self._monitor.add(report)
                if self._monitor.drifted:
                    self._correct(self._monitor, report.step)
            self._hand_over(report.step - self._outlook.first_step + _LEAD)
        except (ArachneError, OSError) as error:
            self._tell_once(f"no new plan, the training goes on with those it has: {error}")

    def _correct(self, monitor: DriftMonitor, step: int) -> None:
        """Makes a new version of the costs and plans with it from now on."""
        error = monitor.error
        new = CorrectedCostModel(
            base=self._costs,
            corrections=tuple(_correction(row) for row in monitor.deviations()),
        )
        monitor.restart()
        self._costs = new
        text = f"after step {step} tasks were off by {100 * error:.0f} %: planning anew with costs"
        self._tell(f"{text} {new.version}")
        if self._store is not None:
            try:
                self._store.add_cost_model(new.version, new.model.name, new.description())
            except StoreError as failure:
                self._tell_once(f"the database cannot be used, the training goes on: {failure}")
        if self._ahead is not None:
            self._ahead.close()
        self._ahead = self._planner()

    def _planner(self) -> PlanAhead:
        """Plans all steps with the costs of now; equal iterations are one problem."""
        problems: dict[int, CascadeProblem] = {}
        for iteration in self._outlook.steps:
            if id(iteration) not in problems:
                problems[id(iteration)] = build_problem(
                    iteration, self._outlook.cluster, self._costs, degrees=self._outlook.degrees
                )
        every: Sequence[CascadeProblem] = [problems[id(it)] for it in self._outlook.steps]
        return PlanAhead(every, self._limits, database=self._database)

    def _hand_over(self, number: int) -> None:
        """Delivers the plan of a step to come, where it is another one than the run has."""
        if self._ahead is None or not 0 <= number < len(self._outlook.steps):
            return
        ready = self._ahead.get(number)
        iteration = ReplayIteration(
            batches=self._outlook.steps[number],
            problem=ready.problem,
            plan=ready.plan,
            plan_id=self._plan_id(ready),
        )
        fingerprint = plan_fingerprint(iteration)
        if self._delivered.get(iteration.name) != fingerprint:
            deliver(self._folder, iteration)
            self._delivered[iteration.name] = fingerprint

    def _plan_id(self, ready: ReadyPlan) -> str:
        """The stored plan's id, empty where it is not stored."""
        if self._store is None:
            return ""
        try:
            record = self._store.find_plan(ready.problem.fingerprint())
        except StoreError as error:
            self._tell_once(f"the database cannot be used, the training goes on: {error}")
            return ""
        kept = record is not None and record.objective_us == ready.objective_us
        return record.id if record is not None and kept else ""

    def _tell_once(self, text: str) -> None:
        if text not in self._told:
            self._told.add(text)
            self._tell(text)


def _correction(row: Deviation) -> Correction:
    label = f"{row.clips}x{row.shape}" if row.shape is not None else ""
    return Correction(
        task=row.task,
        device_type=row.device_type,
        degree=row.degree,
        factor_ppm=max(1, round(row.ratio * PPM)),
        label=label,
    )
