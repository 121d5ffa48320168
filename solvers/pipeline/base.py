"""What every pipeline solver takes and gives back."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Protocol

from arachne_opt.costs.pipeline.base import PipelineCosts
from arachne_opt.pipeline.plan import PipelinePlan
from arachne_opt.pipeline.problem import PipelineProblem
from arachne_opt.solvers.base import Limits, Status, StopCheck


@dataclass(frozen=True, slots=True, kw_only=True)
class PipelineProgress:
    """An improvement, told while the search goes on."""

    elapsed_s: float
    iteration_s: float
    bound_s: float
    source: str
    plan: PipelinePlan


@dataclass(frozen=True, slots=True, kw_only=True)
class PipelineResult:
    """The answer of a pipeline solver.

    Args:
        iteration_s: closed-form price of the plan, None without one.
        cautious_s: the same with the stricter gradient exchange, by which plans are compared.
        bound_s: work bound: no plan at all takes less (each device at its best rate, no sends).
        column_bound_s: no plan out of the ``columns`` considered has a lower cautious price; None
            where that was not proven.
        columns: size of the column space.
        binding: for an infeasible problem, the limits that bind, in words.
    """

    status: Status
    plan: PipelinePlan | None
    iteration_s: float | None
    cautious_s: float | None
    bound_s: float
    column_bound_s: float | None = None
    columns: int = 0
    solver: str
    seed: int
    wall_s: float
    versions: Mapping[str, str] = field(default_factory=dict)
    binding: tuple[str, ...] = ()
    history: tuple[PipelineProgress, ...] = ()
    interrupted: bool = False

    def __post_init__(self) -> None:
        # Programmer errors: a result without a proven plan must not look like one.
        assert (self.plan is None) == (self.iteration_s is None)
        assert self.plan is not None or self.status in (Status.INFEASIBLE, Status.NO_PLAN)
        assert self.iteration_s is None or self.bound_s <= self.iteration_s * (1 + 1e-9)

    @property
    def gap(self) -> float | None:
        """(iteration - work bound) / work bound; None without a plan or a bound."""
        if self.iteration_s is None or self.bound_s <= 0:
            return None
        return (self.iteration_s - self.bound_s) / self.bound_s


PipelineCallback = Callable[[PipelineProgress], None]


class PipelineSolver(Protocol):
    """A method for the pipeline problem."""

    @property
    def name(self) -> str:
        """Name under which users ask for it."""
        ...

    def solve(
        self,
        problem: PipelineProblem,
        costs: PipelineCosts,
        limits: Limits,
        *,
        on_progress: PipelineCallback | None = None,
        should_stop: StopCheck | None = None,
        start_plan: PipelinePlan | None = None,
    ) -> PipelineResult:
        """Solves within the limits; ``should_stop`` is asked often and ends the search early.

        Raises:
            MissingDependencyError: the back-end is not installed.
        """
        ...
