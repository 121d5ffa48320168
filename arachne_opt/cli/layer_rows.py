"""Measured rows of large models: from the database to samples of the learned model."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from arachne_opt.costs.learned.arithmetic import ArithmeticOf
from arachne_opt.costs.learned.layer_features import PASSES, RowKind, row_point, row_samples
from arachne_opt.costs.learned.layers import LayerSample, layer_targets
from arachne_opt.device_types import DEVICE_TYPES
from arachne_opt.errors import InputError
from arachne_opt.pipeline.architecture import rows_of
from arachne_opt.settings import database_url
from arachne_opt.units import US_PER_S

if TYPE_CHECKING:
    from arachne_opt.costs.learned.samples import Floats
    from arachne_opt.records import Measurement

_FLOAT_BYTES = 4
_ROW = {RowKind.EMBEDDING: 0, RowKind.BLOCK: 1, RowKind.HEAD: -1}

_Key = tuple[str, str, str, int, int, int]


def measured_samples(
    models: Sequence[str], db_url: str | None, arithmetic: ArithmeticOf
) -> tuple[LayerSample, ...]:
    """Samples of what ``arachne profile layers`` measured.

    Raises:
        InputError: nothing was measured of the models.
    """
    from arachne_opt.db.store import PlanStore

    with PlanStore.open(database_url(db_url)) as store:
        rows = [m for m in store.measurements() if m.task.startswith("row ")]
    wanted = [m for m in rows if not models or m.model in models]
    if not wanted:
        what = "no measured rows in the database" + (f" of {', '.join(models)}" if models else "")
        raise InputError(what, hint="arachne profile layers, or --profiles FOLDER")
    return layer_samples(wanted, arithmetic)


def layer_samples(rows: Sequence[Measurement], arithmetic: ArithmeticOf) -> tuple[LayerSample, ...]:
    """A sample per kind of row and point; of repeated measurements the median counts."""
    from arachne_opt.executor.device_job import language_architecture

    times: dict[_Key, dict[str, list[float]]] = {}
    for m in rows:
        _, which, kind = m.task.split(" ", 2)
        key = (m.model, m.device_type, kind, m.degree, m.batch, m.width)
        times.setdefault(key, {}).setdefault(which, []).append(m.duration_us / US_PER_S)
    found = []
    for (model, device, kind, tp, batch, sequence), by_pass in times.items():
        if device not in DEVICE_TYPES or set(by_pass) != set(PASSES):
            continue
        shape = replace(language_architecture(model), sequence_length=sequence)
        sizes = rows_of(shape, dtype_bytes=_FLOAT_BYTES)
        row = _ROW[RowKind(kind)] % sizes.row_count
        point = row_point(
            sizes,
            row,
            RowKind(kind),
            tp=tp,
            microbatch=batch,
            device_type=DEVICE_TYPES[device],
            arithmetic=arithmetic(model, DEVICE_TYPES[device]),
        )
        seconds = {which: (float(np.median(values)),) for which, values in by_pass.items()}
        found.append(LayerSample(point=point, rows=(row,), seconds=seconds))
    return tuple(found)


def unsure_points(samples: Sequence[LayerSample], points: Sequence[tuple[int, int]]) -> Floats:
    """Summed disagreement of a committee about the rows at each (tp, micro-batch)."""
    from arachne_opt.costs.learned.active import disagreement

    kinds = {s.point.kind: s.point for s in samples}
    unsure = np.zeros(len(points))
    for which in PASSES:
        known = row_samples([s.point for s in samples], which)
        targets = layer_targets(samples, which)
        for base in kinds.values():
            asked = [replace(base, tp=tp, microbatch=count) for tp, count in points]
            unsure += disagreement(known, targets, row_samples(asked, which))
    return unsure
