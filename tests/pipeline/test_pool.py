"""Pools in short: what they become, and what is refused."""

import pytest

from arachne_opt.errors import InputError
from arachne_opt.pipeline.pool import parse_pool, pool_text


def nodes(cluster):
    return [(n.zone, n.device_type.name, n.device_count) for n in cluster.nodes]


def test_counts_are_cut_into_nodes_with_a_rest():
    cluster = parse_pool("A100-40=10,V100-16=4", 4)
    assert [n for _, _, n in nodes(cluster)] == [4, 4, 2, 4]
    assert cluster.count_of_type == {"A100-40": 10, "V100-16": 4}


@pytest.mark.parametrize("sizes", [{"A100-40": 8, "V100-16": 2}, "A100-40=8,V100-16=2"])
def test_nodes_may_differ_by_type(sizes):
    assert [n for _, _, n in nodes(parse_pool("A100-40=8,V100-16=4", sizes))] == [8, 2, 2]


def test_named_nodes_and_zones():
    cluster = parse_pool("east/A100-40=8+4+2+1, west/V100-16=3", 2)
    assert nodes(cluster) == [
        ("east", "A100-40", 8),
        ("east", "A100-40", 4),
        ("east", "A100-40", 2),
        ("east", "A100-40", 1),
        ("west", "V100-16", 2),
        ("west", "V100-16", 1),
    ]
    assert nodes(parse_pool(pool_text(cluster))) == nodes(cluster)


def test_one_named_node_counts_as_a_count():
    assert [n for _, _, n in nodes(parse_pool("A100-40=8", "8"))] == [8]


@pytest.mark.parametrize(
    ("text", "per_node", "word"),
    [
        ("A100-40=-8", 4, "positive"),
        ("A100-40=0", 4, "positive"),
        ("A100-40=4+-1", 4, "positive"),
        ("A100-40=many", 4, "number of devices"),
        ("A100-40", 4, "cannot read"),
        ("", 4, "cannot read"),
        ("A100-41=8", 4, r"unknown device type 'A100-41' \(did you mean"),
        ("A100-40=8", 0, "positive"),
        ("A100-40=8", "four", "number of devices"),
    ],
)
def test_nonsense_is_refused_in_words(text, per_node, word):
    with pytest.raises(InputError, match=word):
        parse_pool(text, per_node)
