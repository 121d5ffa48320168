"""Proofs about plans of one pipeline, against all templates with all cuts."""

from itertools import combinations, product

import numpy as np
import pytest

from arachne_opt.pipeline.problem import PipelineOptions
from arachne_opt.solvers.pipeline.chains import Chains
from arachne_opt.solvers.pipeline.single_bound import open_batches, open_exchanges
from arachne_opt.solvers.pipeline.stage_facts import OptionStages
from tests.solvers.pipeline.small import bench_of

POOLS = ("A100-40=2,V100-16=2", "A100-40=3", "V100-16=2,A100-40=1")
STAGES = 3


def small_bench(seed):
    options = PipelineOptions(max_stages=STAGES, max_pipelines=1, allow_excess=True)
    return bench_of(POOLS[seed % 3], rows=4, batch=12, seed=seed, options=options)


def chains_of(bench, batch, *, exact):
    limits = bench.place_limits
    split = OptionStages(bench).split(batch, limits)
    return Chains(split, limits, bench.space.in_stages, exact=exact)


def pipelines(bench, batch, most_stages):
    """Tables, template and cuts of all pipelines of a batch that fit the devices and memory."""
    tables, rows = bench.tables(batch), bench.costs.row_count
    options = range(len(tables.options))
    tables.fill(np.array(options, dtype=np.int64))
    for stages in range(1, most_stages + 1):
        cuts_of = [(0, *inner, rows) for inner in combinations(range(1, rows), stages - 1)]
        for template, cuts in product(product(options, repeat=stages), cuts_of):
            used = tables.usage[list(template)].sum(axis=0)
            if (used <= bench.limits).all() and fits(tables, template, cuts):
                yield tables, template, cuts


def priced(bench, batch):
    """Load, fill, update and exchange of all pipelines of a batch, from the tables."""
    for pipeline in pipelines(bench, batch, STAGES):
        yield parts(*pipeline)


def fits(tables, template, cuts):
    last = len(template)
    ends = (tables.ends(np.array([o]), last - i)[0, cuts[i]] for i, o in enumerate(template))
    return all(end >= cuts[i + 1] for i, end in enumerate(ends))


def parts(tables, template, cuts):
    loads = [tables.work_oab[o, a, b] for o, a, b in zip(template, cuts, cuts[1:], strict=False)]
    for i in range(len(template) - 1):
        pair = (np.array([template[i]]), np.array([template[i + 1]]))
        ahead, back = (x[0, cuts[i + 1]] for x in tables.cuts(*pair))
        loads[i] += ahead
        loads[i + 1] += back * (2 if i + 2 == len(template) else 1)
    spans = list(zip(template, cuts, cuts[1:], strict=False))
    update = max(tables.update_oa[o, a] for o, a, _ in spans)
    return max(loads), sum(loads), update, max(tables.sync_oab[o, a, b] for o, a, b in spans)


@pytest.mark.parametrize("seed", range(3))
def test_the_least_fill_is_that_of_the_best_of_all_pipelines(seed):
    bench, batch = small_bench(seed), (2, 4, 3)[seed % 3]
    every = list(priced(bench, batch))
    exact, quick = (chains_of(bench, batch, exact=e) for e in (True, False))
    loads = sorted(p[0] for p in every)
    exchanges = sorted(p[3] for p in every)
    for load, exchange in product(loads[:: max(1, len(loads) // 5)], (exchanges[0], np.inf)):
        fills = [f for most, f, _, sync in every if most <= load and sync <= exchange]
        found = exact.least_fill_s(load, exchange, np.inf)
        assert found == pytest.approx(min(fills, default=np.inf), rel=1e-12)
        assert quick.least_fill_s(load, exchange, np.inf) <= found * (1 + 1e-12)


@pytest.mark.parametrize("seed", range(3))
def test_a_plan_is_never_excluded_and_what_is_well_below_all_plans_is(seed):
    bench, batch = small_bench(seed), (2, 4, 3)[seed]
    rounds = -(-12 // batch)
    best = min((rounds - 1) * load + fill + u + x for load, fill, u, x in priced(bench, batch))
    assert open_exchanges(bench, OptionStages(bench), batch, best * (1 + 1e-9)) != []
    assert open_exchanges(bench, OptionStages(bench), batch, best * 0.98) == []


def test_a_search_that_is_over_leaves_all_batches_open():
    bench = small_bench(0)
    assert list(
        open_batches(bench, OptionStages(bench), 1e-6, lambda: True)
    ) == bench.ranking.batches(12)
    assert all(
        open_exchanges(bench, OptionStages(bench), b, 1e-6) == [] for b in bench.ranking.batches(12)
    )
