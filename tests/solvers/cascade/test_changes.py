"""Changes of list schedules: what delays the end, and only options that tasks have."""

import random

import pytest

from arachne_opt.solvers.cascade.changes import Changes, Choice, critical
from arachne_opt.solvers.cascade.digest import Digest
from arachne_opt.solvers.cascade.quick_list import QuickList
from tests.strategies import random_problem


def listed(problem, seed):
    digest, rng = Digest(problem), random.Random(seed)
    modes = [rng.choice(task.modes) for task in digest.tasks]
    choice = Choice(modes, [rng.randrange(9) for _ in modes])
    return digest, choice, QuickList(digest).decode(*choice, 1 << 62)


def free_problem(seed):
    problem = random_problem(seed)
    if problem.pinned or problem.forbidden_devices:
        pytest.skip("the policy is not asked where devices are pinned or forbidden")
    return problem


@pytest.mark.parametrize("seed", range(12))
def test_tasks_that_end_last_delay_the_end(seed):
    digest, _, made = listed(free_problem(seed), seed)
    last = {i for i, us in enumerate(made.ends_us) if us == made.makespan_us}
    assert last <= set(critical(digest, made))


@pytest.mark.parametrize("seed", range(12))
def test_changes_are_few_and_possible(seed):
    problem = free_problem(seed)
    digest, choice, made = listed(problem, seed)
    changes = Changes(digest, [task.modes for task in digest.tasks], seed)
    rows = max(map(len, digest.cascades))
    for _ in range(20):
        modes, priority = changes.near(choice, made)
        assert all(m in task.modes for m, task in zip(modes, digest.tasks, strict=True))
        assert sum(a != b for a, b in zip(modes, choice.modes, strict=True)) <= 2 * rows
        assert sum(a != b for a, b in zip(priority, choice.priority, strict=True)) <= 2
