"""Samples that planners train while the cluster changes, with planning and moving charged.

At every change training stops, a planner plans, weights and optimizer state move to where the new
plan wants them, and whole iterations are counted until the next change. The first plan moves
nothing. Every plan is verified; a planner without a plan trains nothing until the next change.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from arachne_opt.costs.pipeline.tables import TableCosts
from arachne_opt.errors import InfeasibleError, NoPlanError
from arachne_opt.pipeline.cluster_change import surviving_nodes
from arachne_opt.pipeline.holdings import holdings
from arachne_opt.pipeline.plan import PipelinePlan
from arachne_opt.pipeline.problem import PipelineProblem
from arachne_opt.pipeline.relayout import Relayout
from arachne_opt.pipeline.sticky import place_near
from arachne_opt.pipeline.verify import verify
from arachne_opt.planning.pipeline_service import PipelineService
from arachne_opt.planning.replanning import replan
from arachne_opt.solvers.base import Limits
from arachne_opt.solvers.registry import pipeline_solver

# Time of a re-plan, which is charged: a longer search rarely pays within minutes.
USUAL_REPLAN_S = 0.6
# Rules end by themselves; this keeps those in check that would not.
RULE_LIMIT_S = 20.0

Running = tuple[PipelineProblem, PipelinePlan]


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """What a planner wants to run, and how it comes to that."""

    plan: PipelinePlan
    iteration_s: float
    relayout: Relayout
    choice: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """What came of one change; ``decision`` is None where the planner had no plan."""

    cluster: str
    planning_s: float
    decision: Decision | None
    samples: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Played:
    """A planner over a whole trace."""

    planner: str
    events: tuple[Event, ...]

    @property
    def samples(self) -> int:
        """Samples over all events."""
        return sum(e.samples for e in self.events)

    @property
    def planning_s(self) -> float:
        """Planning time of all events."""
        return sum(e.planning_s for e in self.events)

    @property
    def median_planning_s(self) -> float:
        """Planning time of half of the events is at most this."""
        return statistics.median(e.planning_s for e in self.events)

    @property
    def relayout_s(self) -> float:
        """Time of all moves."""
        return sum(e.decision.relayout.seconds for e in self.events if e.decision)

    @property
    def without_plan(self) -> int:
        """Events without a plan."""
        return sum(e.decision is None for e in self.events)


class Planner(Protocol):
    """Plans for a problem after another plan, None at first."""

    def __call__(
        self, problem: PipelineProblem, running: Running | None, event_s: float
    ) -> Decision:
        """The decision.

        Raises:
            InfeasibleError: there is no plan.
            NoPlanError: none was found.
        """
        ...


def play(
    planner: str,
    decide: Planner,
    problems: Sequence[PipelineProblem],
    event_s: float,
    on_event: Callable[[Event], None] | None = None,
) -> Played:
    """One planner over the problems of a trace, each of which lasts ``event_s``."""
    running: Running | None = None
    events = []
    for problem in problems:
        began = time.perf_counter()
        decision: Decision | None = None
        try:
            decision = decide(problem, running, event_s)
        except (InfeasibleError, NoPlanError):
            decision = None
        planning_s = time.perf_counter() - began
        event = Event(
            cluster=problem.cluster.name,
            planning_s=planning_s,
            decision=decision,
            samples=_samples(problem, decision, event_s - planning_s),
        )
        if decision is not None:
            running = (problem, decision.plan)
        events.append(event)
        if on_event is not None:
            on_event(event)
    return Played(planner=planner, events=tuple(events))


def ours(service: PipelineService, limits: Limits) -> Planner:
    """Our planner, which keeps the old structure where a move does not pay."""

    def decide(problem: PipelineProblem, running: Running | None, event_s: float) -> Decision:
        if running is None:
            answer = service.plan(problem, limits)
            price_s = answer.verdict.price.iteration_s
            return Decision(
                plan=answer.plan, iteration_s=price_s, relayout=Relayout(), choice="new"
            )
        done = replan(service, running, problem, limits, event_s=event_s)
        return Decision(
            plan=done.answer.plan,
            iteration_s=done.chosen.iteration_s,
            relayout=done.chosen.relayout,
            choice=done.choice.value,
        )

    return decide


def by_rule(name: str, limits: Limits) -> Planner:
    """A peer's rule, which always takes what it finds best and places it near what is there."""
    own = replace(limits, time_limit_s=RULE_LIMIT_S)

    def decide(problem: PipelineProblem, running: Running | None, event_s: float) -> Decision:
        del event_s
        result = pipeline_solver(name).solve(problem, TableCosts(problem), own)
        if result.plan is None or result.iteration_s is None:
            raise NoPlanError("the rule has no plan", where=problem.name)
        plan, relayout = result.plan, Relayout()
        if running is not None:
            held = holdings(running[1], surviving_nodes(running[0], problem))
            plan, relayout = place_near(problem, plan, held)
        verify(problem, plan, result.iteration_s)
        return Decision(plan=plan, iteration_s=result.iteration_s, relayout=relayout, choice="new")

    return decide


def _samples(problem: PipelineProblem, decision: Decision | None, left_s: float) -> int:
    """Samples of whole iterations; what a plan trains beyond the global batch does not count."""
    if decision is None:
        return 0
    seconds = max(0.0, left_s - decision.relayout.seconds)
    return int(seconds / decision.iteration_s) * problem.global_batch
