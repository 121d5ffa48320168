"""Stages that stand for all stages, against pipelines of stages of any kinds in any order."""

from itertools import product

import numpy as np
import pytest

from arachne_opt.costs.pipeline.tables import TableCosts
from arachne_opt.errors import InputError
from arachne_opt.pipeline.problem import PipelineOptions
from arachne_opt.pipeline.template import ReplicaBlock
from arachne_opt.solvers.pipeline.chains import Chains
from arachne_opt.solvers.pipeline.options import StageOption
from arachne_opt.solvers.pipeline.priced_chains import PricedChains, Question
from arachne_opt.solvers.pipeline.several_bound import open_cases
from arachne_opt.solvers.pipeline.single_bound import open_exchanges
from arachne_opt.solvers.pipeline.stage_mixes import StageMixes
from arachne_opt.solvers.pipeline.tables import BatchTables
from arachne_opt.solvers.pipeline.workbench import Workbench
from tests.pipeline_builders import small_problem
from tests.solvers.pipeline.small import bench_of
from tests.solvers.pipeline.test_several_bound import best_of_several
from tests.solvers.pipeline.test_single_bound import parts, pipelines

# Pools, batches, rows and stages: with every ring of kinds as a stage there are many pipelines.
CASES = (("A100-40=2,V100-16=2", 2, 3, 3), ("A100-40=1,V100-16=3", 4, 3, 2), ("V100-16=3", 3, 4, 2))


class AnyStages(Workbench):
    """All rings of replicas of all kinds as stages."""

    def tables(self, batch, pipelines=1):
        """Of all stages, whether a planner would think of them or not."""
        if (batch, pipelines) not in self._tables:
            options = list(self._every(batch))
            self._tables[batch, pipelines] = BatchTables(self.space, batch, options)
        return self._tables[batch, pipelines]

    def _every(self, batch):
        for m in sorted({atom.microbatch for atom in self.space.atoms}):
            kinds = [atom.kind for atom in self.space.atoms if atom.microbatch == m]
            for ring in product(kinds, repeat=batch // m if batch % m == 0 else 0):
                blocks = tuple(ReplicaBlock(kind=kind, count=1) for kind in ring)
                if blocks and (self.space.usage(blocks) <= self.limits).all():
                    yield StageOption(blocks, m)


def case(number, batch=12, **asked):
    pool, of_stage, rows, stages = CASES[number]
    options = PipelineOptions(max_stages=stages, allow_excess=True)
    problem = small_problem(pool, rows=rows, batch=batch, seed=number, options=options, **asked)
    return AnyStages(problem, TableCosts(problem)), of_stage, stages


def every_pipeline(bench, batch, stages):
    """Load, fill, update, exchange and devices of all pipelines."""
    for tables, template, cuts in pipelines(bench, batch, stages):
        used = tables.usage[list(template)].sum(axis=0)[bench.space.device_rows()]
        yield (*parts(tables, template, cuts), used)


@pytest.mark.parametrize("number", range(len(CASES)))
def test_no_pipeline_of_any_stages_costs_less_than_those_that_stand_for_it(number):
    bench, batch, stages = case(number)
    every = list(every_pipeline(bench, batch, stages))
    chains = PricedChains(StageMixes(bench).priced(batch), bench.space.in_stages)
    allowed = np.ones_like(chains.exchange_s, dtype=bool)
    loads = np.array(sorted(p[0] for p in every)[:: max(1, len(every) // 6)]) * (1 + 1e-12)
    free, rng = np.full(len(loads), np.inf), np.random.default_rng(number)
    for weight in (0.01, 1.0, 100.0):
        prices = rng.uniform(0.1, 1, len(bench.space.places))
        question = Question(np.full(len(loads), weight), prices, loads, free, allowed)
        answer = chains.least(question)
        for n, load in enumerate(loads):
            costs = [weight * p[1] + float(p[4] @ prices) for p in every if p[0] <= load]
            assert answer.price[n] <= min(costs) * (1 + 1e-9)


@pytest.mark.parametrize("number", range(len(CASES)))
def test_no_pipeline_of_any_stages_fills_sooner_on_any_devices(number):
    bench, batch, stages = case(number)
    limits, mixes = bench.place_limits, StageMixes(bench)
    every = list(every_pipeline(bench, batch, stages))
    exchanges = sorted(p[3] for p in every)
    for load_s, exchange_s in product((np.inf, np.median([p[0] for p in every])), exchanges[::40]):
        kept = [p for p in every if p[0] <= load_s and p[3] <= exchange_s]
        looser = None
        for most, exact in ((1, False), (None, False), (None, True)):
            split = mixes.split(batch, limits, most)
            chains = Chains(split, limits, bench.space.in_stages, exact=exact)
            found = chains.least_fills_s(load_s, exchange_s, np.inf)
            for devices in np.ndindex(found.shape):
                fills = [p[1] for p in kept if (p[4] <= devices).all()]
                assert found[devices] <= min(fills, default=np.inf) * (1 + 1e-12)
            if looser is not None:
                assert (looser <= found * (1 + 1e-12)).all()
            looser = found


@pytest.mark.parametrize("number", range(len(CASES)))
def test_a_plan_of_any_stages_is_never_excluded(number):
    bench, batch, stages = case(number)
    rounds, mixes = -(-12 // batch), StageMixes(bench)
    best = min(
        (rounds - 1) * load + fill + update + exchange
        for load, fill, update, exchange, _ in every_pipeline(bench, batch, stages)
    )
    assert open_exchanges(bench, mixes, batch, best * (1 + 1e-9)) != []
    assert open_exchanges(bench, mixes, batch, best * 0.9) == []


@pytest.mark.slow
def test_several_pipelines_of_any_stages_are_never_excluded():
    options = PipelineOptions(max_stages=2, allow_excess=True)
    problem = small_problem("A100-40=1,V100-16=1", rows=3, batch=6, seed=1, options=options)
    bench = AnyStages(problem, TableCosts(problem))
    best = best_of_several(bench)
    mixes = StageMixes(bench)
    assert next(open_cases(bench, mixes, best * (1 + 1e-6), lambda: False), None) is not None
    assert list(open_cases(bench, mixes, best * 0.9, lambda: False)) == []


def test_what_is_not_proven_is_not_said():
    with pytest.raises(InputError, match="share experts or optimizer states"):
        StageMixes(bench_of(options=PipelineOptions(zero1=True)))
