"""Shares of the global batch among pipelines."""

import random
from itertools import product

import numpy as np
import pytest

from arachne_opt.solvers.pipeline.columns import Column
from arachne_opt.solvers.pipeline.shares import covering_counts, exact_counts


def random_column(rng):
    return Column(
        batch=rng.choice((1, 2, 3, 4)),
        options=(),
        cuts=(0, 1),
        load_s=rng.uniform(0.5, 2),
        fill_s=rng.uniform(0.5, 4),
        update_s=rng.uniform(0, 0.5),
        used=np.zeros(1, dtype=np.int64),
    )


def slowest(columns, counts):
    return max(c.seconds(n) for c, n in zip(columns, counts, strict=True))


def by_brute_force(columns, samples, *, exact):
    ranges = [range(1, samples + 1) for _ in columns]
    done = [
        (slowest(columns, counts), counts)
        for counts in product(*ranges)
        if (total := sum(c.batch * n for c, n in zip(columns, counts, strict=True))) == samples
        or (not exact and total > samples)
    ]
    return min(done, default=None)


@pytest.mark.parametrize("seed", range(30))
def test_counts_are_the_best_of_all(seed):
    rng = random.Random(seed)
    columns = [random_column(rng) for _ in range(rng.randint(1, 3))]
    samples = rng.randint(4, 12)
    best = by_brute_force(columns, samples, exact=True)
    counts = exact_counts(columns, samples)
    assert bool(counts) == (best is not None)
    if counts:
        assert sum(c.batch * n for c, n in zip(columns, counts, strict=True)) == samples
        assert slowest(columns, counts) == pytest.approx(best[0])
    covering = covering_counts(columns, samples)
    if covering:
        assert sum(c.batch * n for c, n in zip(columns, covering, strict=True)) >= samples
        best = by_brute_force(columns, samples, exact=False)
        assert slowest(columns, covering) == pytest.approx(best[0])
