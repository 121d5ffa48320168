"""Changes of list schedules: what delays the end, and only options and nodes that there are."""

import random

import pytest

from arachne_opt.solvers.cascade.digest import Digest
from arachne_opt.solvers.cascade.walks.chance import Chance
from arachne_opt.solvers.cascade.walks.changes import Changes, critical
from arachne_opt.solvers.cascade.walks.choice import ANYWHERE, FREE, ModeTable
from arachne_opt.solvers.cascade.walks.quick_list import ANY_US, QuickList
from tests.strategies import random_problem


def listed(problem, seed):
    digest, rng = Digest(problem), random.Random(seed)
    table = ModeTable(digest)
    modes = [rng.choice(task.modes) for task in digest.tasks]
    choice = table.choice(modes, [rng.randrange(9) for _ in modes])
    return digest, table, choice, QuickList(digest).decode(modes, choice.priority, ANY_US)


def free_problem(seed):
    problem = random_problem(seed)
    if problem.pinned or problem.forbidden_devices:
        pytest.skip("walks are not asked where devices are pinned or forbidden")
    return problem


@pytest.mark.parametrize("seed", range(12))
def test_tasks_that_end_last_delay_the_end(seed):
    digest, _, _, made = listed(free_problem(seed), seed)
    last = {i for i, us in enumerate(made.ends_us) if us == made.makespan_us}
    assert last <= set(critical(digest, made))


@pytest.mark.parametrize("seed", range(12))
def test_changes_are_few_and_possible(seed):
    problem = free_problem(seed)
    digest, table, choice, made = listed(problem, seed)
    changes = Changes(digest, table, range(len(digest.nodes)), Chance(seed))
    rows = max(map(len, digest.cascades))
    kinds = set()
    for _ in range(60):
        near = changes.near(choice, made)
        if near is None:
            continue
        counts = [
            sum(a != b for a, b in zip(new, old, strict=True))
            for new, old in zip(near, choice, strict=True)
        ]
        assert max(counts) == sum(counts)
        assert counts[0] <= 2 * rows
        assert max(counts[1:]) <= 2
        kinds.add(counts.index(max(counts)))
        changed = zip(near.picks, choice.picks, table.drawn, strict=True)
        assert all(pick == old or pick < drawn for pick, old, drawn in changed)
        assert all(ANYWHERE <= site < len(digest.nodes) for site in near.sites)
    assert {1, 2} <= kinds


@pytest.mark.parametrize("seed", range(6))
def test_other_degrees_and_sites_let_go_of_the_group_and_other_turns_do_not(seed):
    digest, table, choice, made = listed(free_problem(seed), seed)
    held = choice._replace(groups=list(made.groups))
    changes = Changes(digest, table, range(len(digest.nodes)), Chance(seed))
    let_go = set()
    for _ in range(80):
        near = changes.near(held, made)
        if near is None:
            continue
        for i, group in enumerate(near.groups):
            assert group in (FREE, made.groups[i])
            assert group == FREE or near.picks[i] == held.picks[i]
            if group == FREE:
                assert near.priority == held.priority
                let_go.add(i)
    assert let_go


def test_what_is_drawn_is_spread_and_repeats_with_its_seed():
    draws = [Chance(7).below(10) for _ in range(2)]
    assert draws[0] == draws[1]
    chance = Chance(1)
    counts = [0] * 8
    for _ in range(4000):
        counts[chance.below(8)] += 1
    assert min(counts) > 400
    assert all(0 <= chance.unit() < 1 for _ in range(1000))
