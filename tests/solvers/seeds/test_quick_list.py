"""Quick list schedules are those of the list scheduling, or given up for a reason."""

import random

import pytest

from arachne_opt.cascade.usable import usable_part
from arachne_opt.solvers.cascade.digest import Digest
from arachne_opt.solvers.cascade.list_schedule import decode
from arachne_opt.solvers.seeds.quick_list import QuickList
from tests.strategies import random_problem


def digest_of(seed):
    problem = random_problem(seed)
    if problem.pinned:
        pytest.skip("the policy does not know pins, and is not asked where there are any")
    return Digest(usable_part(problem).problem if problem.forbidden_devices else problem)


@pytest.mark.parametrize("seed", range(30))
def test_schedules_are_those_of_list_scheduling(seed):
    digest, rng = digest_of(seed), random.Random(seed)
    lists = QuickList(digest)
    for _ in range(5):
        modes = [rng.choice(task.modes) for task in digest.tasks]
        priority = [rng.randrange(4) for _ in digest.tasks]
        wanted = decode(digest, modes, priority)
        made = lists.decode(modes, priority, 1 << 62)
        assert lists.schedule(made) == wanted
        # Groups may start earlier once all are known: what is known before is cautious.
        assert made.makespan_us >= wanted.makespan_us
        again = lists.decode(modes, priority, made.makespan_us)
        assert lists.schedule(again) == wanted
        assert lists.decode(modes, priority, wanted.makespan_us // 2) is None


@pytest.mark.parametrize("seed", range(20))
def test_schedules_that_begin_alike_are_those_made_from_nothing(seed):
    digest, rng = digest_of(seed), random.Random(seed)
    lists = QuickList(digest)
    modes = [rng.choice(task.modes) for task in digest.tasks]
    priority = [rng.randrange(9) for _ in digest.tasks]
    like = lists.decode(modes, priority, 1 << 62)
    for _ in range(6):
        t = rng.randrange(len(modes))
        if rng.random() < 0.5:
            modes[t] = rng.choice(digest.tasks[t].modes)
        else:
            priority[t] = rng.randrange(9)
        near = lists.decode(list(modes), list(priority), 1 << 62, like)
        assert lists.schedule(near) == decode(digest, modes, priority)
        like = near
