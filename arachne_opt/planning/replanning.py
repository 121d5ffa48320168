"""Plans for a cluster that has changed, with the price of the change of plans."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from enum import StrEnum

from arachne_opt.errors import InfeasibleError, NoPlanError
from arachne_opt.pipeline.closed_form import price_plan
from arachne_opt.pipeline.cluster_change import surviving_nodes
from arachne_opt.pipeline.holdings import Holdings, holdings
from arachne_opt.pipeline.plan import PipelinePlan
from arachne_opt.pipeline.problem import PipelineProblem
from arachne_opt.pipeline.relayout import Relayout
from arachne_opt.pipeline.sticky import place_near
from arachne_opt.planning.pipeline_service import PipelineAnswer, PipelineService
from arachne_opt.solvers.base import Limits, StopCheck
from arachne_opt.units import format_bytes, format_seconds, us_from_seconds

LOG = logging.getLogger(__name__)

# Iterations until the next change, where nobody says.
USUAL_HORIZON = 1000


class Choice(StrEnum):
    """What became of the old plan."""

    KEPT = "kept"  # its stages, layers and degrees, on the devices that are there
    CHANGED = "changed"  # another plan, whose gain pays for the move
    FORCED = "forced"  # another plan, since nothing of the old one fits


@dataclass(frozen=True, slots=True, kw_only=True)
class Option:
    """A placed plan for the new cluster, with the way to it."""

    plan: PipelinePlan
    iteration_s: float
    relayout: Relayout

    def seconds(self, iterations: int) -> float:
        """The move and so many iterations."""
        return self.relayout.seconds + iterations * self.iteration_s


@dataclass(frozen=True, slots=True, kw_only=True)
class Replanned:
    """The decision.

    Args:
        answer: the plan chosen, verified and stored.
        kept: the old plan on the new cluster, None where it cannot be made to fit.
        best: the best plan found for the new cluster.
        horizon: iterations that the move had to pay within.
        nodes_left: nodes of the old cluster that are gone.
    """

    answer: PipelineAnswer
    choice: Choice
    kept: Option | None
    best: Option
    horizon: int
    nodes_left: int

    @property
    def chosen(self) -> Option:
        """The option that was chosen."""
        return self.kept if self.choice is Choice.KEPT and self.kept else self.best

    def words(self) -> list[str]:
        """What was done and why, a sentence a line."""
        lines = [f"{self.nodes_left} nodes of the old cluster are gone"] if self.nodes_left else []
        best, kept, within = self.best, self.kept, f"within {self.horizon} iterations"
        if kept is None:
            return [*lines, "nothing of the old plan fits", f"new plan: {_priced(best)}"]
        lines += [f"old structure: {_priced(kept)}", f"new plan: {_priced(best)}"]
        gain_s, cost_s = kept.iteration_s - best.iteration_s, _more_s(kept, best)
        if gain_s <= 0:
            return [*lines, "the old structure is kept: no better plan was found"]
        gain = f"{format_seconds(us_from_seconds(gain_s))} an iteration"
        if cost_s <= 0:
            return [*lines, f"the plan is changed: it gains {gain} and moves no more"]
        after = -(-cost_s // gain_s)
        if self.choice is Choice.KEPT:
            why = f"the gain of {gain} pays after {after:.0f} iterations, not {within}"
            return [*lines, f"the old structure is kept: {why}"]
        return [*lines, f"the plan is changed: the gain of {gain} pays {within}, after {after:.0f}"]


def replan(
    service: PipelineService,
    old: tuple[PipelineProblem, PipelinePlan],
    problem: PipelineProblem,
    limits: Limits,
    *,
    horizon: int = USUAL_HORIZON,
    event_s: float | None = None,
    use_cache: bool = True,
    should_stop: StopCheck | None = None,
) -> Replanned:
    """The plan that needs the least time for the move and ``horizon`` iterations after it.

    Args:
        service: solves and stores.
        old: the problem and the placed plan that ran until now.
        problem: the same task on the new cluster.
        limits: of the search.
        horizon: iterations until the next change, at the speed of the new plan.
        event_s: time until the next change, in place of ``horizon`` where it is known.
        use_cache: a stored plan for the new cluster may be taken.
        should_stop: asked often; ends the search early.

    Raises:
        InfeasibleError: no plan fits the new cluster.
    """
    # Late: only a search needs it.
    from arachne_opt.solvers.pipeline.warm_start import warm_start

    nodes = surviving_nodes(old[0], problem)
    held = holdings(old[1], nodes)
    start = warm_start(problem, old[1])
    kept = None if start is None else _option(problem, start, held)
    answer = _answer(service, problem, limits, start, use_cache, should_stop)
    best = _option(problem, answer.plan, held) if answer else kept
    if best is None:
        raise NoPlanError("the time limit passed before a plan", where=problem.name)
    if event_s is not None:
        horizon = int(event_s / best.iteration_s)
    choice = Choice.FORCED
    if kept is not None:
        pays = best.seconds(horizon) < kept.seconds(horizon)
        choice = Choice.CHANGED if pays else Choice.KEPT
    chosen = kept if choice is Choice.KEPT and kept else best
    return Replanned(
        answer=service.keep_plan(problem, chosen.plan, limits, like=answer),
        choice=choice,
        kept=kept,
        best=best,
        horizon=horizon,
        nodes_left=len(old[0].cluster.nodes) - len(nodes),
    )


def _answer(
    service: PipelineService,
    problem: PipelineProblem,
    limits: Limits,
    start: PipelinePlan | None,
    use_cache: bool,
    should_stop: StopCheck | None,
) -> PipelineAnswer | None:
    """The best plan found; None where the old structure is all that there is."""
    try:
        return service.plan(
            problem, limits, use_cache=use_cache, start_plan=start, should_stop=should_stop
        )
    except (InfeasibleError, NoPlanError):
        if start is None:
            raise
        LOG.warning("%s: no plan was found but the old structure", problem.name)
        return None


def _option(problem: PipelineProblem, plan: PipelinePlan, held: Holdings) -> Option:
    placed, relayout = place_near(problem, plan, held)
    return Option(
        plan=placed,
        iteration_s=price_plan(problem, placed).iteration_s,
        relayout=relayout,
    )


def _more_s(kept: Option, best: Option) -> float:
    return best.relayout.seconds - kept.relayout.seconds


def _priced(option: Option) -> str:
    move = option.relayout
    iteration = format_seconds(us_from_seconds(option.iteration_s))
    parts = []
    if move.network_bytes:
        parts.append(f"{format_bytes(int(move.network_bytes))} between nodes")
    if move.inside_bytes:
        parts.append(f"{format_bytes(int(move.inside_bytes))} inside nodes")
    if move.lost_rows:
        rows = f"{len(move.lost_rows)} rows of which no copy is left"
        parts.append(f"{format_bytes(int(move.lost_bytes))} of {rows} from a checkpoint")
    seconds = format_seconds(us_from_seconds(move.seconds))
    if not parts:
        return f"{iteration} an iteration, nothing moves"
    what = f"weights and optimizer state of {move.replicas} replicas move"
    return f"{iteration} an iteration; {what}: {', '.join(parts)}, in {seconds}"
