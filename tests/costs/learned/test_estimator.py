"""Ensembles around the core: monotone, calibrated, modest outside of what they have seen."""

from dataclasses import replace

import numpy as np
import pytest

from arachne_opt.costs.learned.cascade import points_of, targets_of
from arachne_opt.costs.learned.cascade_features import TaskPoint, task_samples
from arachne_opt.costs.learned.estimator import Estimator, estimator_from_json
from arachne_opt.costs.learned.evaluation import (
    ANALYTIC,
    BOOSTING,
    LEARNED,
    NEIGHBOUR,
    fold_masks,
    held_out,
)
from arachne_opt.costs.learned.fitting import fit_estimator, folds_of
from arachne_opt.costs.learned.samples import Samples, Targets
from arachne_opt.device_types import DEVICE_TYPES
from arachne_opt.errors import InputError
from arachne_opt.models import model_spec
from arachne_opt.workload import Shape
from tests.costs.learned_builders import QUICK, made_up

WAN = model_spec("wan2.1-1.3b")
DEGREES = (1, 2, 4)


def learned_from(noise: float = 0.05, seed: int = 0) -> tuple[Samples, Targets]:
    rows = [m for m in made_up(noise=noise, seed=seed) if m.task == "denoise"]
    samples = task_samples(WAN, "denoise", points_of(rows), DEGREES)
    return samples, targets_of(rows, [m.duration_us / 1e6 for m in rows])


@pytest.fixture(scope="module")
def fitted() -> Estimator:
    return fit_estimator(*learned_from(), QUICK)


def asked(frames: list[int], degree: int = 2, kind: str = "H100-80", clips: int = 1) -> Samples:
    points = [
        TaskPoint(
            clips=clips,
            shape=Shape(frames=f, height=256, width=256),
            text_tokens=0,
            degree=degree,
            device_type=DEVICE_TYPES[kind],
        )
        for f in frames
    ]
    return task_samples(WAN, "denoise", points, DEGREES)


def test_predictions_are_near_what_was_measured(fitted: Estimator) -> None:
    samples, targets = learned_from()
    assert np.mean(abs(fitted.predict(samples).values / targets.values - 1)) < 0.08


@pytest.mark.parametrize("degree", DEGREES)
def test_no_prediction_falls_with_tokens_or_clips(degree: int) -> None:
    # Noise of a third: whoever follows it falls somewhere.
    wild = fit_estimator(*learned_from(noise=0.33, seed=3), QUICK)
    frames = asked(list(range(5, 50, 4)), degree)
    members = wild.members(frames, wild.core.logs(frames))
    assert (np.diff(members, axis=1) >= 0).all()
    one, two = (asked([17], degree, clips=c) for c in (1, 2))
    rows = [wild.members(s, wild.core.logs(s)) for s in (one, two)]
    assert (rows[1] >= rows[0]).all()


def test_quantiles_rise_and_enclose_the_middle(fitted: Estimator) -> None:
    samples = asked([9, 17, 33])
    low, high = (fitted.quantile(samples, q).values for q in (0.05, 0.95))
    middle = fitted.predict(samples).values
    assert (low < middle).all()
    assert (middle < high).all()
    with pytest.raises(InputError, match="between 0 and 1"):
        fitted.quantile(samples, 1.0)


def test_the_core_speaks_outside_of_the_support_and_says_why(fitted: Estimator) -> None:
    far, other = asked([481]), asked([17], kind="A100-80")
    assert fitted.predict(asked([17])).places == ("near",)
    assert fitted.predict(far).places == ("range",)
    assert fitted.predict(other).places == ("type",)
    for samples in (far, other):
        assert fitted.predict(samples).logs == pytest.approx(fitted.core.logs(samples))


def test_an_unknown_type_has_wider_intervals(fitted: Estimator) -> None:
    def width(samples: Samples) -> float:
        return float(fitted.quantile(samples, 0.95).logs[0] - fitted.predict(samples).logs[0])

    assert width(asked([17], kind="A100-80")) > width(asked([17]))


def test_equal_input_gives_equal_models_and_json_keeps_them(fitted: Estimator) -> None:
    again = fit_estimator(*learned_from(), QUICK)
    assert again.to_json() == fitted.to_json()
    read = estimator_from_json(fitted.to_json())
    samples = asked([9, 21, 49, 481])
    for q in (None, 0.9):
        assert read.quantile(samples, q).logs == pytest.approx(
            fitted.quantile(samples, q).logs, abs=1e-4
        )


def test_what_is_held_out_changes_nothing(fitted: Estimator) -> None:
    samples, targets = learned_from()
    out = np.array([g == "1x17x256x256" for g in targets.groups])
    spoiled = replace(targets, values=np.where(out, 1e6, targets.values))
    honest = held_out(samples, targets, [~out], QUICK)
    fooled = held_out(samples, spoiled, [~out], QUICK)
    for method in (LEARNED, ANALYTIC, NEIGHBOUR):
        assert fooled.predicted[method] == pytest.approx(honest.predicted[method])
    assert (fooled.high == honest.high).all()
    assert fooled.coverage == 0.0


def test_intervals_cover_what_they_promise() -> None:
    samples, targets = learned_from(noise=0.1, seed=5)
    found = held_out(samples, targets, fold_masks(targets, 0), QUICK, baselines=False)
    assert 0.75 <= found.coverage <= 1.0
    assert found.error() < 0.2


def test_boosting_is_among_the_baselines_where_scikit_learn_is() -> None:
    pytest.importorskip("sklearn")
    samples, targets = learned_from()
    found = held_out(samples, targets, fold_masks(targets, 0, 2), QUICK)
    assert found.error() < found.error(BOOSTING)
    assert found.error() < found.error(NEIGHBOUR)
    assert set(found.to_json()["errors"]) == set(found.predicted)


def test_folds_hold_groups_together_and_are_even() -> None:
    fold = folds_of([str(i) for i in range(10)] * 3, 5, seed=1)
    assert sorted(fold.values()) == sorted([0, 1, 2, 3, 4] * 2)


def test_two_shapes_are_too_few() -> None:
    samples, targets = learned_from()
    few = np.array([g in ("1x5x256x256", "1x9x256x256") for g in targets.groups])
    with pytest.raises(InputError, match="too few"):
        held_out(samples, targets, [few], QUICK)
