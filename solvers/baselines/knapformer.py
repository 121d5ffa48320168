"""KnapFormer's balancer (Zhang et al. 2025, arXiv 2508.06001, repository Kai-46/KnapFormer).

Devices form fixed bags. Longest first, a sequence goes to the bag that is filled least for its
size, among those whose fair share of all work holds it whole; where none does, among the widest.
A bag works off its sequences one after the other with its size as the sequence-parallel degree.

The user of KnapFormer names the bags once for a training run. Here the rule gets the best of all
halves-and-halves for each problem (half of the devices in bags of one size, half of another or
the same), which flatters it. Work is the least device time of a cascade, in place of operations.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from itertools import combinations_with_replacement

from arachne_opt.cascade.problem import CascadeProblem
from arachne_opt.solvers.base import Limits, Result
from arachne_opt.solvers.baselines.deal import exact_runs, finish, seat, times_us
from arachne_opt.solvers.cascade.digest import Digest
from arachne_opt.solvers.cascade.schedule import Run, left_shift


def knapformer(problem: CascadeProblem, limits: Limits) -> Result:
    """The rule's plan with the best bags; none on mixed device types, or where no bags fit."""
    begin_s, digest = time.perf_counter(), Digest(problem)
    return finish(digest, best_bag_runs(digest), limits, "knapformer", begin_s)


def best_bag_runs(digest: Digest) -> list[Run] | None:
    """Cascades in the best bags."""
    if len(digest.kind_names) > 1:
        return None
    times = [times_us(digest, c) for c in range(len(digest.cascades))]
    found = [runs for bags in _bag_sizes(digest) if (runs := bag_runs(digest, bags, times))]
    return min(found, key=lambda runs: left_shift(digest, runs).key, default=None)


def _bag_sizes(digest: Digest) -> Iterator[list[int]]:
    """Bags of two sizes on half of the devices each, or of one size on all of them."""
    degrees = sorted({m.degree for row in digest.cascades for m in digest.tasks[row[-1]].modes})
    half, rest = digest.device_count // 2, digest.device_count % 2
    for narrow, wide in combinations_with_replacement(degrees, 2):
        if narrow == wide:
            yield [wide] * (digest.device_count // wide)
        elif wide <= half:
            yield [wide] * (half // wide) + [narrow] * ((half + rest) // narrow)


def bag_runs(
    digest: Digest, sizes: Sequence[int], times: Sequence[Mapping[int, int]]
) -> list[Run] | None:
    """Cascades in bags of these sizes; None where one can run in none of the bags it may use.

    ``times`` are those of each cascade by degree, as ``times_us`` has them.
    """
    bags = seat(digest, sizes)
    if not bags:
        return None
    if not all(times):
        return None
    work = [min(degree * time for degree, time in row.items()) for row in times]
    share = sum(work) / sum(sizes)
    filled = [0.0] * len(sizes)
    runs: list[Run] = []
    for c in sorted(range(len(work)), key=lambda c: -work[c]):
        legal = [b for b, size in enumerate(sizes) if size in times[c]]
        if not legal:
            return None
        roomy = [b for b in legal if share * sizes[b] >= work[c]]
        widest = max(sizes[b] for b in legal)
        bag = min(roomy or [b for b in legal if sizes[b] == widest], key=filled.__getitem__)
        filled[bag] += work[c] / (share * sizes[bag])
        runs += exact_runs(digest, c, bags[bag]) or ()
    return runs
