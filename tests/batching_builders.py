"""Batching problems for tests: by hand, and random ones with arbitrary prices."""

from __future__ import annotations

import random
from collections.abc import Iterator
from itertools import product

from arachne_opt.cascade.batching import Batching, BatchingProblem, ClipFamily
from arachne_opt.cascade.problem import Cascade
from arachne_opt.cluster import Cluster
from arachne_opt.workload import Clip, Shape
from tests.strategies import random_problem, simple_task


def one_shape(
    cluster: Cluster, clips: int, durations_us: dict[int, dict[int, int]]
) -> BatchingProblem:
    """Clips of one shape; durations by micro-batch size, then by degree; other sizes fit not."""
    sizes = sorted(durations_us)
    catalogue = tuple(
        Cascade(id=str(size), tasks=(simple_task("denoise", durations_us[size]),)) for size in sizes
    )
    return BatchingProblem(
        name="by hand",
        cluster=cluster,
        families=(
            ClipFamily(
                shape=Shape(frames=5, height=64, width=64),
                clips=tuple(Clip(id=f"clip{i}", shape=SMALL) for i in range(clips)),
                kinds=tuple(
                    tuple(
                        sizes.index(size) if size in durations_us else None
                        for size in range(1, min(max(sizes), clips - first) + 1)
                    )
                    for first in range(clips)
                ),
            ),
        ),
        catalogue=catalogue,
    )


SMALL = Shape(frames=5, height=64, width=64)


def random_batching(seed: int, *, most_clips: int = 5) -> BatchingProblem:
    """Families of few clips; every candidate has the price of a random cascade, some have none."""
    rng = random.Random(seed)
    prices = random_problem(seed, restricted=False)
    families = []
    for number in range(rng.randint(1, 3)):
        count = rng.randint(1, most_clips)
        shape = Shape(frames=4 * number + 1, height=64, width=96)
        rows = []
        for first in range(count):
            kinds = [rng.randrange(len(prices.cascades)) for _ in range(count - first)]
            rows.append((kinds[0], *(k if rng.random() < 0.8 else None for k in kinds[1:])))
        clips = tuple(Clip(id=f"s{number}-{i}", shape=shape) for i in range(count))
        families.append(ClipFamily(shape=shape, clips=clips, kinds=tuple(rows)))
    return BatchingProblem(
        name=f"batching{seed}",
        cluster=prices.cluster,
        families=tuple(families),
        catalogue=prices.cascades,
        cost_version="random",
    )


def all_batchings(problem: BatchingProblem) -> Iterator[Batching]:
    """Every batching of the candidates."""
    yield from product(*(list(_cuts(family, 0)) for family in problem.families))


def _cuts(family: ClipFamily, first: int) -> Iterator[tuple[int, ...]]:
    if first == len(family.clips):
        yield ()
        return
    for size in range(1, len(family.clips) - first + 1):
        if family.kind(first, size) is not None:
            yield from ((size, *rest) for rest in _cuts(family, first + size))
