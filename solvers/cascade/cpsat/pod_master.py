"""The master of pods: which of the pods that are known cover all cascades and end first."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from arachne_opt.solvers.cascade.cpsat.variables import load_cp_model

if TYPE_CHECKING:
    from ortools.sat.python import cp_model

# Deterministic seconds: most masters are solved, or refuted, in a few hundredths.
_WORK = 0.3


class Column(NamedTuple):
    """Pods that are alike: their floor, the shapes of their cascades, their makespan.

    ``used`` is how often the schedule at hand has them.
    """

    floor: tuple[int, ...]
    shapes: tuple[int, ...]
    makespan_us: int
    used: int = 0


class Cover(NamedTuple):
    """How often to use each column, None where no cover was found; deterministic time spent."""

    uses: tuple[int, ...] | None
    work: float


def best_cover(
    columns: Sequence[Column],
    floors: Mapping[tuple[int, ...], int],
    shapes: Mapping[int, int],
    seed: int,
) -> Cover:
    """The cover whose longest column is shortest.

    min z: z >= makespan_p where x_p > 0; sum over p on floor f of x_p = pods on f;
    sum over p of x_p * (cascades of shape s in p) = cascades of shape s.

    Args:
        columns: those that may be used.
        floors: number of pods by floor.
        shapes: number of cascades by shape.
        seed: of the search.
    """
    from ortools.sat.python import cp_model

    model = load_cp_model()()
    uses = _add_columns(model, columns, floors, shapes)
    solver = cp_model.CpSolver()
    solver.parameters.num_workers = 1
    solver.parameters.catch_sigint_signal = False
    solver.parameters.random_seed = seed
    solver.parameters.max_deterministic_time = _WORK
    status = solver.solve(model)
    found = status in (cp_model.OPTIMAL, cp_model.FEASIBLE)
    return Cover(
        uses=tuple(solver.value(times) for times in uses) if found else None,
        work=solver.deterministic_time,
    )


def _add_columns(
    model: cp_model.CpModel,
    columns: Sequence[Column],
    floors: Mapping[tuple[int, ...], int],
    shapes: Mapping[int, int],
) -> list[cp_model.IntVar]:
    """A variable for each column, all constraints and the objective; see ``best_cover``."""
    longest = model.new_int_var(0, max((c.makespan_us for c in columns), default=0), "")
    covered: dict[int, list[cp_model.LinearExpr]] = {shape: [] for shape in shapes}
    standing: dict[tuple[int, ...], list[cp_model.IntVar]] = {floor: [] for floor in floors}
    uses = []
    for column in columns:
        parts = Counter(column.shapes)
        most = min(floors[column.floor], *(shapes[s] // n for s, n in parts.items()))
        times, used = model.new_int_var(0, most, ""), model.new_bool_var("")
        model.add(times <= most * used)
        model.add(longest >= column.makespan_us).only_enforce_if(used)
        model.add_hint(times, column.used)
        for shape, count in parts.items():
            covered[shape].append(count * times)
        standing[column.floor].append(times)
        uses.append(times)
    for shape, terms in covered.items():
        model.add(sum(terms) == shapes[shape])
    for floor, ones in standing.items():
        model.add(sum(ones) == floors[floor])
    model.minimize(longest)
    return uses
