"""Held-out errors of an estimator and of simpler ones, all fitted on the same training points."""

from __future__ import annotations

import importlib.util
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from arachne_opt.costs.learned.core import CorePrior, fit_core
from arachne_opt.costs.learned.fitting import FitOptions, fit_estimators, folds_of
from arachne_opt.costs.learned.samples import Flags, Floats, Samples, Targets
from arachne_opt.costs.learned.support import NEAR

LEARNED = "learned"
ANALYTIC = "analytic core only"
BOOSTING = "gradient boosting"
BOOSTED_CORE = "gradient boosting of the core's error"
NEIGHBOUR = "nearest neighbour"

COVERAGE = 0.9
_FOLDS = 5


@dataclass(frozen=True, kw_only=True)
class HeldOut:
    """Predictions of points by estimators that never saw them.

    Args:
        measured: values.
        predicted: by method.
        low: 5 % quantiles of the learned estimator; ``high`` its 95 % ones.
        near: where the ensemble spoke, and not the core alone.
    """

    measured: Floats
    predicted: Mapping[str, Floats]
    low: Floats
    high: Floats
    near: Flags

    def error(self, method: str = LEARNED) -> float:
        """Mean absolute relative error."""
        return float(np.mean(abs(self.predicted[method] / self.measured - 1)))

    @property
    def coverage(self) -> float:
        """Share of the points inside of their 90 % interval."""
        return float(np.mean((self.low <= self.measured) & (self.measured <= self.high)))

    def to_json(self) -> dict[str, Any]:
        """JSON values for the database."""
        columns = (self.measured, self.predicted[LEARNED], self.low, self.high)
        points = [[float(f"{x:.6g}") for x in row] for row in zip(*columns, strict=True)]
        return {
            "count": len(self.measured),
            "near": int(self.near.sum()),
            "coverage": round(self.coverage, 6),
            "errors": {name: round(self.error(name), 6) for name in self.predicted},
            "points": points,
        }


def has_boosting() -> bool:
    """Whether scikit-learn is here."""
    return importlib.util.find_spec("sklearn") is not None


def fold_masks(targets: Targets, seed: int, folds: int = _FOLDS) -> tuple[Flags, ...]:
    """Training points of each fold; a group is held out as a whole."""
    count = min(folds, len(set(targets.groups)))
    fold = folds_of(targets.groups, count, seed)
    number = np.array([fold[g] for g in targets.groups])
    return tuple(number != i for i in range(count))


def held_out(
    samples: Samples,
    targets: Targets,
    masks: Sequence[Flags],
    options: FitOptions,
    *,
    baselines: bool = True,
) -> HeldOut:
    """Predictions of the points outside of each training set, by what was fitted inside of it."""
    estimators = fit_estimators(samples, targets, masks, options)
    found: dict[str, list[Floats]] = {LEARNED: [], "low": [], "high": [], "measured": []}
    near: list[Flags] = []
    for estimator, mask in zip(estimators, masks, strict=True):
        asked = samples.at(~mask)
        found["measured"].append(targets.values[~mask])
        found[LEARNED].append(estimator.predict(asked).values)
        found["low"].append(estimator.quantile(asked, (1 - COVERAGE) / 2).values)
        found["high"].append(estimator.quantile(asked, (1 + COVERAGE) / 2).values)
        near.append(np.array([p == NEAR for p in estimator.support.places(asked)]))
        for name, values in _baselines(samples, targets, mask, options) if baselines else ():
            found.setdefault(name, []).append(values)
    whole = {name: np.concatenate(parts) for name, parts in found.items()}
    measured, low, high = (whole.pop(name) for name in ("measured", "low", "high"))
    return HeldOut(
        measured=measured, predicted=whole, low=low, high=high, near=np.concatenate(near)
    )


def _baselines(
    samples: Samples, targets: Targets, mask: Flags, options: FitOptions
) -> list[tuple[str, Floats]]:
    known, asked = samples.at(mask), samples.at(~mask)
    inside = replace(
        targets,
        values=targets.values[mask],
        groups=tuple(g for g, used in zip(targets.groups, mask, strict=True) if used),
        weights=targets.weights[mask],
    )
    prior = CorePrior(common=options.prior.common, own=None)
    core = fit_core(known, inside, prior)
    logs, other = core.logs(known), core.logs(asked)
    found = [(ANALYTIC, np.exp(other)), (NEIGHBOUR, _nearest(known, inside, asked))]
    if has_boosting():
        plain, plain_asked = _inputs(known), _inputs(asked)
        found.append((BOOSTING, np.exp(_boosted(plain, inside.logs, plain_asked, options.seed))))
        rest = _boosted(
            np.column_stack([plain, logs]),
            inside.logs - logs,
            np.column_stack([plain_asked, other]),
            options.seed,
        )
        found.append((BOOSTED_CORE, np.exp(other + rest)))
    return found


def _inputs(samples: Samples) -> Floats:
    """What the networks see, without the terms of the core."""
    return np.column_stack([samples.rising, samples.free])


def _boosted(inputs: Floats, wanted: Floats, asked: Floats, seed: int) -> Floats:
    from sklearn.ensemble import (  # type: ignore[import-untyped]  # it ships no types
        GradientBoostingRegressor,
    )

    trees = GradientBoostingRegressor(
        n_estimators=300, max_depth=3, learning_rate=0.05, random_state=seed
    )
    predicted: Floats = trees.fit(inputs, wanted).predict(asked)
    return predicted


def _nearest(known: Samples, targets: Targets, asked: Samples) -> Floats:
    inputs, wanted = _inputs(known), _inputs(asked)
    width = inputs.std(axis=0)
    width = np.where(width > 1e-9, width, np.inf)
    apart = ((wanted[:, None] - inputs[None]) / width) ** 2
    values: Floats = targets.values[apart.sum(axis=2).argmin(axis=1)]
    return values
