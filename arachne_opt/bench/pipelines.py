"""Our plans for pipeline scenarios beside peers' rules, stored figures of peers, and bounds."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from arachne_opt.bench.ratios import Ratios, ratios_of
from arachne_opt.costs.pipeline.tables import TableCosts
from arachne_opt.importers.pipeline_scenarios import Scenario
from arachne_opt.pipeline.plan import PipelinePlan
from arachne_opt.pipeline.problem import PipelineProblem
from arachne_opt.pipeline.verify import verify
from arachne_opt.solvers.base import Limits, Status, StopCheck
from arachne_opt.solvers.pipeline.base import PipelineResult
from arachne_opt.solvers.pipeline.planner import solve_pipeline
from arachne_opt.solvers.pipeline.registry import pipeline_rule_names
from arachne_opt.solvers.pipeline.restrictions import ABLATIONS
from arachne_opt.solvers.registry import pipeline_solver
from arachne_opt.units import us_from_seconds

BEST_RULE, BEST_KNOWN = "best rule", "best known"


@dataclass(frozen=True, slots=True, kw_only=True)
class PipelineRow:
    """One scenario.

    Args:
        scenario: with the stored figures; None for a cluster that is nobody's.
        result: ours, without a plan where none was found in time; None where no plan exists,
            which ``binding`` explains.
        exact_s: ours without a sample beyond the global batch, None where it was not asked for.
        rules_s: iteration times of peers' rules by name, None where a rule has no plan.
        ablations_s: ours with a freedom taken away.
    """

    problem: PipelineProblem
    scenario: Scenario | None
    result: PipelineResult | None
    exact_s: float | None = None
    rules_s: Mapping[str, float | None] = field(default_factory=dict)
    ablations_s: Mapping[str, float | None] = field(default_factory=dict)
    binding: tuple[str, ...] = ()

    @property
    def iteration_s(self) -> float | None:
        """Our iteration time."""
        return self.result.iteration_s if self.result else None

    @property
    def plan(self) -> PipelinePlan | None:
        """Our plan."""
        return self.result.plan if self.result else None

    @property
    def out_of_time(self) -> bool:
        """Whether the limit passed before our first plan."""
        return self.result is not None and self.result.plan is None

    @property
    def best_rule_s(self) -> float | None:
        """The least time of the rules."""
        return min((s for s in self.rules_s.values() if s is not None), default=None)

    @property
    def best_known_s(self) -> float | None:
        """The stored best time, of peers and a crude enumeration."""
        return self.scenario.best_known_s if self.scenario else None

    @property
    def opponents_s(self) -> dict[str, float]:
        """All times to compare with."""
        peers = self.scenario.peers if self.scenario else {}
        found = {name: figure.iteration_s for name, figure in peers.items()}
        best_peer = self.scenario.best_peer if self.scenario else None
        found |= {"best peer": best_peer[1] if best_peer else None}
        found |= {BEST_KNOWN: self.best_known_s, **self.rules_s, BEST_RULE: self.best_rule_s}
        return {name: seconds for name, seconds in found.items() if seconds is not None}


def compare_pipelines(
    problem: PipelineProblem,
    limits: Limits,
    *,
    scenario: Scenario | None = None,
    solver: str = "portfolio",
    rules: Sequence[str] | None = None,
    exact: bool = False,
    ablation: bool = False,
    should_stop: StopCheck | None = None,
    rule_limits: Limits | None = None,
) -> PipelineRow:
    """Solves a scenario and runs the rules on it; every plan is verified.

    Args:
        problem: what our solver and the rules get.
        limits: of every solve.
        scenario: with stored figures of peers.
        solver: ours, by name.
        rules: peers' rules by name, by default all.
        exact: solve once more without samples beyond the global batch.
        ablation: solve once more for each freedom that can be taken away.
        should_stop: asked by our solver.
        rule_limits: of the rules, by default ours.

    Raises:
        DisagreementError: a plan is not what its solver says.
    """
    result = pipeline_solver(solver).solve(
        problem, TableCosts(problem), limits, should_stop=should_stop
    )
    if result.status is Status.INFEASIBLE:
        return PipelineRow(problem=problem, scenario=scenario, result=None, binding=result.binding)
    _verified_s(problem, result)
    names = pipeline_rule_names() if rules is None else rules
    return PipelineRow(
        problem=problem,
        scenario=scenario,
        result=result,
        exact_s=_exact_s(problem, limits, solver) if exact else None,
        rules_s={name: _solved_s(problem, name, rule_limits or limits) for name in names},
        ablations_s=_ablations_s(problem, limits) if ablation else {},
    )


def compare_pair(
    compare: Callable[..., PipelineRow], pair: tuple[PipelineProblem, Scenario]
) -> PipelineRow:
    """A comparison of a scenario's problem, as a function that travels to workers."""
    return compare(pair[0], scenario=pair[1])


def summarise_pipelines(rows: Sequence[PipelineRow]) -> dict[str, Ratios]:
    """Our times over those of each opponent."""
    pairs: dict[str, list[tuple[int, int]]] = {}
    for row in rows:
        for name, theirs_s in row.opponents_s.items():
            if row.iteration_s is not None:
                pair = us_from_seconds(row.iteration_s), us_from_seconds(theirs_s)
                pairs.setdefault(name, []).append(pair)
    return _ratios(pairs)


def summarise_ablations(rows: Sequence[PipelineRow]) -> dict[str, Ratios]:
    """Times with a freedom taken away over ours with all of them."""
    pairs: dict[str, list[tuple[int, int]]] = {}
    for row in rows:
        for name, seconds in row.ablations_s.items():
            if seconds is not None and row.iteration_s is not None:
                pair = us_from_seconds(seconds), us_from_seconds(row.iteration_s)
                pairs.setdefault(name, []).append(pair)
    return _ratios(pairs)


def _ratios(pairs: Mapping[str, Sequence[tuple[int, int]]]) -> dict[str, Ratios]:
    found = {name: ratios_of(values) for name, values in pairs.items()}
    return {name: ratios for name, ratios in found.items() if ratios is not None}


def _exact_s(problem: PipelineProblem, limits: Limits, solver: str) -> float | None:
    options = replace(problem.options, allow_excess=False)
    return _solved_s(replace(problem, options=options), solver, limits)


def _solved_s(problem: PipelineProblem, solver: str, limits: Limits) -> float | None:
    result = pipeline_solver(solver).solve(problem, TableCosts(problem), limits)
    return _verified_s(problem, result)


def _ablations_s(problem: PipelineProblem, limits: Limits) -> dict[str, float | None]:
    found = {}
    for name, restrictions in ABLATIONS.items():
        costs = TableCosts(problem)
        result = solve_pipeline(problem, costs, limits, restrictions=restrictions)
        found[name] = _verified_s(problem, result)
    return found


def _verified_s(problem: PipelineProblem, result: PipelineResult) -> float | None:
    if result.plan is None or result.iteration_s is None:
        return None
    verify(problem, result.plan, result.iteration_s)
    return result.iteration_s
