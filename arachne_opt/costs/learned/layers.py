"""A learned cost model of the rows of large models: step times for types and degrees not measured.

Points of one kind of row in a step table are equal but for noise: their mean is one sample. What
was measured keeps its measured time; the model fills in the rest, with its held-out error.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from arachne_opt.canonical import digest
from arachne_opt.cluster import DeviceType
from arachne_opt.cost_version import cost_version
from arachne_opt.costs.learned.arithmetic import ArithmeticOf, usual
from arachne_opt.costs.learned.estimator import Estimator, estimator_from_json
from arachne_opt.costs.learned.fitting import FitOptions, fit_estimator
from arachne_opt.costs.learned.layer_features import (
    PASSES,
    RowKind,
    RowPoint,
    row_kinds,
    row_point,
    row_samples,
)
from arachne_opt.costs.learned.samples import Floats, Targets
from arachne_opt.costs.learned.support import NEAR
from arachne_opt.costs.pipeline.estimates import routes_like_others
from arachne_opt.costs.pipeline.profiles import Profiles
from arachne_opt.device_types import DEVICE_TYPES
from arachne_opt.errors import InputError
from arachne_opt.pipeline.rows import RowModel
from arachne_opt.pipeline.tables import StepTimes

LAYERS_FORMAT = "arachne.learned-layers/1"

# Times of rows that do nothing are written as 0 in some files.
LEAST_S = 1e-6


@dataclass(frozen=True, kw_only=True)
class LayerSample:
    """Rows of one kind in one step table.

    Args:
        rows: their numbers in the model.
        seconds: by pass, the time of each of the rows.
    """

    point: RowPoint
    rows: tuple[int, ...]
    seconds: Mapping[str, tuple[float, ...]]

    @property
    def step(self) -> str:
        """The step table that it is from: its points are held out together."""
        p = self.point
        return f"{p.model} {p.device_type.name} tp{p.tp} x{p.microbatch}"


def samples_of(
    profiles: Iterable[Profiles], arithmetic: ArithmeticOf = usual
) -> tuple[LayerSample, ...]:
    """The samples in measured profiles; types without a public data sheet are left out."""
    found: list[LayerSample] = []
    for profile in profiles:
        kinds = row_kinds(profile.model)
        for step in profile.steps:
            if step.error is None and step.device_type in DEVICE_TYPES:
                found += _samples_of_step(profile.model, kinds, step, arithmetic)
    return tuple(found)


def _samples_of_step(
    model: RowModel, kinds: Sequence[RowKind], step: StepTimes, arithmetic: ArithmeticOf
) -> Iterable[LayerSample]:
    device = DEVICE_TYPES[step.device_type]
    columns = dict(zip(PASSES, (step.forward_s, step.backward_s, step.update_s), strict=True))
    for kind in dict.fromkeys(kinds):
        rows = tuple(r for r, k in enumerate(kinds) if k is kind)
        yield LayerSample(
            point=row_point(
                model,
                rows[len(rows) // 2],
                kind,
                tp=step.tp,
                microbatch=step.microbatch,
                device_type=device,
                arithmetic=arithmetic(model.name, device),
            ),
            rows=rows,
            seconds={p: tuple(column[r] for r in rows) for p, column in columns.items()},
        )


def layer_targets(samples: Sequence[LayerSample], which: str) -> Targets:
    """Mean seconds of a pass."""
    means = [max(LEAST_S, float(np.mean(s.seconds[which]))) for s in samples]
    return Targets(
        values=np.array(means),
        groups=tuple(s.step for s in samples),
        weights=np.ones(len(samples)),
    )


@dataclass(frozen=True, kw_only=True)
class LearnedLayers:
    """Predicts the passes of rows.

    Args:
        name: what the user calls it.
        passes: an estimator by pass.
        error: held-out mean relative error of forward and backward.
    """

    name: str
    passes: Mapping[str, Estimator]
    error: float

    def filled(
        self,
        profiles: Profiles,
        types: Mapping[str, DeviceType],
        *,
        microbatches: Sequence[int],
        degrees: Sequence[int],
        risk: float | None = None,
        arithmetic: ArithmeticOf = usual,
    ) -> Profiles:
        """The profiles with predictions where a type, degree or micro-batch was not measured.

        A measured type keeps its measured micro-batches as limits: beyond them, memory probably
        ran out; and only degrees with sizes of the model are filled in.

        Args:
            profiles: sizes of the model and what was measured.
            types: device types that are needed, by name.
            microbatches: micro-batches that should have times.
            degrees: tensor-parallel degrees that should have times.
            risk: quantile of the predicted times; None stands for the middle.
            arithmetic: of matrix products, by model and type.
        """
        measured = {s.key for s in profiles.steps}
        asked = [
            (kind, tp, m)
            for kind in types.values()
            for tp, m in self._wanted(profiles, kind.name, degrees, microbatches)
            if (kind.name, tp, m) not in measured
        ]
        if not asked:
            return profiles
        added = [self._step(profiles.model, *point, risk, arithmetic) for point in asked]
        linked = {route.source.device_type for route in profiles.routes}
        missing = [kind for name, kind in types.items() if name not in linked]
        return replace(
            profiles,
            steps=(*profiles.steps, *(step for step, _ in added)),
            routes=(*profiles.routes, *routes_like_others(profiles, missing)),
            notes=(*profiles.notes, self._note([near for _, near in added], risk)),
            version=digest([profiles.version, self.to_json(), risk]),
        )

    def _note(self, near: Sequence[bool], risk: float | None) -> str:
        note = f"{len(near)} step tables are predicted by {self.name}"
        note += f", mean error {self.error:.0%}" + (f", quantile {risk:g}" if risk else "")
        if not all(near):
            note += f"; {near.count(False)} of them lie outside its support: analytic core"
        return note

    def _wanted(
        self, profiles: Profiles, kind: str, degrees: Sequence[int], microbatches: Sequence[int]
    ) -> list[tuple[int, int]]:
        """Pairs of degree and micro-batch; between the measured ones for a measured type."""
        sized = [tp for tp in degrees if tp in profiles.model.sizes_by_tp]
        wanted = [(tp, m) for tp in sized for m in microbatches]
        mine = [s for s in profiles.steps if s.device_type == kind]
        if not mine:
            return wanted
        tps = [s.tp for s in mine]
        most = {tp: max(s.microbatch for s in mine if s.tp == tp) for tp in tps}
        least = min(s.microbatch for s in mine)

        def inside(tp: int, m: int) -> bool:
            lower = [most[t] for t in most if t <= tp]
            return min(tps) <= tp <= max(tps) and least <= m <= most.get(tp, max(lower, default=0))

        return [(tp, m) for tp, m in wanted if inside(tp, m)]

    def _step(
        self,
        model: RowModel,
        kind: DeviceType,
        tp: int,
        microbatch: int,
        risk: float | None,
        arithmetic: ArithmeticOf,
    ) -> tuple[StepTimes, bool]:
        """A predicted step table, and whether the ensemble spoke for all of it."""
        kinds = row_kinds(model)
        names = list(dict.fromkeys(kinds))
        how = arithmetic(model.name, kind)
        points = [
            row_point(
                model, _middle(kinds, name), name,
                tp=tp, microbatch=microbatch, device_type=kind, arithmetic=how,
            )
            for name in names
        ]  # fmt: skip
        times: dict[str, Floats] = {}
        near = True
        for which in PASSES:
            found = self.passes[which].quantile(row_samples(points, which), risk)
            times[which] = found.values
            near = near and all(place == NEAR for place in found.places)
        index = [names.index(k) for k in kinds]
        columns = {which: tuple(float(times[which][i]) for i in index) for which in PASSES}
        step = StepTimes(
            device_type=kind.name,
            tp=tp,
            microbatch=microbatch,
            forward_s=columns["forward"],
            backward_s=columns["backward"],
            update_s=columns["update"],
            error=self.error,
        )
        return step, near

    @property
    def version(self) -> str:
        """Digest of all weights."""
        return cost_version("learned-layers", (self.name, "rows"), digest(self.to_json()))

    def to_json(self) -> dict[str, Any]:
        """JSON values that ``layers_from_json`` reads back."""
        return {
            "format": LAYERS_FORMAT,
            "name": self.name,
            "error": round(self.error, 6),
            "passes": {which: found.to_json() for which, found in self.passes.items()},
        }


def layers_from_json(value: Mapping[str, Any], where: str) -> LearnedLayers:
    """The model that ``to_json`` wrote.

    Raises:
        InputError: another format, or damaged.
    """
    if value.get("format") != LAYERS_FORMAT:
        what = f"format is {value.get('format')!r}, not {LAYERS_FORMAT!r}"
        raise InputError(what, where=where, hint="arachne cost fit layers")
    try:
        return LearnedLayers(
            name=str(value["name"]),
            error=float(value["error"]),
            passes={which: estimator_from_json(value["passes"][which]) for which in PASSES},
        )
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        what = f"the learned cost model is damaged: {type(error).__name__} {error}"
        raise InputError(what, where=where, hint="arachne cost fit layers") from error


def fit_layers(
    name: str,
    samples: Sequence[LayerSample],
    error: float,
    options: FitOptions | None = None,
) -> LearnedLayers:
    """The model of measured rows.

    Args:
        name: what the user calls it.
        samples: measured rows.
        error: held-out error, to be stated with every prediction.
        options: how the estimators are fitted.

    Raises:
        InputError: too few step tables.
    """
    if not samples:
        raise InputError("no measured rows to learn from", hint="arachne profile layers")
    points = [s.point for s in samples]
    passes = {
        which: fit_estimator(row_samples(points, which), layer_targets(samples, which), options)
        for which in PASSES
    }
    return LearnedLayers(name=name, passes=passes, error=error)


def _middle(kinds: Sequence[RowKind], kind: RowKind) -> int:
    rows = [r for r, k in enumerate(kinds) if k is kind]
    return rows[len(rows) // 2]
