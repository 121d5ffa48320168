"""What every solver takes and gives back."""

from __future__ import annotations

import enum
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Protocol

from arachne_opt.cascade.plan import CascadePlan
from arachne_opt.cascade.problem import CascadeProblem
from arachne_opt.errors import InputError


class Status(enum.StrEnum):
    """How a solve ended."""

    OPTIMAL = "optimal"  # the plan is proven best, gap 0
    FEASIBLE = "feasible"  # a plan with a proven gap
    INFEASIBLE = "infeasible"  # proven: no plan exists
    NO_PLAN = "no_plan"  # the limit passed first


MOST_SEED = (1 << 31) - 1  # of CP-SAT
MOST_WORKERS = 1024  # threads, and for batchings processes; CP-SAT takes 10,000


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """When to stop.

    Args:
        gap: stop as soon as (objective - bound) / bound is at most this.
        deterministic: equal input and seed give an equal plan: one worker, and work is counted in
            the solver's deterministic units, of which ``time_limit_s`` are spent.
    """

    time_limit_s: float = 10.0
    gap: float = 0.0
    seed: int = 0
    workers: int = 2
    deterministic: bool = False

    def __post_init__(self) -> None:
        if not (self.time_limit_s > 0 and self.gap >= 0 and self.workers >= 1):
            raise InputError("time limit and workers must be positive, the gap not negative")
        if self.workers > MOST_WORKERS:
            raise InputError(f"workers are 1 to {MOST_WORKERS}, not {self.workers}")
        if not 0 <= self.seed <= MOST_SEED:
            raise InputError(f"a seed is a number from 0 to {MOST_SEED}, not {self.seed}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """An improvement, told while the search goes on; ``plan`` is None for a new bound only."""

    elapsed_s: float
    objective_us: int | None
    bound_us: int
    source: str
    plan: CascadePlan | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """The answer of a solver.

    Args:
        objective_us: makespan of the plan, None without one.
        bound_us: proven lower bound of the makespan, 0 where none is known.
        versions: packages that decide the outcome, by name.
        binding: for an infeasible problem, the limits that bind, in words.
        history: improvements in the order of their finding.
    """

    status: Status
    plan: CascadePlan | None
    objective_us: int | None
    bound_us: int
    solver: str
    seed: int
    wall_s: float
    versions: Mapping[str, str] = field(default_factory=dict)
    binding: tuple[str, ...] = ()
    history: tuple[Progress, ...] = ()
    interrupted: bool = False

    def __post_init__(self) -> None:
        # Programmer errors: a result without a proven plan must not look like one.
        assert (self.plan is None) == (self.objective_us is None)
        assert self.plan is not None or self.status in (Status.INFEASIBLE, Status.NO_PLAN)
        assert self.objective_us is None or self.bound_us <= self.objective_us

    @property
    def gap(self) -> float | None:
        """(objective - bound) / bound; None without a plan or a bound."""
        if self.objective_us is None or self.bound_us <= 0:
            return None
        return (self.objective_us - self.bound_us) / self.bound_us


ProgressCallback = Callable[[Progress], None]
StopCheck = Callable[[], bool]


class CascadeSolver(Protocol):
    """A method for the cascade placement problem."""

    @property
    def name(self) -> str:
        """Name under which users ask for it."""
        ...

    def solve(
        self,
        problem: CascadeProblem,
        limits: Limits,
        *,
        on_progress: ProgressCallback | None = None,
        should_stop: StopCheck | None = None,
        start_plan: CascadePlan | None = None,
    ) -> Result:
        """Solves within the limits; ``should_stop`` is asked often and ends the search early.

        Raises:
            MissingDependencyError: the back-end is not installed.
        """
        ...
