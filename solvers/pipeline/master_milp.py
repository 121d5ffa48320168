"""The master's integer programs in PuLP, solved by HiGHS or CBC."""

from __future__ import annotations

from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING

from arachne_opt.errors import MissingDependencyError
from arachne_opt.solvers.pipeline.master import SetAnswer, SetProblem

if TYPE_CHECKING:
    from pulp import LpProblem, LpSolver, LpVariable

_MOST_SECONDS = 3600.0


class MilpMaster:
    """A back-end of the master."""

    def __init__(self, name: str) -> None:
        assert name in ("highs", "cbc"), name
        self.name = name

    def best_set(self, problem: SetProblem, time_limit_s: float, seed: int) -> SetAnswer:
        """A set of most samples, or the proof that there is none."""
        pulp = _load()
        model = pulp.LpProblem("columns", pulp.LpMaximize)
        copies, rounds = _variables(model, problem)
        _devices(pulp, model, problem, copies)
        _samples(pulp, model, problem, copies, rounds)
        weights = (problem.batch * problem.rounds).tolist()
        model += pulp.lpSum(w * z for w, z in zip(weights, copies, strict=True))
        model.solve(self._solver(pulp, min(time_limit_s, _MOST_SECONDS), seed))
        # A time-limited answer is called optimal by the status; sol_status tells what there is.
        if model.sol_status in (pulp.LpSolutionOptimal, pulp.LpSolutionIntegerFeasible):
            return SetAnswer(tuple(round(z.value()) for z in copies), proven=False)
        # All variables are bounded, so that infeasible never stands for unbounded.
        return SetAnswer(None, proven=model.status == pulp.LpStatusInfeasible)

    def _solver(self, pulp: ModuleType, time_limit_s: float, seed: int) -> LpSolver:
        if self.name == "cbc":
            # The binary that PuLP brings, without the class that PuLP 3.3 calls deprecated.
            solver = pulp.COIN_CMD(
                path=pulp.PULP_CBC_CMD.pulp_cbc_path,
                msg=False,
                timeLimit=time_limit_s,
                options=[f"randomSeed {seed}"],
            )
        else:
            solver = pulp.HiGHS(msg=False, timeLimit=time_limit_s, threads=1, random_seed=seed)
        if not solver.available():
            raise MissingDependencyError(f"the solver {self.name} is not installed")
        return solver


def _load() -> ModuleType:
    try:
        return import_module("pulp")
    except ImportError as error:
        raise MissingDependencyError("PuLP is not installed", hint="pip install pulp") from error


def _variables(model: LpProblem, problem: SetProblem) -> tuple[list[LpVariable], list[LpVariable]]:
    """Copies z and micro-batches w of each column."""
    copies, rounds = [], []
    for c, most in enumerate(problem.rounds.tolist()):
        copies.append(model.add_variable(f"z{c}", 0, problem.count, "Integer"))
        rounds.append(model.add_variable(f"w{c}", 0, most * problem.count, "Integer"))
    return copies, rounds


def _devices(
    pulp: ModuleType, model: LpProblem, problem: SetProblem, copies: list[LpVariable]
) -> None:
    """Σ z = n and Σ used · z <= limits."""
    model += pulp.lpSum(copies) == problem.count
    for row, limit in enumerate(problem.limits.tolist()):
        used = problem.used[:, row].tolist()
        model += pulp.lpSum(u * z for u, z in zip(used, copies, strict=True) if u) <= limit


def _samples(
    pulp: ModuleType,
    model: LpProblem,
    problem: SetProblem,
    copies: list[LpVariable],
    rounds: list[LpVariable],
) -> None:
    """Rounds z <= w <= m · z, and Σ batch · w meets the samples."""
    for most, z, w in zip(problem.rounds.tolist(), copies, rounds, strict=True):
        model += w >= z
        model += w <= most * z
    total = pulp.lpSum(b * w for b, w in zip(problem.batch.tolist(), rounds, strict=True))
    model += total == problem.samples if problem.exact else total >= problem.samples
