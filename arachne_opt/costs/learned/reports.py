"""Held-out reports that are kept with a learned model."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from arachne_opt.costs.learned.cascade import learnable, points_of, targets_of
from arachne_opt.costs.learned.cascade_features import TASKS, task_samples
from arachne_opt.costs.learned.evaluation import fold_masks, has_boosting, held_out
from arachne_opt.costs.learned.fitting import FitOptions
from arachne_opt.costs.learned.layer_features import PASSES, row_samples
from arachne_opt.costs.learned.layers import LayerSample, layer_targets
from arachne_opt.models import ModelSpec
from arachne_opt.records import Measurement
from arachne_opt.units import US_PER_S

_FEWEST_SHAPES = 5
_NO_BOOSTING = "gradient boosting is left out: scikit-learn is not installed (extra dev)"


def layer_options(seed: int) -> FitOptions:
    """Smaller than for tasks: there are ten times as many samples."""
    return FitOptions(members=3, decays=(1e-3,), folds=4, seed=seed)


def cascade_report(
    spec: ModelSpec, measurements: Sequence[Measurement], options: FitOptions
) -> dict[str, Any]:
    """Errors by task, shapes held out in five folds."""
    parts, notes = {}, _notes()
    for task in TASKS:
        rows = [m for m in learnable(measurements) if m.task == task]
        if not rows:
            continue
        targets = targets_of(rows, [m.duration_us / US_PER_S for m in rows])
        if len(set(targets.groups)) < _FEWEST_SHAPES:
            notes.append(f"{task}: fewer than {_FEWEST_SHAPES} shapes, no error can be stated")
            continue
        degrees = sorted({m.degree for m in rows})
        samples = task_samples(spec, task, points_of(rows), degrees)
        found = held_out(samples, targets, fold_masks(targets, options.seed), options)
        parts[task] = found.to_json()
    return {"unit": "s", "held_out": "shapes, in five folds", "parts": parts, "notes": notes}


def layer_report(
    samples: Sequence[LayerSample], options: FitOptions
) -> tuple[dict[str, Any], float]:
    """Errors by pass, step tables held out in five folds; and that of forward and backward."""
    parts, works = {}, []
    points = [s.point for s in samples]
    for which in PASSES:
        targets = layer_targets(samples, which)
        masks = fold_masks(targets, options.seed)
        found = held_out(row_samples(points, which), targets, masks, options)
        parts[which] = found.to_json()
        if which != "update":
            works.append((found.predicted["learned"], found.measured))
    predicted, measured = (np.sum([w[i] for w in works], axis=0) for i in (0, 1))
    error = float(np.mean(abs(predicted / measured - 1)))
    report = {"unit": "s", "held_out": "step tables, in five folds", "parts": parts}
    return {**report, "notes": _notes()}, error


def _notes() -> list[str]:
    return [] if has_boosting() else [_NO_BOOSTING]
