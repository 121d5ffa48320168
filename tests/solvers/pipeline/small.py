"""Small benches, random columns and brute force for the pipeline solvers' tests."""

import random
from itertools import combinations, combinations_with_replacement, product

import numpy as np

from arachne_opt.costs.pipeline.closed_form import plan_price
from arachne_opt.costs.pipeline.tables import TableCosts
from arachne_opt.pipeline.problem import PipelineOptions
from arachne_opt.solvers.pipeline.columns import Column, column_of
from arachne_opt.solvers.pipeline.incumbent import TRUSTED_GAP
from arachne_opt.solvers.pipeline.search import TemplateSearch
from arachne_opt.solvers.pipeline.workbench import Candidate, Workbench
from tests.pipeline_builders import small_problem


def bench_of(pool: str = "A100-40=4,V100-16=4", **asked: object) -> Workbench:
    """A workbench on a small random problem."""
    problem = small_problem(pool, **asked)
    return Workbench(problem, TableCosts(problem))


def random_templates(bench: Workbench, batch: int, stages: int, count: int, seed: int) -> list:
    """Templates of a batch that fit the devices."""
    rng, tables = random.Random(seed), bench.tables(batch)
    options = range(len(tables.options))
    found = []
    for _ in range(20 * count):
        template = tuple(rng.choice(options) for _ in range(stages))
        if (tables.usage[list(template)].sum(axis=0) <= bench.limits).all():
            found.append(template)
    return found[:count]


def random_columns(bench: Workbench, count: int, seed: int) -> list[Column]:
    """Columns of random templates and batches, divided for a random number of rounds."""
    rng = random.Random(seed)
    found: dict[object, Column] = {}
    for _ in range(10 * count):
        batch, stages = rng.choice((1, 2, 3, 4)), rng.choice((1, 1, 2, 2, 3))
        if not bench.tables(batch).options:
            continue
        for template in random_templates(bench, batch, stages, 1, rng.random()):
            tables = bench.tables(batch)
            search = TemplateSearch(tables, 1, bench.limits)
            rounds = np.array([rng.randint(1, 9)])
            (one,) = search.each(np.array([template]), rounds, np.array([np.inf]))
            if one is not None:
                column = column_of(one, tables.options, batch, tables.usage)
                found[column.key] = column
        if len(found) >= count:
            break
    return list(found.values())


def best_set(bench: Workbench, columns: list[Column], most: int) -> float:
    """Lowest cautious price of all sets of columns with all numbers of micro-batches."""
    samples, exact = bench.problem.global_batch, not bench.problem.options.allow_excess
    best = np.inf
    for count in range(1, most + 1):
        for chosen in combinations_with_replacement(columns, count):
            if (np.sum([c.used for c in chosen], axis=0) > bench.limits).any():
                continue
            if bench.packs(chosen):
                counts = _best_counts(chosen, samples, exact=exact)
                if counts:
                    slowest = max(c.seconds(n) for c, n in zip(chosen, counts, strict=True))
                    best = min(best, slowest + bench.exchange.seconds(chosen))
    return float(best)


def _best_counts(chosen: tuple[Column, ...], samples: int, *, exact: bool) -> tuple[int, ...]:
    """Numbers of micro-batches by trying all."""
    best, found = np.inf, ()
    ranges = [range(1, samples // c.batch + 2) for c in chosen]
    for counts in product(*ranges):
        done = sum(c.batch * n for c, n in zip(chosen, counts, strict=True))
        if done == samples if exact else done >= samples:
            slowest = max(c.seconds(n) for c, n in zip(chosen, counts, strict=True))
            if slowest < best:
                best, found = slowest, counts
    return found


def best_single(bench: Workbench, batches: tuple[int, ...], most_stages: int) -> float:
    """Lowest cautious price of all trusted plans of one pipeline: all templates, all cuts."""
    best, samples, rows = np.inf, bench.problem.global_batch, bench.costs.row_count
    for batch in batches:
        tables = bench.tables(batch)
        rounds = -(-samples // batch)
        if rounds * batch != samples and not bench.problem.options.allow_excess:
            continue
        for stages in range(1, most_stages + 1):
            for template in product(range(len(tables.options)), repeat=stages):
                if (tables.usage[list(template)].sum(axis=0) > bench.limits).any():
                    continue
                for inner in combinations(range(1, rows), stages - 1):
                    cuts = (0, *inner, rows)
                    best = min(best, _price(bench, batch, template, cuts, rounds))
    return float(best)


def _price(
    bench: Workbench, batch: int, template: tuple[int, ...], cuts: tuple[int, ...], rounds: int
) -> float:
    tables = bench.tables(batch)
    for i, o in enumerate(template):
        if tables.ends(np.array([o]), len(template) - i)[0, cuts[i]] < cuts[i + 1]:
            return np.inf
    column = Column(
        batch=batch,
        options=tuple(tables.options[o] for o in template),
        cuts=cuts,
        load_s=0,
        fill_s=0,
        update_s=0,
        used=tables.usage[list(template)].sum(axis=0),
    )
    plan = bench.plan(Candidate((column,), (rounds,), 0.0, ""))
    price = plan_price(bench.costs, plan)
    trusted = price.cautious_s <= (1 + TRUSTED_GAP) * price.iteration_s
    return price.cautious_s if trusted else np.inf


EXACT = PipelineOptions(max_pipelines=3)
EXCESS = PipelineOptions(max_pipelines=3, allow_excess=True)
