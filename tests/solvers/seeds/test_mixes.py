"""Mixes of stages: they fit the devices, and their estimates foretell exact prices."""

from collections import Counter
from itertools import product

import numpy as np
import pytest

from arachne_opt.costs.pipeline.tables import TableCosts
from arachne_opt.solvers.pipeline.search import TemplateSearch
from arachne_opt.solvers.pipeline.singles import Start
from arachne_opt.solvers.pipeline.workbench import Workbench
from arachne_opt.solvers.seeds.cells import grid
from arachne_opt.solvers.seeds.climbs import Patience, quick_climb
from arachne_opt.solvers.seeds.kinds import kinds_of
from arachne_opt.solvers.seeds.mixes import Mixes
from arachne_opt.solvers.seeds.orders import Orders
from tests.pipeline_builders import small_problem

POOLS = ("A100-40=4,V100-16=4", "A100-40=3+5,V100-16=4+1", "A100-40=4,V100-16=2+3,T4=4")
BATCHES = (1, 2, 4, 6)


def made(pool, **options):
    problem = small_problem(pool, rows=10, batch=64, **options)
    bench = Workbench(problem, TableCosts(problem))
    return bench, kinds_of(bench.space, grid(bench.space))


def templates(bench, kinds, mixes, batch):
    option = bench.option_of_atom(bench.tables(batch))
    number = {atom: a for a, atom in enumerate(bench.space.atoms)}
    return [tuple(int(option[number[kinds.facts.atoms[a]]]) for a in m.atoms) for m in mixes]


def exact(bench, template, batch):
    rounds = -(-bench.problem.global_batch // batch)
    search = TemplateSearch(bench.tables(batch), rounds, bench.limits)
    return Start(search, found) if (found := search.best([template], np.inf)) else None


@pytest.mark.parametrize("pool", POOLS)
@pytest.mark.parametrize("batch", BATCHES)
def test_the_stages_of_a_mix_fit_the_devices(pool, batch):
    bench, kinds = made(pool)
    mixes = Mixes(bench.space, kinds).of_batch(batch)
    assert mixes
    usage = bench.tables(batch).usage
    for template in templates(bench, kinds, mixes, batch):
        assert min(template) >= 0
        assert (usage[list(template)].sum(axis=0) <= bench.limits).all()


@pytest.mark.parametrize("pool", POOLS)
def test_orders_keep_the_stages_and_foretell_exact_prices(pool):
    bench, kinds = made(pool)
    ratios, best = [], []
    for batch in (2, 4):
        mixes = Mixes(bench.space, kinds).of_batch(batch)
        ordered = Orders(bench.space, kinds).of(mixes)[:40:4]
        assert {tuple(sorted(m.atoms)) for m in ordered} <= {m.atoms for m in mixes}
        for mix, template in zip(ordered, templates(bench, kinds, ordered, batch), strict=True):
            start = exact(bench, template, batch)
            if start is not None:
                ratios.append(start.found.total_s / mix.estimate_s)
                best.append((mix.estimate_s, start.found.total_s))
    assert 0.9 < np.median(ratios) < 1.2
    # Among the five best estimates is a plan next to the best of all.
    assert min(s for _, s in sorted(best)[:5]) <= 1.1 * min(s for _, s in best)


def test_no_two_stages_hold_all_rows_under_a_lower_load():
    bench, kinds = made("A100-40=3+5")
    mixes = Mixes(bench.space, kinds)
    found = [m for m in mixes.of_batch(2) if len(m.atoms) == 2]
    facts = kinds.facts

    def rows(atoms, load_s):
        return sum(np.floor((load_s - facts.send_s[a]) / facts.row_s[a] + 1e-6) for a in atoms)

    usage = bench.tables(2).usage
    options = [(a, o) for a, o in enumerate(bench.option_of_atom(bench.tables(2))) if o >= 0]
    least_s = min(m.load_s for m in found)
    for (a, o), (b, p) in product(options, repeat=2):
        if (usage[[o, p]].sum(axis=0) <= bench.limits).all():
            # The steps of the grid are 2 %.
            assert rows((a, b), 0.97 * least_s) < 8


def test_mixes_that_take_clearly_longer_than_a_known_plan_are_left_out():
    bench, kinds = made(POOLS[0])
    mixes = Mixes(bench.space, kinds)
    best = min(m.estimate_s for m in mixes.of_batch(4))
    assert mixes.of_batch(4, 0.5 * best) == []
    few = mixes.of_batch(4, 1.01 * best)
    assert min(m.estimate_s for m in few) == pytest.approx(best)


def test_a_climb_only_improves_and_ends():
    bench, kinds = made(POOLS[2])
    mixes = Orders(bench.space, kinds).of(Mixes(bench.space, kinds).of_batch(4))
    start = exact(bench, templates(bench, kinds, mixes[-1:], 4)[0], 4)
    seconds = [s.found.total_s for s in quick_climb(bench, start, lambda: False)]
    assert seconds
    assert seconds == sorted(seconds, reverse=True)
    assert seconds[0] < start.found.total_s


def test_patience_ends_after_its_questions():
    patience = Patience(3, lambda: False)
    assert Counter(patience() for _ in range(6)) == {False: 3, True: 3}
    assert patience.ended()
    assert Patience(3, lambda: True)()
