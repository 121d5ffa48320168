"""The exact division of rows, and the quick test that comes before it."""

from itertools import combinations, pairwise

import numpy as np
import pytest

from arachne_opt.costs.pipeline.closed_form import pipeline_price
from arachne_opt.solvers.pipeline.columns import column_of
from arachne_opt.solvers.pipeline.partition import Templates
from arachne_opt.solvers.pipeline.search import TemplateSearch
from tests.solvers.pipeline.small import bench_of, random_templates

NO_LIMIT = np.inf


def all_divisions(batch, n):
    """Loads, fill and exchange of a template under every cut that its memory allows."""
    tables, stages = batch.tables, batch.stages
    for inner in combinations(range(1, tables.rows), stages - 1):
        cuts = (0, *inner, tables.rows)
        spans = list(pairwise(cuts))
        if any(batch.ends[i][n, a] < b for i, (a, b) in enumerate(spans)):
            continue
        options = batch.templates[n]
        loads = [
            tables.work_oab[options[i], a, b] + batch.ahead[i][n, b] + batch.back[i][n, a]
            for i, (a, b) in enumerate(spans)
        ]
        sync = max(tables.sync_oab[options[i], a, b] for i, (a, b) in enumerate(spans))
        yield cuts, max(loads), sum(loads), sync


@pytest.mark.parametrize("seed", range(8))
def test_a_division_has_the_least_fill_of_all_cuts_under_the_limits(seed):
    bench = bench_of(rows=7, seed=seed)
    for stages in (1, 2, 3, 4):
        templates = random_templates(bench, 4, stages, 6, seed)
        batch = Templates(bench.tables(4), np.array(templates))
        for n in range(batch.count):
            every = list(all_divisions(batch, n))
            loads = sorted(load for _, load, _, _ in every) or [1.0]
            syncs = sorted(sync for _, _, _, sync in every) or [1.0]
            for load, sync in ((NO_LIMIT, NO_LIMIT), (loads[len(loads) // 3], syncs[-1])):
                found = batch.divide(np.array([n]), np.array([load]), np.array([sync]))
                fills = [f for _, most, f, s in every if most <= load and s <= sync]
                assert found.fill_s[0] == pytest.approx(min(fills, default=np.inf), rel=1e-12)


@pytest.mark.parametrize("seed", range(8))
def test_the_quick_test_never_calls_a_load_possible_that_is_not(seed):
    bench = bench_of(rows=7, seed=seed)
    for stages in (1, 2, 3, 4):
        batch = Templates(bench.tables(4), np.array(random_templates(bench, 4, stages, 6, seed)))
        which = np.arange(batch.count)
        for load in (0.05, 0.15, 0.4, 1.0):
            limits = np.full(batch.count, load), np.full(batch.count, NO_LIMIT)
            quick = batch.reach(which, *limits)
            exact = batch.divide(which, *limits)
            assert (np.isfinite(exact.fill_s) >= np.isfinite(quick)).all()
            both = np.isfinite(quick)
            assert (exact.fill_s[both] <= quick[both] * (1 + 1e-12)).all()


@pytest.mark.parametrize("seed", range(6))
def test_a_column_costs_what_the_closed_form_says(seed):
    bench = bench_of(rows=6, seed=seed)
    tables = bench.tables(2)
    for template in random_templates(bench, 2, 3, 5, seed):
        search = TemplateSearch(tables, 5, bench.limits)
        found = search.best([template], np.inf)
        if found is None:
            continue
        column = column_of(found, tables.options, 2, tables.usage)
        price = pipeline_price(bench.costs, column.pipeline(5), 5)
        assert column.seconds(5) == pytest.approx(price.total_s, rel=1e-12)
        assert found.total_s == pytest.approx(price.total_s + bench.exchange.seconds((column,)))


@pytest.mark.parametrize("seed", range(6))
def test_the_search_finds_the_best_cut_of_a_template(seed):
    bench = bench_of(rows=7, seed=seed)
    tables, rounds = bench.tables(4), 6
    for template in random_templates(bench, 4, 3, 6, seed):
        batch = Templates(tables, np.array([template]))
        best = min(
            (
                (rounds - 1) * load
                + fill
                + sync
                + max(tables.update_oa[o, a] for o, a in zip(template, cuts, strict=False))
                for cuts, load, fill, sync in all_divisions(batch, 0)
            ),
            default=None,
        )
        found = TemplateSearch(tables, rounds, bench.limits).best([template], np.inf)
        assert (found is None) == (best is None)
        if found is not None:
            # The optimizer update is looked at afterwards only.
            assert best <= found.total_s * (1 + 1e-12)
            assert found.total_s <= best * 1.02


def test_templates_whose_exchange_has_no_link_are_no_find_and_no_warning():
    bench = bench_of(seed=1)
    tables = bench.tables(2)
    pair = next(o for o, option in enumerate(tables.options) if option.replicas == 2)
    search = TemplateSearch(tables, 4, bench.limits)
    assert search.best([(pair, pair)], np.inf) is not None
    tables.sync_oab[pair] = np.inf
    assert TemplateSearch(tables, 4, bench.limits).best([(pair, pair)], np.inf) is None
