"""Proofs about plans of several pipelines, against all sets of all pipelines."""

from itertools import combinations_with_replacement, product

import numpy as np
import pytest

from arachne_opt.pipeline.problem import PipelineOptions
from arachne_opt.solvers.pipeline import several_bound
from arachne_opt.solvers.pipeline.columns import Column
from arachne_opt.solvers.pipeline.priced_chains import PricedChains, Question
from arachne_opt.solvers.pipeline.several_bound import open_cases
from arachne_opt.solvers.pipeline.stage_facts import OptionStages
from tests.solvers.pipeline.small import bench_of
from tests.solvers.pipeline.test_single_bound import chains_of, parts, pipelines

POOLS = ("A100-40=1,V100-16=1", "A100-40=3", "A100-40=2,V100-16=1")
STAGES = 2
SAMPLES = 6


def small_bench(seed):
    options = PipelineOptions(max_stages=STAGES, allow_excess=True)
    return bench_of(POOLS[seed % 3], rows=3, batch=SAMPLES, seed=seed, options=options)


def columns_of(bench, batch):
    """All pipelines of a batch."""
    for tables, template, cuts in pipelines(bench, batch, STAGES):
        load, fill, update, _ = parts(tables, template, cuts)
        yield Column(
            batch=batch,
            options=tuple(tables.options[o] for o in template),
            cuts=cuts,
            load_s=load,
            fill_s=fill,
            update_s=update,
            used=tables.usage[list(template)].sum(axis=0),
        )


def least_s(columns):
    """Least time of the pipelines for all samples, by trying all numbers of micro-batches."""
    found = np.inf
    for counts in product(*(range(1, SAMPLES // c.batch + 2) for c in columns)):
        if sum(c.batch * n for c, n in zip(columns, counts, strict=True)) >= SAMPLES:
            slowest = max(c.seconds(n) for c, n in zip(columns, counts, strict=True))
            found = min(found, slowest)
    return found


def best_of_several(bench):
    """Cautious seconds of the best plan of two or more pipelines."""
    every = [c for b in range(1, SAMPLES + 1) for c in columns_of(bench, b)]
    best = np.inf
    for count in range(2, int(bench.place_limits.sum()) + 1):
        for chosen in combinations_with_replacement(every, count):
            if (np.sum([c.used for c in chosen], axis=0) <= bench.limits).all():
                seconds = least_s(chosen)
                if seconds < best:
                    best = min(best, seconds + bench.exchange.seconds(chosen))
    return best


@pytest.mark.parametrize("seed", [0, 2, pytest.param(1, marks=pytest.mark.slow)])
def test_a_plan_is_never_excluded_and_what_is_well_below_all_plans_is(seed):
    bench = small_bench(seed)
    best = best_of_several(bench)
    assert list(open_cases(bench, OptionStages(bench), best * (1 + 1e-6), lambda: False)) != []
    assert list(open_cases(bench, OptionStages(bench), best * 0.97, lambda: False)) == []


@pytest.mark.parametrize("seed", range(2))
def test_the_least_price_is_that_of_the_best_of_all_pipelines_or_below_it(seed):
    bench, batch = small_bench(seed), 2
    every = list(columns_of(bench, batch))
    places = bench.space.device_rows()
    chains = PricedChains(OptionStages(bench).priced(batch), bench.space.in_stages)
    allowed = np.ones_like(chains.exchange_s, dtype=bool)
    loads = np.array(sorted(c.load_s for c in every)[:: max(1, len(every) // 6)]) * (1 + 1e-12)
    prices = np.array([1.0, 0.7])[: len(places)]
    weight, free = np.full(len(loads), 2.5), np.full(len(loads), np.inf)
    answer = chains.least(Question(weight, prices, loads, free, allowed))
    for n, load in enumerate(loads):
        alike = [c for c in every if c.load_s <= load]
        best = min(2.5 * c.fill_s + float(c.used[places] @ prices) for c in alike)
        assert answer.price[n] <= best * (1 + 1e-9)
        chain = answer.chain(n)
        assert chain.load_s <= load
        assert 2.5 * chain.fill_s + chain.used @ prices == pytest.approx(answer.price[n])


def test_least_fills_fall_with_the_devices_and_end_at_the_least_of_all():
    bench = small_bench(0)
    chains = chains_of(bench, 1, exact=True)
    fills = chains.least_fills_s(np.inf, np.inf, np.inf)
    assert fills.shape == tuple(bench.place_limits + 1)
    assert fills.flat[-1] == chains.least_fill_s(np.inf, np.inf, np.inf)
    assert np.isinf(fills.flat[0])
    columns = list(columns_of(bench, 1))
    for devices in np.ndindex(fills.shape):
        mine = [c for c in columns if (c.used[bench.space.device_rows()] <= devices).all()]
        assert fills[devices] == pytest.approx(min((c.fill_s for c in mine), default=np.inf))


def test_a_search_that_is_over_leaves_cases_open():
    bench = small_bench(0)
    assert (
        list(open_cases(bench, OptionStages(bench), 1e-6, lambda: True)) == []
    )  # closed by the work alone
    assert list(open_cases(bench, OptionStages(bench), 1e6, lambda: True)) != []


@pytest.mark.parametrize("seed", range(6))
def test_no_plan_has_more_pipelines_than_the_proof_looks_at(seed):
    bench = small_bench(seed)
    used = {tuple(c.used) for b in range(1, SAMPLES + 1) for c in columns_of(bench, b)}
    places = tuple(range(len(bench.space.places)))
    most = several_bound._Proof(bench, OptionStages(bench), np.inf, lambda: False).most_pipelines(
        places
    )
    assert 1 <= most <= bench.place_limits.sum()
    for chosen in combinations_with_replacement(sorted(used), most + 1):
        assert not (np.sum(chosen, axis=0) <= bench.limits).all()
