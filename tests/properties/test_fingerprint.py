"""The fingerprint sees all that decides a plan, and nothing else."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from arachne_opt.cascade.problem import Cascade, CascadeProblem
from arachne_opt.cluster import Link, TopologyPenalty, ZoneLink
from tests.strategies import FAR, FAST, even_cluster, problems, renumber, two_stage


@given(problems(), st.integers(0, 2**16))
def test_other_names_and_orders_keep_the_fingerprint(problem, seed):
    assert renumber(problem, seed).fingerprint() == problem.fingerprint()


@given(problems())
def test_the_order_of_options_does_not_matter(problem):
    cascades = [
        replace(c, tasks=tuple(replace(t, options=t.options[::-1]) for t in c.tasks))
        for c in problem.cascades
    ]
    assert replace(problem, cascades=tuple(cascades)).fingerprint() == problem.fingerprint()


@given(problems())
def test_one_more_cascade_changes_it(problem):
    more = (*problem.cascades, replace(problem.cascades[0], id="one more"))
    assert replace(problem, cascades=more).fingerprint() != problem.fingerprint()


@given(problems(), st.data())
def test_a_microsecond_on_any_option_changes_it(problem, data):
    c, t, task = data.draw(st.sampled_from(list(problem.tasks())))
    i = data.draw(st.integers(0, len(task.options) - 1))
    options = list(task.options)
    options[i] = replace(options[i], duration_us=options[i].duration_us + 1)
    changed = with_task(problem, c, t, options=tuple(options))
    assert changed.fingerprint() != problem.fingerprint()


@pytest.fixture
def problem() -> CascadeProblem:
    """Two equal cascades on two nodes in two zones."""
    cluster = even_cluster(nodes=2, devices=4)
    nodes = (replace(cluster.nodes[0], zone="a"), replace(cluster.nodes[1], zone="b"))
    links = (ZoneLink(zones=("a", "b"), link=FAR),)
    cascades = tuple(two_stage(n, {1: 100, 2: 70}, {2: 900}, input_bytes=10**6) for n in "xy")
    cluster = replace(cluster, nodes=nodes, zone_links=links)
    return CascadeProblem(name="p", cluster=cluster, cascades=cascades, cost_version="v1")


def with_task(problem: CascadeProblem, c: int, t: int, **changes: object) -> CascadeProblem:
    tasks = list(problem.cascades[c].tasks)
    tasks[t] = replace(tasks[t], **changes)
    cascades = list(problem.cascades)
    cascades[c] = Cascade(id=cascades[c].id, label=cascades[c].label, tasks=tuple(tasks))
    return replace(problem, cascades=tuple(cascades))


def with_option(problem: CascadeProblem, **changes: object) -> CascadeProblem:
    first, *rest = problem.cascades[1].tasks[0].options
    return with_task(problem, 1, 0, options=(replace(first, **changes), *rest))


def with_cluster(problem: CascadeProblem, **changes: object) -> CascadeProblem:
    return replace(problem, cluster=replace(problem.cluster, **changes))


def with_node(problem: CascadeProblem, **changes: object) -> CascadeProblem:
    first, *rest = problem.cluster.nodes
    return with_cluster(problem, nodes=(replace(first, **changes), *rest))


def with_type(problem: CascadeProblem, **changes: object) -> CascadeProblem:
    kind = replace(FAST, **changes)
    nodes = tuple(replace(node, device_type=kind) for node in problem.cluster.nodes)
    return with_cluster(problem, nodes=nodes)


def with_zone_link(problem: CascadeProblem, **changes: object) -> CascadeProblem:
    entry = problem.cluster.zone_links[0]
    return with_cluster(problem, zone_links=(replace(entry, link=replace(FAR, **changes)),))


def in_one_zone(problem: CascadeProblem) -> CascadeProblem:
    nodes = tuple(replace(node, zone="a") for node in problem.cluster.nodes)
    return with_cluster(problem, nodes=nodes, zone_links=())


NEAR = Link(bandwidth_bytes_per_s=10**9)
CHANGES = {
    "cost version": lambda p: replace(p, cost_version="v2"),
    "tail": lambda p: replace(p, tail_us=1),
    "forbidden device": lambda p: replace(p, forbidden_devices=(3,)),
    "resident bytes": lambda p: replace(p, resident_bytes=((FAST.name, 7),)),
    "pin": lambda p: with_task(p, 1, 0, allowed_devices=(0, 1)),
    "a cascade less": lambda p: replace(p, cascades=p.cascades[:1]),
    "degree": lambda p: with_option(p, degree=4),
    "duration": lambda p: with_option(p, duration_us=101),
    "memory of an option": lambda p: with_option(p, memory_bytes=1),
    "an option less": lambda p: with_task(p, 1, 0, options=p.cascades[1].tasks[0].options[:1]),
    "task name": lambda p: with_task(p, 1, 0, name="text"),
    "predecessors": lambda p: with_task(p, 1, 1, predecessors=()),
    "input bytes": lambda p: with_task(p, 1, 1, input_bytes=10**6 + 1),
    "a node less": lambda p: with_cluster(p, nodes=p.cluster.nodes[:1], zone_links=()),
    "link between nodes": lambda p: with_cluster(p, inter_link=NEAR),
    "latency between nodes": lambda p: with_cluster(
        p, inter_link=replace(p.cluster.inter_link, latency_us=21)
    ),
    "no link between zones": lambda p: with_cluster(p, zone_links=()),
    "bandwidth between zones": lambda p: with_zone_link(p, bandwidth_bytes_per_s=1),
    "latency between zones": lambda p: with_zone_link(p, latency_us=1),
    "scale of the penalty": lambda p: with_cluster(p, penalty=TopologyPenalty(scale=0.3)),
    "decay of the penalty": lambda p: with_cluster(p, penalty=TopologyPenalty(decay=2)),
    "NIC groups": lambda p: with_node(p, nic_of_device=(0, 1, 0, 1)),
    "NUMA domains": lambda p: with_node(p, numa_of_nic=(1, 0)),
    "number of devices": lambda p: with_node(p, nic_of_device=(0, 0, 1)),
    "link inside a node": lambda p: with_node(p, intra_link=NEAR),
    "zone": in_one_zone,
    "name of the type": lambda p: with_type(p, name="Fast-81"),
    "memory of the type": lambda p: with_type(p, memory_bytes=1),
    "peak of the type": lambda p: with_type(p, peak_flops_per_s=1),
    "memory bandwidth of the type": lambda p: with_type(p, memory_bandwidth_bytes_per_s=1),
}


@pytest.mark.parametrize("change", CHANGES)
def test_a_change_of_content_changes_it(problem, change):
    assert CHANGES[change](problem).fingerprint() != problem.fingerprint()


def test_where_in_a_node_a_device_is_forbidden_or_pinned_counts(problem):
    """Devices 0 and 1 share a NIC group, 0 and 4 lie on nodes in different zones."""

    def prints(change):
        return {change(problem, (d,)).fingerprint() for d in (0, 1, 4)}

    assert len(prints(lambda p, d: replace(p, forbidden_devices=d))) == 3
    assert len(prints(lambda p, d: with_task(p, 1, 0, allowed_devices=d))) == 3


def test_equal_nodes_change_places_with_their_pins_and_forbidden_devices(problem):
    same = in_one_zone(problem)

    def limited(pin: int, barred: int) -> CascadeProblem:
        return replace(with_task(same, 0, 1, allowed_devices=(pin,)), forbidden_devices=(barred,))

    assert limited(2, 5).fingerprint() == limited(6, 1).fingerprint()
    assert limited(2, 5).fingerprint() != limited(2, 1).fingerprint()


def test_a_problem_without_restrictions_keeps_the_fingerprint_of_old(problem):
    """Stored plans are found by it."""
    assert set(problem.canonical()) == {"format", "cluster", "cascades", "cost_version"}
    assert all(len(task) == 4 for cascade in problem.canonical()["cascades"] for task in cascade)


NAMES = {
    "problem": lambda p: replace(p, name="q"),
    "cluster": lambda p: with_cluster(p, name="q"),
    "node": lambda p: with_node(p, name="q"),
    "cascade": lambda p: replace(p, cascades=(replace(p.cascades[0], id="q"), p.cascades[1])),
    "label": lambda p: replace(p, cascades=(replace(p.cascades[0], label="q"), p.cascades[1])),
}


@pytest.mark.parametrize("name", NAMES)
def test_a_change_of_name_keeps_it(problem, name):
    changed = NAMES[name](problem)
    assert changed != problem
    assert changed.fingerprint() == problem.fingerprint()
