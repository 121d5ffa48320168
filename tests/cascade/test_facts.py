"""The checker's own arithmetic agrees with the cluster's, which solvers use."""

from fractions import Fraction
from math import ceil, exp

import pytest
from hypothesis import given
from hypothesis import strategies as st

from arachne_opt.cascade.facts import Facts
from arachne_opt.cascade.problem import CascadeProblem, Option
from arachne_opt.cluster import Cluster
from arachne_opt.units import scale_up
from tests.strategies import clusters, even_cluster, problems, two_stage


def facts_of(cluster: Cluster) -> Facts:
    cascade = two_stage("m", {1: 10}, {1: 10})
    return Facts(CascadeProblem(name="p", cluster=cluster, cascades=(cascade,)))


@st.composite
def groups(draw, cluster: Cluster):
    devices = st.integers(0, cluster.device_count - 1)
    return tuple(draw(st.lists(devices, min_size=1, unique=True)))


@given(st.data(), clusters())
def test_penalties_agree_with_the_cluster(data, cluster):
    group = data.draw(groups(cluster))
    assert facts_of(cluster).penalty_ppm(group) == cluster.penalty_ppm(group)


@given(st.data(), clusters(), st.integers(0, 10**11))
def test_hand_offs_agree_with_the_cluster(data, cluster, size_bytes):
    source, target = data.draw(groups(cluster)), data.draw(groups(cluster))
    expected_us = cluster.handoff_us(size_bytes, source, target)
    assert facts_of(cluster).handoff_us(size_bytes, source, target) == expected_us


@given(st.data(), clusters(), st.integers(1, 10**9))
def test_durations_agree_with_rounding_up(data, cluster, duration_us):
    group = data.draw(groups(cluster))
    option = Option(degree=len(group), duration_us=duration_us)
    expected_us = scale_up(duration_us, cluster.penalty_ppm(group))
    assert facts_of(cluster).duration_us(option, group) == expected_us


@given(problems())
def test_options_agree_with_the_task(problem):
    facts = Facts(problem)
    for _, _, task in problem.tasks():
        for kind in problem.cluster.device_types:
            for degree in range(1, 9):
                for again in (False, True):
                    found = facts.option(task, degree, kind, recompute=again)
                    assert found == task.option(degree, kind, recompute=again)


@pytest.mark.parametrize(
    ("group", "overlap"),
    [
        ((0, 1, 4, 5), Fraction(1)),  # NIC group 0 on both nodes
        ((0, 1, 6, 7), Fraction(0)),  # group 0 here, group 1 there
        ((0, 1, 2, 3, 4, 5), Fraction(1, 2)),  # groups 0 and 1 here, 0 there
        ((0, 1, 2, 3, 4, 5, 6, 7), Fraction(1)),
    ],
)
def test_the_penalty_follows_the_overlap_of_nic_groups(group, overlap):
    cluster = even_cluster(nodes=2, devices=4, nic_size=2)
    scale, decay = cluster.penalty.scale, cluster.penalty.decay
    expected = ceil(1_000_000 * (1 + scale * exp(-decay * float(overlap))))
    assert facts_of(cluster).penalty_ppm(group) == expected


def test_a_group_on_one_node_pays_nothing():
    cluster = even_cluster(nodes=2, devices=4)
    assert facts_of(cluster).penalty_ppm((4, 7)) == 1_000_000


def test_devices_that_produced_need_no_hand_off():
    facts = facts_of(even_cluster(nodes=2, devices=4))
    assert facts.handoff_us(10**9, (0, 1, 2, 3), (2, 3)) == 0
    # Half of 1 GB over 450 GB/s inside the node, and 5 us until it begins.
    assert facts.handoff_us(10**9, (0,), (0, 1)) == 5 + 1112
    # All of it over 50 GB/s to the other node, and 20 us.
    assert facts.handoff_us(10**9, (0,), (4, 5)) == 20 + 20_000
