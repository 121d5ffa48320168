"""Examples by the thousand: problems are drawn, our own solvers plan them, the plans are kept."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

from arachne_opt.learning.drawing import drawn_cascades, drawn_pipelines
from arachne_opt.learning.examples import Example, ExampleFile, Recipe
from arachne_opt.learning.jobs import Workers, run_many
from arachne_opt.learning.worlds import WORLDS
from arachne_opt.pipeline.problem import PipelineProblem
from arachne_opt.solvers.base import Limits
from arachne_opt.solvers.seeds.policy_file import CASCADES
from arachne_opt.units import US_PER_S, us_from_seconds

_PRICED = 150  # cells of a problem that get an exact price

# Told how many examples there are, and of how many.
Told = Callable[[int, int], None]


def generate(
    path: Path,
    recipe: Recipe,
    numbers: Sequence[int],
    workers: Workers,
    *,
    told: Told = lambda done, of: None,
    should_stop: Callable[[], bool] = lambda: False,
) -> tuple[Example, ...]:
    """The examples of these numbers; those that the file has already are not made again.

    Raises:
        InputError: the file is of another recipe, or cannot be written.
    """
    with ExampleFile(path, recipe) as file:
        missing = [n for n in numbers if n not in file.done]
        had = len(numbers) - len(missing)
        told(had, len(numbers))
        answers = run_many(partial(example, recipe), missing, workers, should_stop=should_stop)
        for count, (_, made) in enumerate(answers, start=had + 1):
            file.add(made)
            told(count, len(numbers))
        return tuple(file.done[n] for n in numbers if n in file.done)


def example(recipe: Recipe, number: int) -> Example:
    """The example of a number; the same wherever and whenever it is made."""
    label = _cascades if recipe.policy == CASCADES else _templates
    return label(recipe, number)


def _limits(recipe: Recipe) -> Limits:
    return Limits(time_limit_s=recipe.units, deterministic=True, workers=1)


def _templates(recipe: Recipe, number: int) -> Example:
    # Late: whoever reads examples needs no solver.
    from arachne_opt.costs.pipeline.tables import TableCosts
    from arachne_opt.pipeline.plan_json import plan_to_json
    from arachne_opt.solvers.pipeline.planner import solve_pipeline

    problem = drawn_pipelines(WORLDS[recipe.world], number)
    if number >= recipe.searched:
        priced = priced_cells(problem)
        return Example(number=number, plan=None, objective_us=0, bound_us=0, priced=priced)
    result = solve_pipeline(problem, TableCosts(problem), _limits(recipe))
    if result.plan is None or result.iteration_s is None:
        return Example(number=number, plan=None, objective_us=0, bound_us=0)
    return Example(
        number=number,
        plan=plan_to_json(result.plan),
        objective_us=us_from_seconds(result.iteration_s),
        bound_us=int(result.bound_s * US_PER_S),
        priced=priced_cells(problem),
    )


def priced_cells(problem: PipelineProblem) -> tuple[tuple[float | None, ...], ...]:
    """The most promising cells of a problem with the exact seconds of each."""
    from arachne_opt.costs.pipeline.tables import TableCosts
    from arachne_opt.solvers.pipeline.workbench import Workbench
    from arachne_opt.solvers.seeds.cells import grid, promising
    from arachne_opt.solvers.seeds.pricing import price_cells
    from arachne_opt.solvers.seeds.structures import structures_of

    bench = Workbench(problem, TableCosts(problem))
    structures = structures_of(bench.space, grid(bench.space))
    cells = promising(structures, _PRICED)
    seconds = price_cells(bench, structures, cells)
    return tuple(
        (*cell, s if math.isfinite(s) else None)
        for cell, s in zip(cells.tolist(), seconds.tolist(), strict=True)
    )


def _cascades(recipe: Recipe, number: int) -> Example:
    from arachne_opt.solvers.portfolio import solve_cascade

    problem = drawn_cascades(WORLDS[recipe.world], number)
    result = solve_cascade(problem, _limits(recipe))
    if result.plan is None or result.objective_us is None:
        return Example(number=number, plan=None, objective_us=0, bound_us=0)
    return Example(
        number=number,
        plan=result.plan.to_json(problem),
        objective_us=result.objective_us,
        bound_us=result.bound_us,
    )
