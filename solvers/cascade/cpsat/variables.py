"""Variables of the CP-SAT models: a start and an end per task, one literal per choice."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from arachne_opt.errors import MissingDependencyError
from arachne_opt.solvers.cascade.digest import Digest, Mode, Where

if TYPE_CHECKING:
    from ortools.sat.python import cp_model


class Choice(NamedTuple):
    """One way to run a task in a model: a mode, its time in the model's units, its nodes.

    ``where`` is empty in the pooled model and for groups whose nodes are left open.
    """

    mode: Mode
    size: int
    where: Where = ()


Choices = list[list[Choice]]


def pooled_choices(digest: Digest, unit_us: int) -> Choices:
    """Every useful mode with its least time, rounded down, so that the model stays a relaxation."""
    return [[Choice(m, m.least_us // unit_us) for m in least_modes(t.modes)] for t in digest.tasks]


def least_modes(modes: Sequence[Mode]) -> list[Mode]:
    """Modes without those that a narrower one of the same type beats by its least time."""
    return [
        m
        for m in modes
        if not any(
            o.kind == m.kind and o.degree < m.degree and o.least_us <= m.least_us for o in modes
        )
    ]


def load_cp_model() -> type[cp_model.CpModel]:
    """The CpModel class.

    Raises:
        MissingDependencyError: ortools is not installed.
    """
    try:
        from ortools.sat.python import cp_model as module
    except ImportError as error:
        what = "the CP-SAT solver needs the package ortools, which is not installed"
        raise MissingDependencyError(what, hint="pip install 'ortools>=9.15,<10'") from error
    return module.CpModel


@dataclass(slots=True, kw_only=True)
class Variables:
    """A model under construction with its variables by task number.

    Args:
        horizon: no task ends later, in units.
    """

    model: cp_model.CpModel
    digest: Digest
    choices: Choices
    unit_us: int
    horizon: int
    makespan: cp_model.IntVar
    starts: list[cp_model.IntVar] = field(default_factory=list)
    ends: list[cp_model.IntVar] = field(default_factory=list)
    literals: list[list[cp_model.IntVar]] = field(default_factory=list)
    intervals: list[list[cp_model.IntervalVar]] = field(default_factory=list)


def make_variables(
    digest: Digest, choices: Choices, unit_us: int, least: int, horizon: int
) -> Variables:
    """Start, end, literals and optional intervals of every task; makespan between two limits."""
    model = load_cp_model()()
    makespan = model.new_int_var(least, horizon, "makespan")
    v = Variables(
        model=model,
        digest=digest,
        choices=choices,
        unit_us=unit_us,
        horizon=horizon,
        makespan=makespan,
    )
    for index, row in enumerate(choices):
        start = model.new_int_var(0, horizon, f"start{index}")
        end = model.new_int_var(0, horizon, f"end{index}")
        literals = [model.new_bool_var(f"x{index}_{k}") for k in range(len(row))]
        v.starts.append(start)
        v.ends.append(end)
        v.literals.append(literals)
        v.intervals.append(
            [
                model.new_optional_interval_var(start, choice.size, end, literal, "")
                for choice, literal in zip(row, literals, strict=True)
            ]
        )
    return v
