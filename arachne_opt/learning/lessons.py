"""What policies learn from, whether drawn and solved here or taken from the plan database."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from arachne_opt.cascade.check import check_plan
from arachne_opt.cascade.plan import CascadePlan
from arachne_opt.cascade.plan import plan_from_json as cascade_plan
from arachne_opt.cascade.problem import CascadeProblem
from arachne_opt.cascade.problem_json import problem_from_json as cascade_problem
from arachne_opt.errors import InputError
from arachne_opt.learning.drawing import drawn_cascades, drawn_pipelines
from arachne_opt.learning.examples import Example, Json, read_examples
from arachne_opt.learning.generation import priced_cells
from arachne_opt.learning.worlds import WORLDS
from arachne_opt.pipeline.plan import PipelinePlan
from arachne_opt.pipeline.plan_json import plan_from_json as pipeline_plan
from arachne_opt.pipeline.problem import PipelineProblem
from arachne_opt.pipeline.problem_json import problem_from_json as pipeline_problem
from arachne_opt.solvers.seeds.policy_file import CASCADES, TEMPLATES

_HELD_OUT_EVERY = 5


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class CascadeCase:
    """A placement problem with the best plan that is known."""

    problem: CascadeProblem
    plan: CascadePlan


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class TemplateCase:
    """A pipeline problem with the exact seconds of cells, and the best plan where it is known."""

    problem: PipelineProblem
    plan: PipelinePlan | None
    priced: Sequence[Sequence[float | None]]


Case = CascadeCase | TemplateCase


def cases_of_file(path: Path, policy: str) -> list[Case]:
    """The cases in a file of examples, without the problems that have no plan.

    Raises:
        InputError: the file cannot be read or is for another policy.
    """
    recipe, examples = read_examples(path)
    if recipe.policy != policy:
        raise InputError(f"holds examples for {recipe.policy}, not {policy}", where=str(path))
    if recipe.world not in WORLDS:
        raise InputError(f"is of an unknown world {recipe.world!r}", where=str(path))
    world = WORLDS[recipe.world]
    found: list[Case] = []
    for one in examples:
        if one.plan is None and not one.priced:
            continue
        if policy == CASCADES:
            found.append(_cascade_case(drawn_cascades(world, one.number), one, path))
        else:
            pipelines = drawn_pipelines(world, one.number)
            plan = None if one.plan is None else pipeline_plan(one.plan)
            found.append(TemplateCase(problem=pipelines, plan=plan, priced=one.priced))
    return found


def _cascade_case(problem: CascadeProblem, example: Example, path: Path) -> CascadeCase:
    """The case of an example whose plan is one for its problem."""
    try:
        plan = cascade_plan(example.plan, problem)
        fits = not check_plan(problem, plan)
    except InputError:
        fits = False
    if not fits:
        what = f"example {example.number} is for another problem than this release draws"
        hint = "another --examples, to make them anew"
        raise InputError(what, where=str(path), hint=hint)
    return CascadeCase(problem=problem, plan=plan)


def case_of_plan(policy: str, stored: tuple[Json, Json]) -> Case:
    """The case of a stored problem and its plan."""
    problem, plan = stored
    if policy == TEMPLATES:
        pipelines = pipeline_problem(problem)
        return TemplateCase(
            problem=pipelines, plan=pipeline_plan(plan), priced=priced_cells(pipelines)
        )
    placed = cascade_problem(problem)
    return CascadeCase(problem=placed, plan=cascade_plan(plan, placed))


def split(cases: Sequence[Case]) -> tuple[list[Case], list[Case]]:
    """What is trained on, and what is held out to score: every fifth case."""
    held = [case for i, case in enumerate(cases) if i % _HELD_OUT_EVERY == _HELD_OUT_EVERY - 1]
    rest = [case for i, case in enumerate(cases) if i % _HELD_OUT_EVERY < _HELD_OUT_EVERY - 1]
    return rest, held
