"""Bounds by CP-SAT on the pooled relaxation, first in coarse units of time, then in finer ones.

Rounding every duration down to a unit keeps the relaxation valid: a legal plan with all starts
rounded down fits the model (groups that overlap there overlap just before a multiple of the unit
in the plan). Coarse units make durations equal, and equal durations are proven in no time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

from arachne_opt.solvers.cascade.cpsat.solver import Answer, Effort, pooled_model, run
from arachne_opt.solvers.cascade.cpsat.variables import Choices, pooled_choices
from arachne_opt.solvers.cascade.digest import Digest, Mode

# Units per bound, coarse to fine; the last step is one microsecond.
_STEPS = (300, 2000, 10000, 50000)


class Proof(NamedTuple):
    """A step of the ladder.

    Args:
        modes: the relaxed solution's mode per task, None where it found none.
        order: tasks by their start in it.
        done: the relaxation of this unit is solved.
    """

    bound_us: int
    modes: tuple[Mode, ...] | None
    order: tuple[int, ...]
    done: bool
    work: float


def prove(
    digest: Digest,
    bound_us: int,
    incumbent_us: Callable[[], int],
    effort: Callable[[], Effort],
    *,
    area_cut: bool = True,
) -> Iterator[Proof]:
    """Rising bounds, each valid for every plan that is shorter than the incumbent of its time.

    ``incumbent_us`` tells the makespan to beat, ``effort`` what the next run may do.
    """
    units = dict.fromkeys([*(max(1, bound_us // step) for step in _STEPS), 1])
    for unit_us in units:
        least, target_us = bound_us // unit_us, incumbent_us()
        most = (target_us - 1) // unit_us
        if most < least:
            continue
        choices = pooled_choices(digest, unit_us)
        model = pooled_model(digest, choices, unit_us, least, most, area_cut=area_cut)
        answer = run(model, effort())
        bound_us = max(bound_us, min(answer.bound * unit_us, target_us))
        yield _proof(choices, answer, bound_us)
        if not answer.done or bound_us >= target_us:
            return


def _proof(choices: Choices, answer: Answer, bound_us: int) -> Proof:
    if answer.chosen is None:
        return Proof(bound_us, None, (), answer.done, answer.work)
    starts, picks = answer.chosen
    modes = tuple(row[k].mode for row, k in zip(choices, picks, strict=True))
    order = tuple(sorted(range(len(starts)), key=lambda i: (starts[i], i)))
    return Proof(bound_us, modes, order, answer.done, answer.work)
