"""Trains a policy, scores it on cases that were held out, and keeps it only where it is better."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from arachne_opt.errors import InputError
from arachne_opt.learning.cascade_training import (
    cascade_lesson,
    examine_cascades,
    train_cascades,
)
from arachne_opt.learning.lessons import CascadeCase, Case, TemplateCase, split
from arachne_opt.learning.template_training import examine, lesson, train
from arachne_opt.solvers.seeds.policy_file import (
    PolicyFile,
    pack_policy,
    unpack_policy,
)
from arachne_opt.solvers.seeds.structures import structure_of_plan
from arachne_opt.solvers.seeds.templates import FIRST

LOG = logging.getLogger(__name__)
_AS_GOOD = 1e-3  # of the best exact price
_FEWEST = 10  # cases, of which two are held out


@dataclass(frozen=True, slots=True, kw_only=True)
class Score:
    """How good a policy is on cases that it was not trained on.

    Args:
        value: what is compared, lower is better.
        details: figures for people.
    """

    value: float
    details: dict[str, float]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Learned:
    """A trained policy beside the one that was there before.

    Args:
        data: the file of the new one.
        before: the score of the old one on the same cases, None where there was none.
    """

    policy: PolicyFile
    data: bytes
    score: Score
    before: Score | None

    @property
    def better(self) -> bool:
        """Whether the new one is worth keeping."""
        return self.before is None or self.score.value < self.before.value


def learn(
    name: str,
    cases: Sequence[Case],
    *,
    seed: int,
    current: PolicyFile | None,
    refresh: bool,
    report: dict[str, Any],
) -> Learned:
    """Trains on most of the cases and scores on the others.

    Args:
        name: ``cascades`` or ``templates``.
        cases: in an order that does not change.
        seed: of the first weights.
        current: the policy to beat.
        refresh: go on from the weights of ``current``, where there are any.
        report: what is known about the making, for the file.

    Raises:
        InputError: there are too few cases.
    """
    if len(cases) < _FEWEST:
        what = f"{len(cases)} plans are too few to learn from; at least {_FEWEST} are needed"
        raise InputError(what, hint="a larger --count, or more solves into the database")
    training, held_out = split(cases)
    start = current.tensors if refresh and current is not None else None
    tensors = _train(training, seed, start)
    draft = unpack_policy(pack_policy(name, {}, tensors), name, where="the new policy")
    score = score_policy(held_out, draft)
    before = None if current is None else score_policy(held_out, current)
    full = report | {
        "cases": len(training),
        "held_out": len(held_out),
        "seed": seed,
        "score": score.value,
        **score.details,
    }
    data = pack_policy(name, full, tensors)
    policy = unpack_policy(data, name, where="the new policy")
    return Learned(policy=policy, data=data, score=score, before=before)


def _train(cases: Sequence[Case], seed: int, start: Any) -> dict[str, Any]:  # noqa: ANN401
    if isinstance(cases[0], CascadeCase):
        found = [cascade_lesson(c.problem, c.plan) for c in cases if isinstance(c, CascadeCase)]
        return train_cascades([one for one in found if one is not None], seed, start)
    priced = [lesson(c.problem, c.priced) for c in cases if isinstance(c, TemplateCase)]
    return train([one for one in priced if one is not None], seed, start)


def score_policy(cases: Sequence[Case], policy: PolicyFile | None) -> Score:
    """The score of a policy on cases; templates are also scored without one."""
    if isinstance(cases[0], CascadeCase):
        assert policy is not None
        ratios = [examine_cascades(c.problem, policy) for c in cases if isinstance(c, CascadeCase)]
        value = float(np.mean(ratios))
        return Score(value=value, details={"mean_over_bound": round(value, 5)})
    seen = [
        examine(c.problem, c.priced, structure_of_plan(c.plan) if c.plan else None, policy)
        for c in cases
        if isinstance(c, TemplateCase)
    ]
    scores = [s for s in seen if s is not None]
    first = [s.rank is not None and s.rank < FIRST for s in scores]
    near = [s.regret <= _AS_GOOD for s in scores]
    regret = float(np.mean([min(1.0, s.regret) for s in scores]))
    missed = 1 - float(np.mean(first))
    details = {
        "best_in_first_8": round(1 - missed, 4),
        "as_good_in_first_8": round(float(np.mean(near)), 4),
        "mean_regret": round(regret, 5),
        "mean_rank": round(float(np.mean([99 if s.rank is None else s.rank for s in scores])), 3),
    }
    return Score(value=missed + regret + 1e-3 * details["mean_rank"], details=details)
