"""The analytic core: a sum of physical terms, each with a fitted efficiency.

    value = sum over terms j of exp(theta_j + delta_j[label]) * term_j

theta_j is the reciprocal efficiency that all points share; delta_j is how far a device type (or
whatever labels a term) is off from it, shrunk towards 0, so that a label that was never seen is
priced by the data sheet and the common efficiencies. All factors are positive: where the terms do
not fall with tokens, the core does not. Fitted in logarithms by damped Gauss-Newton steps.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from arachne_opt.costs.learned.samples import Floats, Samples, Targets

_STEPS = 80
_LONGEST_STEP = 1.5
_CONVERGED = 1e-7
_NEGLIGIBLE = 1e-6  # share of the largest value of a term


@dataclass(frozen=True, slots=True, kw_only=True)
class CorePrior:
    """How strongly factors are held, in units of points: 0.1 is a tenth of a point's pull.

    Args:
        common: holds theta at its start, so that terms that never matter stay put.
        own: holds the deltas at 0; None leaves them out.
    """

    common: float = 0.02
    own: float | None = 0.1


@dataclass(frozen=True, kw_only=True)
class Core:
    """Fitted factors.

    Args:
        theta: natural logarithm of the common factor of each term.
        deltas: by term, the deviation of each label.
    """

    theta: Floats
    deltas: tuple[Mapping[str, float], ...]

    def logs(self, samples: Samples) -> Floats:
        """Logarithms of the predicted values."""
        own = np.array(
            [
                [found.get(str(label), 0.0) for label, found in zip(row, self.deltas, strict=True)]
                for row in samples.scales
            ]
        )
        total: Floats = (samples.terms * np.exp(self.theta + own)).sum(axis=1)
        return np.log(total)

    def to_json(self) -> dict[str, Any]:
        """JSON values that ``core_from_json`` reads."""
        return {
            "theta": [round(float(x), 6) for x in self.theta],
            "deltas": [{k: round(v, 6) for k, v in found.items()} for found in self.deltas],
        }


def core_from_json(value: Mapping[str, Any]) -> Core:
    """The core that ``Core.to_json`` wrote."""
    deltas = tuple({str(k): float(v) for k, v in found.items()} for found in value["deltas"])
    return Core(theta=np.array(value["theta"], dtype=np.float64), deltas=deltas)


def fit_core(samples: Samples, targets: Targets, prior: CorePrior | None = None) -> Core:
    """The factors that fit the targets best in logarithms; deterministic."""
    prior = prior or CorePrior()
    table = _Table(samples, targets, prior)
    x, damping = table.start.copy(), 1e-2
    best = table.objective(x)
    for _ in range(_STEPS):
        step = table.step(x, damping)
        tried = table.objective(x + step)
        if tried >= best:
            damping *= 4
            if damping > 1e9:
                break
            continue
        x, damping = x + step, max(damping / 3, 1e-9)
        gained, best = best - tried, tried
        if gained < _CONVERGED * best:
            break
    return table.core(x)


class _Table:
    """The least-squares problem: columns are terms first, then labels of terms."""

    def __init__(self, samples: Samples, targets: Targets, prior: CorePrior) -> None:
        self._largest = samples.terms.max(axis=0)
        self._scale = np.where(self._largest > 0, self._largest, 1.0)
        self._terms = samples.terms / self._scale
        self._logs, self._weights = targets.logs, targets.weights / targets.weights.mean()
        count = samples.terms.shape[1]
        self._count = count
        self._labels: list[list[str]] = []
        columns = []
        for j in range(count):
            names, inverse = np.unique(samples.scales[:, j], return_inverse=True)
            columns.append(inverse + count + sum(len(found) for found in self._labels))
            self._labels.append([str(name) for name in names])
        self._columns = np.stack(columns, axis=1)
        size = count + sum(len(found) for found in self._labels)
        own = 1e6 if prior.own is None else prior.own
        self._prior = np.concatenate([np.full(count, prior.common), np.full(size - count, own)])
        self.start = np.zeros(size)
        self.start[:count] = [self._first(j, targets.values) for j in range(count)]

    def _first(self, j: int, values: Floats) -> float:
        """An equal share of the value, at the points where a term matters."""
        column = self._terms[:, j]
        there = column > _NEGLIGIBLE
        if not there.any():
            return -20.0
        return float(np.log(np.median(values[there] / column[there]) / 4))

    def _parts(self, x: Floats) -> Floats:
        parts: Floats = self._terms * np.exp(x[: self._count] + x[self._columns])
        return parts

    def objective(self, x: Floats) -> float:
        """Weighted squares of the errors in logarithms, and of the pulls on factors."""
        errors = np.log(self._parts(x).sum(axis=1)) - self._logs
        pulls = self._prior * (x - self.start) ** 2
        return float((self._weights * errors**2).sum() + pulls.sum())

    def step(self, x: Floats, damping: float) -> Floats:
        """A damped Gauss-Newton step."""
        parts = self._parts(x)
        total = parts.sum(axis=1)
        shares, errors = parts / total[:, None], np.log(total) - self._logs
        slopes = np.zeros((len(total), len(x)))
        slopes[:, : self._count] = shares
        rows = np.arange(len(total))
        for j in range(self._count):
            slopes[rows, self._columns[:, j]] += shares[:, j]
        normal = (slopes * self._weights[:, None]).T @ slopes + np.diag(self._prior)
        gradient = slopes.T @ (self._weights * errors) + self._prior * (x - self.start)
        normal += damping * np.diag(np.diag(normal))
        whole = np.linalg.solve(normal, -gradient)
        step: Floats = np.clip(whole, -_LONGEST_STEP, _LONGEST_STEP)
        return step

    def core(self, x: Floats) -> Core:
        """The factors in the terms' own units; labels whose term never mattered are left out."""
        deltas: list[dict[str, float]] = []
        position = self._count
        for names in self._labels:
            own = x[position : position + len(names)]
            deltas.append({n: float(d) for n, d in zip(names, own, strict=True) if abs(d) > 1e-9})
            position += len(names)
        return Core(theta=x[: self._count] - np.log(self._scale), deltas=tuple(deltas))
