"""Our plans for public instances beside the peers' published figures and re-implemented rules."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from arachne_opt.bench.curve import first_below_s
from arachne_opt.bench.ratios import Ratios, ratios_of
from arachne_opt.cascade.plan import CascadePlan
from arachne_opt.cascade.problem import CascadeProblem
from arachne_opt.cascade.verify import verify
from arachne_opt.errors import NoPlanError
from arachne_opt.importers.instances import PublishedInstance
from arachne_opt.solvers.base import Limits, ProgressCallback, Result, StopCheck
from arachne_opt.solvers.registry import cascade_solver

# Rules of peers in solvers/baselines, charged with penalties as our plans are.
RULES = (
    "megatron-uniform",
    "bucketed-dp",
    "best-uniform",
    "flex-sp",
    "flex-sp-milp",
    "knapformer",
    "dynamic-cp",
)

# Published figures by peer, with the words for a table.
PUBLISHED = {
    "genetic": "genetic, written schedule",
    "genetic_internal": "genetic, internal best",
    "flex_sp": "FlexSP, no penalty paid",
    "megatron_lm": "Megatron-LM, no penalty paid",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One instance: our result and the makespans of the rules, None where a rule has no plan.

    Args:
        rules_us: the better of a rule's plans with and without estimated candidates.
    """

    instance: PublishedInstance
    result: Result
    plan: CascadePlan
    makespan_us: int
    rules_us: Mapping[str, int | None]

    @property
    def device_count(self) -> int:
        """Number of devices of the instance."""
        return self.instance.problem.cluster.device_count

    @property
    def ratio_to_best_published(self) -> float | None:
        """Our makespan over the smallest published one."""
        best_us = self.instance.best_published_us
        return self.makespan_us / best_us if best_us else None

    @property
    def best_beaten_s(self) -> float | None:
        """Search time until every published makespan was beaten, None where one never was."""
        best_us = self.instance.best_published_us
        return first_below_s(self.result, best_us) if best_us else None

    @property
    def opponents_us(self) -> dict[str, int]:
        """All makespans to compare with, by a name for a table."""
        published = self.instance.published_us
        found = {PUBLISHED[peer]: published[peer] for peer in PUBLISHED if peer in published}
        best_us = self.instance.best_published_us
        if best_us:
            found[f"best published, {self.device_count} GPUs"] = best_us
        found |= {rule: us for rule, us in self.rules_us.items() if us is not None}
        return found


def compare(
    instance: PublishedInstance,
    limits: Limits,
    *,
    solver: str,
    full: CascadeProblem,
    rules: Sequence[str] = RULES,
    on_progress: ProgressCallback | None = None,
    should_stop: StopCheck | None = None,
) -> Row:
    """Solves an instance and runs the rules on it; every plan passes checker and simulator.

    Args:
        instance: what our solver gets.
        limits: of every solve.
        solver: ours, by name.
        full: the instance with all its candidates; some rules need degrees that are only
            estimated.
        rules: peers' rules by name.
        on_progress: told of our solver's improvements.
        should_stop: asked by our solver.

    Raises:
        NoPlanError: our solver found no plan in time.
        DisagreementError: a plan is not what its solver says.
    """
    problem = instance.problem
    result = cascade_solver(solver).solve(
        problem, limits, on_progress=on_progress, should_stop=should_stop
    )
    if result.plan is None or result.objective_us is None:
        raise NoPlanError("no plan was found", where=problem.name, hint="a longer --time-limit")
    verify(problem, result.plan, result.objective_us)
    return Row(
        instance=instance,
        result=result,
        plan=result.plan,
        makespan_us=result.objective_us,
        rules_us={rule: rule_makespan_us((problem, full), rule, limits) for rule in rules},
    )


def compare_pair(
    limits: Limits, solver: str, pair: tuple[PublishedInstance, CascadeProblem]
) -> Row:
    """The same for an instance with its full problem, as a function that travels to workers."""
    return compare(pair[0], limits, solver=solver, full=pair[1])


def rule_makespan_us(problems: Sequence[CascadeProblem], rule: str, limits: Limits) -> int | None:
    """The least checked makespan of a peer's rule, None where it has no plan for any problem."""
    found: list[int] = []
    for problem in problems:
        result = cascade_solver(rule).solve(problem, limits)
        if result.plan is not None and result.objective_us is not None:
            verify(problem, result.plan, result.objective_us)
            found.append(result.objective_us)
    return min(found, default=None)


def summarise(rows: Sequence[Row]) -> dict[str, Ratios]:
    """Our makespans over those of each opponent, in the order of ``opponents_us``."""
    pairs: dict[str, list[tuple[int, int]]] = {}
    for row in rows:
        for name, theirs_us in row.opponents_us.items():
            pairs.setdefault(name, []).append((row.makespan_us, theirs_us))
    found = {name: ratios_of(values) for name, values in pairs.items()}
    order = [*PUBLISHED.values(), *(n for n in sorted(found) if n.startswith("best p")), *RULES]
    return {name: ratios for name in order if (ratios := found.get(name)) is not None}
