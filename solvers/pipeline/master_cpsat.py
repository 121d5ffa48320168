"""The master's integer programs in CP-SAT."""

from __future__ import annotations

from typing import Any

from arachne_opt.errors import MissingDependencyError
from arachne_opt.solvers.pipeline.master import SetAnswer, SetProblem

_MOST_SECONDS = 3600.0


class CpSatMaster:
    """A back-end of the master."""

    name = "cpsat"

    def best_set(self, problem: SetProblem, time_limit_s: float, seed: int) -> SetAnswer:
        """A set of most samples, or the proof that there is none."""
        cp_model = _cp_model()
        model = cp_model.CpModel()
        copies, rounds = [], []
        for c, most in enumerate(problem.rounds.tolist()):
            copies.append(model.new_int_var(0, problem.count, f"z{c}"))
            rounds.append(model.new_int_var(0, most * problem.count, f"w{c}"))
        _devices(model, problem, copies)
        _samples(model, problem, copies, rounds)
        weights = (problem.batch * problem.rounds).tolist()
        model.maximize(sum(w * z for w, z in zip(weights, copies, strict=True)))
        solver = cp_model.CpSolver()
        solver.parameters.max_time_in_seconds = min(max(time_limit_s, 1e-3), _MOST_SECONDS)
        solver.parameters.num_workers = 1
        solver.parameters.random_seed = seed
        # Without this the next Ctrl-C would kill Python before it can store the best plan.
        solver.parameters.catch_sigint_signal = False
        status = solver.solve(model)
        if status in (cp_model.OPTIMAL, cp_model.FEASIBLE):
            return SetAnswer(tuple(solver.value(z) for z in copies), proven=False)
        return SetAnswer(None, proven=status == cp_model.INFEASIBLE)


def _cp_model() -> Any:
    try:
        from ortools.sat.python import cp_model
    except ImportError as error:
        what = "OR-Tools is not installed"
        raise MissingDependencyError(what, hint="pip install ortools") from error
    return cp_model


def _devices(model: Any, problem: SetProblem, copies: list[Any]) -> None:
    """Σ z = n and Σ used · z <= limits."""
    model.add(sum(copies) == problem.count)
    for row, limit in enumerate(problem.limits.tolist()):
        used = problem.used[:, row].tolist()
        model.add(sum(u * z for u, z in zip(used, copies, strict=True)) <= limit)


def _samples(model: Any, problem: SetProblem, copies: list[Any], rounds: list[Any]) -> None:
    """z <= w <= m · z, and Σ batch · w meets the samples."""
    for most, z, w in zip(problem.rounds.tolist(), copies, rounds, strict=True):
        model.add(w >= z)
        model.add(w <= most * z)
    total = sum(b * w for b, w in zip(problem.batch.tolist(), rounds, strict=True))
    model.add(total == problem.samples if problem.exact else total >= problem.samples)
