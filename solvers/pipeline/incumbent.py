"""The best pipeline plan so far, priced by the closed form, with every improvement reported."""

from __future__ import annotations

import math
from dataclasses import dataclass

from arachne_opt.costs.pipeline.closed_form import plan_price
from arachne_opt.pipeline.plan import PipelinePlan
from arachne_opt.solvers.clock import Clock
from arachne_opt.solvers.pipeline.base import PipelineCallback, PipelineProgress
from arachne_opt.solvers.pipeline.workbench import Candidate, Workbench

# A plan whose cautious price lies further above the published one lives on what that one does not
# see. Such a plan is kept only while there is no other.
TRUSTED_GAP = 0.01
_BETTER = 1 - 1e-9


@dataclass(frozen=True, slots=True)
class Kept:
    """A plan with its prices; ``candidate`` is None for one that came from outside."""

    plan: PipelinePlan
    iteration_s: float
    cautious_s: float
    candidate: Candidate | None

    @property
    def trusted(self) -> bool:
        """Whether both prices tell about the same."""
        return self.cautious_s <= (1 + TRUSTED_GAP) * self.iteration_s

    @property
    def score(self) -> tuple[bool, float]:
        """Plans that are trusted first, then the cautious price (or the plain one)."""
        seconds = self.cautious_s if math.isfinite(self.cautious_s) else self.iteration_s
        return not self.trusted, seconds


class PipelineIncumbent:
    """Keeps the better of all candidates."""

    def __init__(
        self, bench: Workbench, clock: Clock, bound_s: float, on_progress: PipelineCallback | None
    ) -> None:
        self._bench = bench
        self._clock = clock
        self._bound_s = bound_s
        self._on_progress = on_progress
        self.kept: Kept | None = None
        self.history: list[PipelineProgress] = []

    @property
    def seconds(self) -> float:
        """Time of an iteration that a candidate has to beat."""
        if self.kept is None or not self.kept.trusted:
            return math.inf
        return self.kept.score[1]

    def apart(self) -> PipelineIncumbent:
        """Another incumbent that begins with the same plan and passes its improvements on here.

        What is offered here directly does not reach it.
        """
        own = PipelineIncumbent(self._bench, self._clock, self._bound_s, None)
        own.kept = self.kept

        def pass_on(event: PipelineProgress) -> None:
            candidate = own.kept.candidate if own.kept else None
            self.offer_plan(event.plan, event.source, candidate)

        own._on_progress = pass_on
        return own

    def offer(self, candidate: Candidate) -> bool:
        """Takes a candidate if it is better; says whether it was."""
        if candidate.total_s >= self.seconds * _BETTER:
            return False
        return self.offer_plan(self._bench.plan(candidate), candidate.source, candidate)

    def offer_plan(
        self, plan: PipelinePlan, source: str, candidate: Candidate | None = None
    ) -> bool:
        """The same for a plan."""
        price = plan_price(self._bench.costs, plan)
        new = Kept(plan, price.iteration_s, price.cautious_s, candidate)
        if not math.isfinite(price.iteration_s):
            return False
        if self.kept is not None:
            seconds = self.kept.score[1] * (1 if new.trusted > self.kept.trusted else _BETTER)
            if new.score >= (self.kept.score[0], seconds):
                return False
        self.kept = new
        event = PipelineProgress(
            elapsed_s=self._clock.wall_s(),
            iteration_s=new.iteration_s,
            bound_s=min(self._bound_s, new.iteration_s),
            source=source,
            plan=plan,
        )
        self.history.append(event)
        if self._on_progress is not None:
            self._on_progress(event)
        return True
