"""Which points to measure next: those that a committee of models disagrees on most.

Each member is a core and a network fitted on a Bayesian bootstrap of what was measured so far; the
disagreement is the deviation of their logarithms. Points near a chosen one count less, so that a
round of several points does not measure one spot. As long as too little is known for a committee,
the points farthest from all known ones come next, beginning with the smallest and the largest.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from arachne_opt.costs.learned.core import fit_core
from arachne_opt.costs.learned.estimator import Scaling
from arachne_opt.costs.learned.network import Job, Training, train
from arachne_opt.costs.learned.samples import Floats, Samples, Targets

_MEMBERS = 5
_DECAY = 1e-3
_TRAINING = Training(hidden=8, steps=150)
FEWEST_GROUPS = 4


def disagreement(known: Samples, targets: Targets, asked: Samples, seed: int = 0) -> Floats:
    """Deviation of a committee's logarithms at each asked point."""
    rising, free = Scaling.of(known.rising), Scaling.of(known.free)
    names = sorted(set(targets.groups))
    cores, jobs = [], []
    for member in range(_MEMBERS):
        draw = np.random.default_rng([seed, member]).exponential(size=len(names)) + 1e-3
        share = dict(zip(names, draw, strict=True))
        weights = targets.weights * np.array([share[g] for g in targets.groups])
        core = fit_core(known, replace(targets, weights=weights))
        cores.append(core)
        logs = core.logs(known)
        jobs.append(
            Job(
                core=logs - logs.mean(),
                rising=rising.applied(known.rising),
                free=free.applied(known.free),
                logs=targets.logs - logs.mean(),
                weights=weights,
                decay=_DECAY,
                seed=seed + member,
            )
        )
    rows = []
    for core, network in zip(cores, train(jobs, _TRAINING), strict=True):
        centre = core.logs(known).mean()
        inputs = rising.applied(asked.rising), free.applied(asked.free)
        rows.append(network.logs(core.logs(asked) - centre, *inputs) + centre)
    spread: Floats = np.std(rows, axis=0)
    return spread


def spread_out(places: Floats, known: Sequence[int], wanted: int) -> tuple[int, ...]:
    """Rows of ``places`` that are farthest from known ones and from each other.

    Args:
        places: [n, inputs] of all candidates, comparable in every input.
        known: rows that were measured.
        wanted: how many.
    """
    chosen = list(known)
    found: list[int] = []
    while len(found) < wanted and len(chosen) < len(places):
        if not chosen:
            best = int(places.sum(axis=1).argmin())
        else:
            apart = _apart(places, chosen)
            apart[chosen] = -1.0
            best = int(apart.argmax())
        chosen.append(best)
        found.append(best)
    return tuple(found)


def most_unsure(
    places: Floats, unsure: Floats, known: Sequence[int], wanted: int
) -> tuple[int, ...]:
    """Candidates with the largest disagreement, less where one nearby is known or chosen.

    Args:
        places: [n, inputs] of all candidates.
        unsure: [n] disagreement.
        known: rows that were measured.
        wanted: how many.
    """
    chosen, found = list(known), list[int]()
    width = max(1e-9, float(np.median(_apart(places, [0]))) / 4)
    while len(found) < wanted and len(chosen) < len(places):
        worth = unsure * (1 - np.exp(-((_apart(places, chosen) / width) ** 2)))
        worth[chosen] = -1.0
        best = int(worth.argmax())
        chosen.append(best)
        found.append(best)
    return tuple(found)


def _apart(places: Floats, chosen: Sequence[int]) -> Floats:
    """Distance of each place to the nearest chosen one."""
    between = np.linalg.norm(places[:, None] - places[list(chosen)][None], axis=2)
    nearest: Floats = between.min(axis=1)
    return nearest
