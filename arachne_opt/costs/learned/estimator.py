"""One learned quantity: core, ensemble around it, support and intervals."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from arachne_opt.costs.learned.core import Core, core_from_json
from arachne_opt.costs.learned.intervals import Scores
from arachne_opt.costs.learned.network import Network, network_from_json
from arachne_opt.costs.learned.samples import Floats, Samples
from arachne_opt.costs.learned.support import NEAR, RANGE, Support, support_from_json

# Spread that is left where all members agree: they share their data.
LEAST_SPREAD = 0.02
# Where nothing says how far off the core is for new labels, twice its error within known ones.
_UNKNOWN = 2.0


@dataclass(frozen=True, kw_only=True)
class Scaling:
    """Brings inputs to mean 0 and deviation 1; inputs that never differ become 0."""

    centre: Floats
    width: Floats

    @classmethod
    def of(cls, inputs: Floats) -> Scaling:
        """The scaling of training points."""
        width = inputs.std(axis=0)
        return cls(centre=inputs.mean(axis=0), width=np.where(width > 1e-9, width, np.inf))

    def applied(self, inputs: Floats) -> Floats:
        """Scaled inputs."""
        scaled: Floats = (inputs - self.centre) / self.width
        return scaled


@dataclass(frozen=True, kw_only=True)
class Prediction:
    """What a model says of n points.

    Args:
        logs: logarithms of the predicted values.
        spread: standard deviation of the logarithms, as far as the members tell.
        places: ``near``: the ensemble spoke; otherwise why the core alone did.
    """

    logs: Floats
    spread: Floats
    places: tuple[str, ...]

    @property
    def values(self) -> Floats:
        """Predicted values."""
        return np.exp(self.logs)


@dataclass(frozen=True, kw_only=True)
class Estimator:
    """Predicts one quantity, such as the seconds of a task.

    Args:
        centre: middle of the core's logarithms in training.
        networks: members of the ensemble; none where the core was the better predictor.
        scores: held-out scores by place: ``near`` in units of the spread, others in logarithms.
        decay: how strongly the members' weights were held, chosen by cross-validation.
    """

    core: Core
    centre: float
    rising: Scaling
    free: Scaling
    networks: tuple[Network, ...]
    support: Support
    scores: Mapping[str, Scores]
    decay: float

    def predict(self, samples: Samples) -> Prediction:
        """Predictions: the ensemble near what was measured, the core alone elsewhere."""
        logs = self.core.logs(samples)
        places = self.support.places(samples)
        spread = np.ones(samples.count)
        near = np.array([place == NEAR for place in places])
        if near.any():
            inside = samples.at(near)
            members = self.members(inside, logs[near])
            logs[near] = members.mean(axis=0)
            spread[near] = spread_of(members)
        return Prediction(logs=logs, spread=spread, places=places)

    def members(self, samples: Samples, core: Floats) -> Floats:
        """[members, n] logarithms of each member; the core's where there is none."""
        if not self.networks:
            return core[None, :]
        rising = self.rising.applied(samples.rising)
        free = self.free.applied(samples.free)
        rows = [n.logs(core - self.centre, rising, free) for n in self.networks]
        return np.stack(rows) + self.centre

    def quantile(self, samples: Samples, q: float | None) -> Prediction:
        """Predictions moved to a quantile; the middle ones where ``q`` is None."""
        found = self.predict(samples)
        if q is None:
            return found
        by_place = {place: self._scores(place).quantile(q) for place in set(found.places)}
        factors = {p: s if self._known(p) else _UNKNOWN * s for p, s in by_place.items()}
        moved = found.logs + found.spread * np.array([factors[p] for p in found.places])
        return Prediction(logs=moved, spread=found.spread, places=found.places)

    def _known(self, place: str) -> bool:
        return place in self.scores

    def _scores(self, place: str) -> Scores:
        return self.scores[place] if self._known(place) else self.scores[RANGE]

    def to_json(self) -> dict[str, Any]:
        """JSON values that ``estimator_from_json`` reads back to equal predictions."""
        return {
            "core": self.core.to_json(),
            "centre": self.centre,
            "rising": _scaling_json(self.rising),
            "free": _scaling_json(self.free),
            "networks": [network.to_json() for network in self.networks],
            "support": self.support.to_json(),
            "scores": {place: list(found.values) for place, found in self.scores.items()},
            "decay": self.decay,
        }


def spread_of(members: Floats) -> Floats:
    """How unsure an ensemble is of each point."""
    spread: Floats = np.sqrt(members.var(axis=0) + LEAST_SPREAD**2)
    return spread


def estimator_from_json(value: Mapping[str, Any]) -> Estimator:
    """The estimator that ``Estimator.to_json`` wrote."""
    return Estimator(
        core=core_from_json(value["core"]),
        centre=float(value["centre"]),
        rising=_scaling(value["rising"]),
        free=_scaling(value["free"]),
        networks=tuple(network_from_json(raw) for raw in value["networks"]),
        support=support_from_json(value["support"]),
        scores={str(p): Scores(tuple(map(float, raw))) for p, raw in value["scores"].items()},
        decay=float(value["decay"]),
    )


def _scaling_json(scaling: Scaling) -> dict[str, Any]:
    # JSON knows no infinity: 0 stands for it.
    width = np.where(np.isfinite(scaling.width), scaling.width, 0.0)
    return {"centre": scaling.centre.tolist(), "width": width.tolist()}


def _scaling(value: Mapping[str, Any]) -> Scaling:
    width = np.array(value["width"], dtype=np.float64)
    return Scaling(
        centre=np.array(value["centre"], dtype=np.float64),
        width=np.where(width > 0, width, np.inf),
    )
