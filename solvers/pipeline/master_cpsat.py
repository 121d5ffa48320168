"""The master's integer programs in CP-SAT."""

from __future__ import annotations

from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING

from arachne_opt.errors import MissingDependencyError
from arachne_opt.solvers.pipeline.master import SetAnswer, SetProblem

if TYPE_CHECKING:
    from ortools.sat.python import cp_model

_MOST_SECONDS = 3600.0


class CpSatMaster:
    """A back-end of the master."""

    name = "cpsat"

    def best_set(self, problem: SetProblem, time_limit_s: float, seed: int) -> SetAnswer:
        """A set of most samples, or the proof that there is none."""
        cp = _load()
        model = cp.CpModel()
        copies, rounds = [], []
        for c, most in enumerate(problem.rounds.tolist()):
            copies.append(model.new_int_var(0, problem.count, f"z{c}"))
            rounds.append(model.new_int_var(0, most * problem.count, f"w{c}"))
        _devices(model, problem, copies)
        _samples(model, problem, copies, rounds)
        weights = (problem.batch * problem.rounds).tolist()
        model.maximize(sum(w * z for w, z in zip(weights, copies, strict=True)))
        solver = cp.CpSolver()
        solver.parameters.max_time_in_seconds = min(max(time_limit_s, 1e-3), _MOST_SECONDS)
        solver.parameters.num_workers = 1
        solver.parameters.random_seed = seed
        # Without this the next Ctrl-C would kill Python before it can store the best plan.
        solver.parameters.catch_sigint_signal = False
        status = solver.solve(model)
        if status in (cp.OPTIMAL, cp.FEASIBLE):
            return SetAnswer(tuple(solver.value(z) for z in copies), proven=False)
        return SetAnswer(None, proven=status == cp.INFEASIBLE)


def _load() -> ModuleType:
    try:
        return import_module("ortools.sat.python.cp_model")
    except ImportError as error:
        what = "OR-Tools is not installed"
        raise MissingDependencyError(what, hint="pip install ortools") from error


def _devices(model: cp_model.CpModel, problem: SetProblem, copies: list[cp_model.IntVar]) -> None:
    """Σ z = n and Σ used · z <= limits."""
    model.add(sum(copies) == problem.count)
    for row, limit in enumerate(problem.limits.tolist()):
        used = problem.used[:, row].tolist()
        model.add(sum(u * z for u, z in zip(used, copies, strict=True)) <= limit)


def _samples(
    model: cp_model.CpModel,
    problem: SetProblem,
    copies: list[cp_model.IntVar],
    rounds: list[cp_model.IntVar],
) -> None:
    """Rounds z <= w <= m · z, and Σ batch · w meets the samples."""
    for most, z, w in zip(problem.rounds.tolist(), copies, rounds, strict=True):
        model.add(w >= z)
        model.add(w <= most * z)
    total = sum(b * w for b, w in zip(problem.batch.tolist(), rounds, strict=True))
    model.add(total == problem.samples if problem.exact else total >= problem.samples)
