"""All masters find the same best set of columns, and so does brute force."""

import math

import pytest

from arachne_opt.solvers.pipeline.master import Master
from arachne_opt.solvers.pipeline.master_cpsat import CpSatMaster
from arachne_opt.solvers.pipeline.master_milp import MilpMaster
from tests.solvers.pipeline.small import EXACT, EXCESS, bench_of, best_set, random_columns

BACKENDS = (CpSatMaster(), MilpMaster("highs"), MilpMaster("cbc"))
_START_S = 1e6


def best_by(backend, bench, columns):
    """The price that a master proves to be the lowest."""
    best = [_START_S]

    def offer(candidate):
        better = candidate.total_s < best[0]
        best[0] = min(best[0], candidate.total_s)
        return better

    proven = Master(bench, columns, backend, lambda: best[0], offer).run(lambda: 60.0)
    assert proven
    return best[0] if best[0] < _START_S else math.inf


def small_bench(seed, options):
    pool = ("A100-40=3,V100-16=3", "A100-40=4", "V100-16=2+1,A100-40=2", "A100-40=2,V100-16=4")
    return bench_of(pool[seed % 4], rows=4, batch=6 + seed % 5, seed=seed, options=options)


@pytest.mark.parametrize("seed", range(10))
@pytest.mark.parametrize("options", [EXACT, EXCESS], ids=["exact", "excess"])
def test_masters_agree_with_brute_force(seed, options):
    bench = small_bench(seed, options)
    columns = random_columns(bench, 4, seed)
    expected = best_set(bench, columns, options.max_pipelines)
    for backend in BACKENDS[: 3 if seed < 4 else 1]:
        assert best_by(backend, bench, columns) == pytest.approx(expected, rel=1e-7), backend.name


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(100, 200))
def test_masters_agree_on_random_problems(seed):
    bench = small_bench(seed, EXACT if seed % 2 else EXCESS)
    columns = random_columns(bench, 6, seed)
    prices = [best_by(backend, bench, columns) for backend in BACKENDS]
    assert prices[1:] == pytest.approx(prices[:1] * 2, rel=1e-7)
