"""The analytic core: factors of physical terms."""

import numpy as np
import pytest

from arachne_opt.costs.learned.core import CorePrior, core_from_json, fit_core
from arachne_opt.costs.learned.samples import Samples, Targets
from arachne_opt.errors import InputError


def samples(terms: np.ndarray, labels: list[str]) -> Samples:
    return Samples(
        terms=terms,
        scales=np.array([[label] * terms.shape[1] for label in labels]),
        rising=np.log(np.maximum(1e-9, terms[:, :1])),
        free=np.zeros((len(terms), 1)),
        cells=tuple(labels),
        unseen={"type": tuple(labels)},
    )


def targets(values: np.ndarray) -> Targets:
    count = len(values)
    return Targets(values=values, groups=tuple(map(str, range(count))), weights=np.ones(count))


@pytest.fixture
def terms() -> np.ndarray:
    return np.random.default_rng(0).uniform(0.1, 10, size=(60, 3))


def test_known_factors_are_found(terms: np.ndarray) -> None:
    factors = np.array([2.0, 0.3, 5.0])
    asked = samples(terms, ["a"] * 60)
    core = fit_core(asked, targets(terms @ factors), CorePrior(common=1e-6, own=None))
    assert np.exp(core.theta) == pytest.approx(factors, rel=0.01)


def test_a_label_has_its_own_efficiency_and_a_new_one_the_common(terms: np.ndarray) -> None:
    slow = np.where(np.arange(60) % 2, 1.5, 1.0)
    values = slow * (terms @ np.array([2.0, 0.3, 5.0]))
    labels = ["slow" if i % 2 else "fast" for i in range(60)]
    core = fit_core(samples(terms, labels), targets(values), CorePrior(common=1e-6, own=0.01))
    known = np.exp(core.logs(samples(terms, labels)))
    assert np.mean(abs(known / values - 1)) < 0.03
    new = np.exp(core.logs(samples(terms, ["new"] * 60))) / (terms @ np.array([2.0, 0.3, 5.0]))
    assert new.min() > 1.0
    assert new.max() < 1.5


def test_more_work_never_takes_less_time(terms: np.ndarray) -> None:
    draw = np.random.default_rng(1)
    core = fit_core(samples(terms, ["a"] * 60), targets(draw.uniform(1, 9, 60)))
    more = core.logs(samples(terms * draw.uniform(1, 2, terms.shape), ["a"] * 60))
    assert (more >= core.logs(samples(terms, ["a"] * 60))).all()


def test_json_gives_an_equal_core(terms: np.ndarray) -> None:
    asked = samples(terms, ["a", "b"] * 30)
    core = fit_core(asked, targets(terms.sum(axis=1)))
    again = core_from_json(core.to_json())
    assert again.logs(asked) == pytest.approx(core.logs(asked), abs=1e-5)


def test_points_without_work_or_with_strange_numbers_are_refused(terms: np.ndarray) -> None:
    with pytest.raises(InputError, match="terms of work"):
        samples(np.vstack([terms[:1], np.zeros((1, 3))]), ["a", "b"])
    with pytest.raises(InputError, match="positive"):
        targets(np.array([1.0, 0.0]))
