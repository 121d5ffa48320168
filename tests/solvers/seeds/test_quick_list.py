"""Quick list schedules are those of the list scheduling, or given up for a reason."""

import random

import pytest

from arachne_opt.cascade.usable import usable_part
from arachne_opt.solvers.cascade.digest import Digest
from arachne_opt.solvers.cascade.list_schedule import decode
from arachne_opt.solvers.seeds.quick_list import QuickList
from tests.strategies import random_problem


@pytest.mark.parametrize("seed", range(30))
def test_schedules_are_those_of_list_scheduling(seed):
    problem = random_problem(seed)
    if problem.pinned:
        pytest.skip("the policy does not know pins, and is not asked where there are any")
    if problem.forbidden_devices:
        problem = usable_part(problem).problem
    digest, rng = Digest(problem), random.Random(seed)
    lists = QuickList(digest)
    for _ in range(5):
        modes = [rng.choice(task.modes) for task in digest.tasks]
        priority = [rng.randrange(4) for _ in digest.tasks]
        wanted = decode(digest, modes, priority)
        assert lists.decode(modes, priority, 1 << 62) == wanted
        assert lists.decode(modes, priority, wanted.makespan_us) == wanted
        # Groups may start earlier once all are known, so that an earlier end is not excluded.
        assert lists.decode(modes, priority, wanted.makespan_us // 2) is None
