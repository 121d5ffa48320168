"""Annealing over batchings in processes of their own, beside that of the main process."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import NamedTuple

from arachne_opt.cascade.batching import Batching, BatchingProblem
from arachne_opt.solvers.cascade.batching_digest import BatchingDigest
from arachne_opt.solvers.cascade.batching_search import FAR, BatchingSearch, State
from arachne_opt.solvers.cascade.bounds import lower_bound
from arachne_opt.solvers.cascade.decoder import FastDecoder
from arachne_opt.solvers.cascade.digest import Digest
from arachne_opt.solvers.cascade.schedule import to_plan
from arachne_opt.solvers.helper import Helper, start_helpers
from arachne_opt.solvers.seeds.cascades import SeedSearch
from arachne_opt.solvers.seeds.policy_file import PolicyFile

# Share of a walk for list schedules of its first batching after a learned policy: walks that begin
# with one of these end elsewhere than one that begins with a placed plan.
_SEED_SHARE = 0.4


class Walk(NamedTuple):
    """Where to begin, and when to end: the time of day in seconds."""

    begin: State
    until_s: float


def batching_helpers(
    problem: BatchingProblem, policy: PolicyFile | None, seed: int, count: int
) -> list[Helper]:
    """So many helpers, as far as they can be started; they are asked to walk.

    An answer is the best state that a helper has found so far.
    """
    return start_helpers(count, walker, problem, policy, seed)


def walker(
    number: int, problem: BatchingProblem, policy: PolicyFile | None, seed: int
) -> Callable[[Walk], State]:
    """What answers in a helper."""
    digest, seed = BatchingDigest(problem), seed + 1 + number
    search = BatchingSearch(digest, digest.lower_bound(), seed)

    def answer(walk: Walk) -> State:
        now_s, at = time.time(), walk.begin
        if policy is not None:
            seeds_end_s = now_s + _SEED_SHARE * (walk.until_s - now_s)
            at = _seeded(search, search.batching(at), policy, seed, seeds_end_s)
            now_s = time.time()
        length_s = max(1e-6, walk.until_s - now_s)
        search.anneal(at, FAR, lambda _placed: min(1.0, (time.time() - now_s) / length_s))
        return search.best

    return answer


def _seeded(
    search: BatchingSearch, batching: Batching, policy: PolicyFile, seed: int, until_s: float
) -> State:
    """The state of the best list schedule of a batching after a policy."""
    problem = search.digest.problem.placement_problem(batching)
    digest, begin_s = Digest(problem), time.time()
    seeds = SeedSearch(FastDecoder(digest), policy, lower_bound(digest), seed)
    for _ in seeds.turn(lambda _placed: (time.time() - begin_s) / max(1e-6, until_s - begin_s)):
        pass
    return search.start(problem, to_plan(digest, seeds.schedule))
