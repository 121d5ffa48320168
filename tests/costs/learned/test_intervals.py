"""Conformal scores."""

import numpy as np
import pytest

from arachne_opt.costs.learned.intervals import Scores
from arachne_opt.errors import InputError


def test_ranks_are_those_of_split_conformal_intervals() -> None:
    scores = Scores.of([3.0, 1.0, 2.0, 5.0, 4.0, 6.0, 7.0, 8.0, 9.0])
    assert scores.quantile(0.5) == 5.0
    assert scores.quantile(0.9) == 9.0
    assert scores.quantile(0.1) == 1.0
    assert scores.quantile(0.99) == 9.0


def test_new_points_stay_inside_as_often_as_promised() -> None:
    draw = np.random.default_rng(0)
    inside = []
    for _ in range(400):
        scores = Scores.of(draw.normal(size=40))
        inside.append(scores.quantile(0.05) <= draw.normal() <= scores.quantile(0.95))
    assert 0.87 <= np.mean(inside) <= 0.96


def test_many_scores_are_thinned_and_keep_their_quantiles() -> None:
    scores = Scores.of(np.random.default_rng(1).normal(size=20_000))
    assert len(scores.values) == 400
    assert scores.quantile(0.9) == pytest.approx(1.28, abs=0.06)


@pytest.mark.parametrize("q", [0.0, 1.0, -1.0])
def test_a_quantile_is_a_share(q: float) -> None:
    with pytest.raises(InputError):
        Scores.of([1.0]).quantile(q)
