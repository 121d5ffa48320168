"""The best sets of columns by dynamic programming, against all sets."""

from itertools import combinations_with_replacement

import numpy as np
import pytest

from arachne_opt.solvers.pipeline import knapsack
from arachne_opt.solvers.pipeline.knapsack import Sack, fill


def most_samples(sack, cells, count):
    """Most samples of any set of so many columns, -1 where none fits."""
    best = -1
    for chosen in combinations_with_replacement(range(len(sack.samples)), count):
        if (sack.used[list(chosen)].sum(axis=0) <= cells).all():
            best = max(best, int(sack.samples[list(chosen)].sum()))
    return best


@pytest.mark.parametrize("small", [0, 10**9], ids=["column by column", "all at once"])
@pytest.mark.parametrize("places", [1, 2, 3])
def test_sets_train_the_most_of_all_sets_of_their_size(monkeypatch, small, places):
    monkeypatch.setattr(knapsack, "_SMALL", small)
    rng = np.random.default_rng(places)
    for _ in range(15):
        cells = rng.integers(1, 6, places)
        used = rng.integers(0, 4, (6, places)) + np.eye(6, places, dtype=np.int64)
        sack = Sack(used, rng.integers(0, 20, 6))
        wanted = int(rng.integers(1, 40))
        sets = fill(sack, cells, wanted, 4, lambda: False)
        trained = {len(s): int(sack.samples[list(s)].sum()) for s in sets}
        assert len(trained) == len(sets)
        for s in sets:
            assert (used[list(s)].sum(axis=0) <= cells).all()
        for count in range(1, 5):
            best = most_samples(sack, cells, count)
            # A column that trains nothing, or no more than a smaller one, is of no use.
            if best >= wanted and best > most_samples(sack, cells, count - 1):
                assert trained[count] == best


def test_a_search_that_is_over_has_no_sets():
    sack = Sack(np.array([[1]]), np.array([5]))
    assert fill(sack, np.array([3]), 1, 3, lambda: True) == []
    assert fill(sack, np.array([3]), 15, 3, lambda: False) == [(0, 0, 0)]
