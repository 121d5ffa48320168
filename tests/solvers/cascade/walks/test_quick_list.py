"""Quick list schedules: legal, cautious, as short as other ones, and given up for a reason."""

import math
import random
import statistics

import pytest

from arachne_opt.cascade.check import check_plan
from arachne_opt.cascade.problem import CascadeProblem
from arachne_opt.cascade.usable import usable_part
from arachne_opt.solvers.cascade.digest import Digest
from arachne_opt.solvers.cascade.list_schedule import decode
from arachne_opt.solvers.cascade.schedule import left_shift, to_plan
from arachne_opt.solvers.cascade.walks.quick_list import ANY_US, QuickList
from tests.strategies import even_cluster, random_problem, two_stage


def digest_of(seed):
    problem = random_problem(seed)
    if problem.pinned:
        pytest.skip("nobody asks for quick lists where there are pins")
    return Digest(usable_part(problem).problem if problem.forbidden_devices else problem)


def drawn(digest, rng):
    modes = [rng.choice(task.modes) for task in digest.tasks]
    return modes, [rng.randrange(9) for _ in digest.tasks]


def some_lists(seed):
    """Some choices with their list schedules."""
    digest, rng = digest_of(seed), random.Random(seed)
    lists = QuickList(digest)
    for _ in range(5):
        choice = drawn(digest, rng)
        yield digest, lists, choice, lists.decode(*choice, ANY_US)


@pytest.mark.parametrize("seed", range(30))
def test_schedules_are_legal_and_no_longer_than_promised(seed):
    for digest, lists, _, made in some_lists(seed):
        schedule = left_shift(digest, lists.runs(made))
        assert check_plan(digest.problem, to_plan(digest, schedule)) == ()
        # Groups may start earlier once all are known: what is known before is cautious.
        ends = zip(schedule.ends_us, made.ends_us, strict=True)
        assert all(exact <= cautious for exact, cautious in ends)


@pytest.mark.parametrize("seed", range(20))
def test_schedules_that_take_too_long_are_given_up_and_no_others(seed):
    for _, lists, choice, made in some_lists(seed):
        again = lists.decode(*choice, made.makespan_us)
        assert lists.runs(again) == lists.runs(made)
        assert lists.decode(*choice, made.makespan_us - 1) is None


@pytest.mark.parametrize("seed", range(20))
def test_schedules_that_begin_alike_are_those_made_from_nothing(seed):
    digest, rng = digest_of(seed), random.Random(seed)
    lists = QuickList(digest)
    modes, priority = drawn(digest, rng)
    like = lists.decode(modes, priority, ANY_US)
    for _ in range(6):
        t = rng.randrange(len(modes))
        modes, priority = list(modes), list(priority)
        if rng.random() < 0.5:
            modes[t] = rng.choice(digest.tasks[t].modes)
        else:
            priority[t] = rng.randrange(9)
        near = lists.decode(modes, priority, ANY_US, like)
        wanted = QuickList(digest).decode(modes, priority, ANY_US)
        assert (near.order, near.ends_us, near.groups) == (
            wanted.order,
            wanted.ends_us,
            wanted.groups,
        )
        like = near


@pytest.mark.parametrize("seed", range(20))
def test_some_cascades_are_placed_as_if_there_were_no_others(seed):
    """Whatever was placed before: cascades come and go."""
    digest, rng = digest_of(seed), random.Random(seed)
    lists, like = QuickList(digest), None
    for _ in range(4):
        chosen = sorted(
            rng.sample(range(len(digest.cascades)), rng.randint(1, len(digest.cascades)))
        )
        tasks = [i for c in chosen for i in digest.cascades[c]]
        choice = drawn(digest, rng)
        like = lists.decode(*choice, ANY_US, like, tasks)
        problem = digest.problem
        cascades = tuple(problem.cascades[c] for c in chosen)
        part = Digest(CascadeProblem(name="part", cluster=problem.cluster, cascades=cascades))
        alone = QuickList(part).decode(*([row[i] for i in tasks] for row in choice), ANY_US)
        assert [like.ends_us[i] for i in tasks] == alone.ends_us
        assert like.makespan_us == alone.makespan_us
        assert set(like.order) == set(tasks)


def test_they_are_about_as_long_as_those_of_list_scheduling():
    logs = []
    for seed in range(60):
        problem = random_problem(seed, restricted=False)
        digest, rng = Digest(problem), random.Random(seed)
        choice = drawn(digest, rng)
        lists = QuickList(digest)
        quick = left_shift(digest, lists.runs(lists.decode(*choice, ANY_US)))
        logs.append(math.log(quick.makespan_us / decode(digest, *choice).makespan_us))
    assert abs(statistics.fmean(logs)) < 0.01


def test_wide_groups_take_equal_nic_groups_where_they_can():
    """Ten devices of two nodes with a NIC for every two: three NICs of each."""
    cluster = even_cluster(2, 8)
    problem = CascadeProblem(
        name="wide", cluster=cluster, cascades=(two_stage("a", {1: 10}, {10: 1000}),)
    )
    digest = Digest(problem)
    lists = QuickList(digest)
    made = lists.decode([t.modes[0] for t in digest.tasks], [0, 0], ANY_US)
    assert digest.penalty_ppm(lists.runs(made)[1][1]) == digest.mildest_ppm


@pytest.mark.parametrize("seed", range(20))
def test_sites_are_kept_where_they_have_room(seed):
    digest, rng = digest_of(seed), random.Random(seed)
    modes, priority = drawn(digest, rng)
    sites = [rng.randrange(-1, len(digest.nodes)) for _ in modes]
    lists = QuickList(digest)
    made = lists.decode(modes, priority, ANY_US, sites=sites)
    for i, devices in lists.runs(made):
        node = digest.nodes[sites[i]] if sites[i] >= 0 else None
        if node is not None and node.kind == modes[i].kind and node.size >= modes[i].degree:
            assert {digest.node_of[d] for d in devices} == {sites[i]}
    schedule = left_shift(digest, lists.runs(made))
    assert check_plan(digest.problem, to_plan(digest, schedule)) == ()


@pytest.mark.parametrize("seed", range(20))
def test_only_given_nodes_are_used(seed):
    digest, rng = digest_of(seed), random.Random(seed)
    nodes = sorted(rng.sample(range(len(digest.nodes)), rng.randint(1, len(digest.nodes))))
    lists = QuickList(digest, nodes)
    count = [0] * len(digest.kind_names)
    for n in nodes:
        count[digest.nodes[n].kind] += digest.nodes[n].size
    modes, priority = drawn(digest, rng)
    made = lists.decode(modes, priority, ANY_US)
    assert (made is None) == any(mode.degree > count[mode.kind] for mode in modes)
    if made is not None:
        used = {digest.node_of[d] for _, devices in lists.runs(made) for d in devices}
        assert used <= set(nodes)
