"""Fits estimators: folds, choice of the decay, ensemble and scores; deterministic.

Everything that is chosen or fitted for an estimator sees its training points only: the factors of
the core, the scaling of the inputs, the decay (by cross-validation over groups inside the training
points), the members, and the scores of the intervals (the errors of that cross-validation).
Several training sets, such as the folds of an outer evaluation, are fitted at once.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from arachne_opt.costs.learned.core import Core, CorePrior, fit_core
from arachne_opt.costs.learned.estimator import Estimator, Scaling, spread_of
from arachne_opt.costs.learned.intervals import Scores
from arachne_opt.costs.learned.network import Job, Network, Training, train
from arachne_opt.costs.learned.samples import Flags, Floats, Samples, Targets
from arachne_opt.costs.learned.support import NEAR, RANGE, Support
from arachne_opt.errors import InputError

_FEWEST_GROUPS = 3
# Networks trained at once; more would only need more memory.
_AT_ONCE = 600


@dataclass(frozen=True, slots=True, kw_only=True)
class FitOptions:
    """How an estimator is fitted.

    Args:
        members: networks of the ensemble; 0 leaves the core alone.
        decays: candidates, of which the cross-validation picks one.
        folds: groups are dealt into this many folds at most.
        seed: of the folds and of the members' first weights.
        prior: of the core.
    """

    members: int = 3
    decays: tuple[float, ...] = (1e-3, 1e-4)
    folds: int = 5
    seed: int = 0
    prior: CorePrior = field(default_factory=CorePrior)
    training: Training = field(default_factory=Training)


def fit_estimator(
    samples: Samples, targets: Targets, options: FitOptions | None = None
) -> Estimator:
    """The estimator of all points.

    Raises:
        InputError: the points make fewer than three groups.
    """
    everything = np.ones(samples.count, dtype=bool)
    return fit_estimators(samples, targets, [everything], options)[0]


def fit_estimators(
    samples: Samples,
    targets: Targets,
    masks: Sequence[Flags],
    options: FitOptions | None = None,
) -> tuple[Estimator, ...]:
    """An estimator for each set of training points; the other points are not looked at.

    Raises:
        InputError: a set has fewer than three groups.
    """
    options = options or FitOptions()
    plans = [_Plan(samples, targets, mask, options) for mask in masks]
    jobs = [job for plan in plans for job in plan.jobs()]
    networks: list[Network] = []
    for first in range(0, len(jobs), _AT_ONCE):
        networks += train(jobs[first : first + _AT_ONCE], options.training)
    share = len(jobs) // len(plans)
    return tuple(
        plan.estimator(networks[i * share : (i + 1) * share]) for i, plan in enumerate(plans)
    )


def folds_of(groups: Sequence[str], count: int, seed: int) -> dict[str, int]:
    """The fold of each group, dealt in a seeded order."""
    names = sorted(set(groups))
    order = np.random.default_rng(seed).permutation(len(names))
    return {names[position]: i % count for i, position in enumerate(order)}


@dataclass(frozen=True, kw_only=True)
class _Part:
    """A core and scaled inputs, fitted on some of the points, for all points."""

    train: Flags
    core: Core
    logs: Floats
    centre: float
    rising: Scaling
    free: Scaling


class _Plan:
    """One training set: the full fit and its folds."""

    def __init__(
        self, samples: Samples, targets: Targets, mask: Flags, options: FitOptions
    ) -> None:
        inside = [g for g, used in zip(targets.groups, mask, strict=True) if used]
        if len(set(inside)) < _FEWEST_GROUPS:
            what = f"{len(set(inside))} different shapes are too few to learn from"
            raise InputError(what, hint=f"measure at least {_FEWEST_GROUPS}")
        self._samples, self._targets, self._options = samples, targets, options
        # As many folds for every training set, so that all make as many networks.
        self._folds = options.folds
        fold = folds_of(inside, options.folds, options.seed)
        self._fold = np.array([fold.get(g, -1) for g in targets.groups])
        self._mask = mask
        self._parts = [self._part(mask)]
        for number in range(options.folds):
            kept = mask & (self._fold != number)
            self._parts.append(self._part(kept) if (mask & ~kept).any() else self._parts[0])

    def _part(self, train: Flags) -> _Part:
        known = self._samples.at(train)
        core = fit_core(known, _some(self._targets, train), self._options.prior)
        logs = core.logs(self._samples)
        return _Part(
            train=train,
            core=core,
            logs=logs,
            centre=float(logs[train].mean()),
            rising=Scaling.of(known.rising),
            free=Scaling.of(known.free),
        )

    def jobs(self) -> Iterator[Job]:
        """Networks by decay, then part, then member."""
        for decay in self._options.decays:
            for part in self._parts:
                for member in range(self._options.members):
                    yield self._job(part, decay, member)

    def _job(self, part: _Part, decay: float, member: int) -> Job:
        return Job(
            core=part.logs - part.centre,
            rising=part.rising.applied(self._samples.rising),
            free=part.free.applied(self._samples.free),
            logs=self._targets.logs - part.centre,
            weights=np.where(part.train, self._targets.weights, 0.0),
            decay=decay,
            seed=self._options.seed + member,
        )

    def estimator(self, networks: Sequence[Network]) -> Estimator:
        """Picks the decay by the folds' errors, and keeps the full fit of it."""
        members, parts = self._options.members, len(self._parts)
        held = [self._held_out(networks, number) for number in range(len(self._options.decays))]
        losses = [np.average(abs(e), weights=self._weights()) for e, _ in held]
        best = int(np.argmin(losses))
        core_errors = self._core_errors()
        first = best * parts * members
        errors, spread = held[best]
        full = self._parts[0]
        return Estimator(
            core=full.core,
            centre=full.centre,
            rising=full.rising,
            free=full.free,
            networks=tuple(networks[first : first + members]),
            support=Support.of(self._samples.at(self._mask)),
            scores={
                NEAR: Scores.of(errors / spread),
                RANGE: Scores.of(core_errors),
                **self._new_label_scores(),
            },
            decay=self._options.decays[best],
        )

    def _weights(self) -> Floats:
        weights: Floats = self._targets.weights[self._mask]
        return weights

    def _held_out(self, networks: Sequence[Network], decay: int) -> tuple[Floats, Floats]:
        """Errors in logarithms and spreads of the training points, each by the fold without it."""
        members, parts = self._options.members, len(self._parts)
        errors, spread = np.zeros(self._samples.count), np.ones(self._samples.count)
        for number in range(1, parts):
            out = self._mask & (self._fold == number - 1)
            if not out.any():
                continue
            part = self._parts[number]
            first = (decay * parts + number) * members
            rows = self._rows(networks[first : first + members], part, out)
            errors[out] = self._targets.logs[out] - rows.mean(axis=0)
            spread[out] = spread_of(rows)
        return errors[self._mask], spread[self._mask]

    def _rows(self, networks: Sequence[Network], part: _Part, where: Flags) -> Floats:
        if not networks:
            return part.logs[None, where]
        some = self._samples.at(where)
        rising, free = part.rising.applied(some.rising), part.free.applied(some.free)
        rows = [n.logs(part.logs[where] - part.centre, rising, free) for n in networks]
        return np.stack(rows) + part.centre

    def _core_errors(self) -> Floats:
        errors = np.zeros(self._samples.count)
        for number, part in enumerate(self._parts[1:]):
            out = self._mask & (self._fold == number)
            errors[out] = self._targets.logs[out] - part.logs[out]
        return errors[self._mask]

    def _new_label_scores(self) -> dict[str, Scores]:
        """Errors of the core on whole labels that it was fitted without."""
        found = {}
        for kind, labels in self._samples.unseen.items():
            column = np.array(labels)
            names = sorted({str(n) for n in column[self._mask]})
            if len(names) < 2:
                continue
            errors = [self._without(self._mask & (column == name)) for name in names]
            found[kind] = Scores.of(np.concatenate(errors))
        return found

    def _without(self, out: Flags) -> Floats:
        kept = self._mask & ~out
        core = fit_core(self._samples.at(kept), _some(self._targets, kept), self._options.prior)
        errors: Floats = self._targets.logs[out] - core.logs(self._samples.at(out))
        return errors


def _some(targets: Targets, where: Flags) -> Targets:
    return replace(
        targets,
        values=targets.values[where],
        groups=tuple(g for g, used in zip(targets.groups, where, strict=True) if used),
        weights=targets.weights[where],
    )
