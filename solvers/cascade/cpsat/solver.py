"""Running CP-SAT: the pooled relaxation for bounds, the node model for plans."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from arachne_opt.solvers.cascade.cpsat.constraints import (
    add_area_cut,
    add_chain_cut,
    add_equal_cascade_order,
    add_node_capacity,
    add_one_choice,
    add_pin_capacity,
    add_precedence,
    add_type_capacity,
)
from arachne_opt.solvers.cascade.cpsat.objective import minimise_makespan
from arachne_opt.solvers.cascade.cpsat.variables import Choices, Variables, make_variables
from arachne_opt.solvers.cascade.digest import Digest

if TYPE_CHECKING:
    from ortools.sat.python import cp_model


class Chosen(NamedTuple):
    """A solution: when each task starts, in units, and the number of its choice."""

    starts: tuple[int, ...]
    picks: tuple[int, ...]


class Answer(NamedTuple):
    """What a run gave.

    Args:
        bound: proven lower bound of the model's makespan in units; the horizon + 1 where the
            model has no solution.
        done: the search was exhausted.
        work: deterministic time spent.
    """

    chosen: Chosen | None
    bound: int
    done: bool
    work: float


@dataclass(slots=True, kw_only=True)
class Effort:
    """How much a run may do; ``stop`` set from any thread ends it."""

    seconds: float
    seed: int
    workers: int = 1
    deterministic: bool = False
    stop: threading.Event | None = None


def pooled_model(
    digest: Digest,
    choices: Choices,
    unit_us: int,
    least: int,
    most: int,
    *,
    area_cut: bool = True,
) -> Variables:
    """The relaxation that ignores nodes: one capacity per device type."""
    v = make_variables(digest, choices, unit_us, least, most)
    add_one_choice(v)
    add_precedence(v)
    add_type_capacity(v)
    add_pin_capacity(v)
    if area_cut:
        add_area_cut(v)
    add_chain_cut(v)
    add_equal_cascade_order(v)
    minimise_makespan(v)
    return v


def node_model(digest: Digest, choices: Choices, unit_us: int, least: int, most: int) -> Variables:
    """The model with a capacity per node and, as a redundant cut, per device type."""
    v = make_variables(digest, choices, unit_us, least, most)
    add_one_choice(v)
    add_precedence(v)
    add_node_capacity(v)
    add_type_capacity(v)
    add_area_cut(v)
    minimise_makespan(v)
    return v


def run(v: Variables, effort: Effort, hint: Chosen | None = None) -> Answer:
    """Solves a model.

    The linear relaxation is off: on these models propagation and learnt clauses alone prove much
    faster, above all with few distinct durations (see ``Choice.size`` and its unit).
    """
    # A model exists, so that the package is there.
    from ortools.sat.python import cp_model

    solver = cp_model.CpSolver()
    p = solver.parameters
    p.catch_sigint_signal = False
    p.num_workers = effort.workers
    p.random_seed = effort.seed
    p.linearization_level = 0
    if effort.deterministic:
        p.max_deterministic_time = effort.seconds
    else:
        p.max_time_in_seconds = effort.seconds
    if hint is not None:
        _add_hint(v, hint)
    with _Watch(solver.stop_search, effort.stop):
        status = solver.solve(v.model)
    assert status != cp_model.MODEL_INVALID, v.model.validate()
    found = status in (cp_model.OPTIMAL, cp_model.FEASIBLE)
    least = math.ceil(solver.best_objective_bound - 1e-6)
    return Answer(
        chosen=_chosen(v, solver) if found else None,
        bound=v.horizon + 1 if status == cp_model.INFEASIBLE else max(0, least),
        done=status in (cp_model.OPTIMAL, cp_model.INFEASIBLE),
        work=solver.deterministic_time,
    )


def _chosen(v: Variables, solver: cp_model.CpSolver) -> Chosen:
    starts = tuple(solver.value(start) for start in v.starts)
    picks = tuple(
        next(k for k, literal in enumerate(row) if solver.boolean_value(literal))
        for row in v.literals
    )
    return Chosen(starts, picks)


def _add_hint(v: Variables, hint: Chosen) -> None:
    for start, at, literals, pick in zip(
        v.starts, hint.starts, v.literals, hint.picks, strict=True
    ):
        v.model.add_hint(start, at)
        for k, literal in enumerate(literals):
            v.model.add_hint(literal, k == pick)


class _Watch:
    """Stops a running search when an event is set; repeats it, as an early call is lost."""

    def __init__(self, stop_search: Callable[[], None], stop: threading.Event | None) -> None:
        self._stop_search = stop_search
        self._stop = stop
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._wait, daemon=True)

    def __enter__(self) -> None:
        if self._stop is not None:
            self._thread.start()

    def __exit__(self, *_: object) -> None:
        self._done.set()
        if self._stop is not None:
            self._thread.join()

    def _wait(self) -> None:
        assert self._stop is not None
        while not self._done.wait(0.01):
            if self._stop.is_set():
                self._stop_search()
