"""Plans many problems at once: other processes search, this one looks up, verifies and stores."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING

from arachne_opt.cascade.problem import CascadeProblem
from arachne_opt.learning.jobs import Workers, run_many
from arachne_opt.planning.service import DEFAULT_SOLVER, Answer, PlanService
from arachne_opt.solvers.base import Limits, Result

if TYPE_CHECKING:
    from arachne_opt.solvers.seeds.policy_file import PolicyFile


def plan_many(
    service: PlanService,
    problems: Sequence[CascadeProblem],
    limits: Limits,
    workers: Workers,
    *,
    solver: str = DEFAULT_SOLVER,
    use_cache: bool = True,
    should_stop: Callable[[], bool] = lambda: False,
) -> Iterator[tuple[int, Answer]]:
    """Positions of problems with checked and simulated plans, as they come.

    Problems that are equal but for names are solved once. No search begins with the stored plan
    of a near problem.

    Raises:
        InfeasibleError: a problem has no plan.
        NoPlanError: the limit passed before a plan of a problem was found.
        DisagreementError: a plan does not pass the checker and the simulator.
    """
    missing: dict[str, list[int]] = {}
    for position, problem in enumerate(problems):
        answer = service.kept_answer(problem, limits, solver) if use_cache else None
        if answer is not None:
            yield position, answer
        else:
            missing.setdefault(problem.fingerprint(), []).append(position)
    first = [positions[0] for positions in missing.values()]
    work = partial(_solve, solver, limits, service.policy())
    items = [problems[position] for position in first]
    for number, result in run_many(work, items, workers, should_stop=should_stop):
        yield first[number], service.keep(problems[first[number]], result, limits)
        for position in missing[items[number].fingerprint()][1:]:
            equal = problems[position]
            answer = service.kept_answer(equal, limits, solver)
            # Without a database an equal problem has to be solved for itself.
            yield position, answer or service.plan_cascade(equal, limits, solver=solver)


def _solve(
    solver: str, limits: Limits, policy: PolicyFile | None, problem: CascadeProblem
) -> Result:
    # Late: whoever looks plans up only must not pay for loading the solvers.
    from arachne_opt.solvers.registry import cascade_solver

    return cascade_solver(solver, policy=policy).solve(problem, limits)
