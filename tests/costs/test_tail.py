"""The tail of an iteration, by hand."""

from dataclasses import replace

import pytest

from arachne_opt.cluster import Link
from arachne_opt.costs.analytic import MemoryRule, analytic_for_cluster
from arachne_opt.costs.corrected import CorrectedCostModel
from arachne_opt.costs.table import (
    CostRow,
    TableCostModel,
    cost_table_from_json,
    cost_table_to_json,
)
from arachne_opt.costs.tail import TailVolume, tail_us
from arachne_opt.errors import InputError
from arachne_opt.models import model_spec
from arachne_opt.workload import Shape
from tests.strategies import even_cluster

GB = 10**9
GRADIENTS = TailVolume(gradient_bytes=8 * GB, weight_bytes=8 * GB, update_bytes=0)


def cluster_of(nodes: int, devices: int, *, intra: Link, inter: Link):
    cluster = even_cluster(nodes, devices)
    rows = tuple(replace(node, intra_link=intra) for node in cluster.nodes)
    return replace(cluster, nodes=rows, inter_link=inter)


def test_one_device_only_steps_the_optimizer() -> None:
    """3 GB at the 3 TB/s of the type."""
    volume = replace(GRADIENTS, update_bytes=3 * GB)
    assert tail_us(volume, even_cluster(1, 1)) == 1000


def test_a_ring_in_a_node_moves_three_quarters_of_both_volumes_on_four_devices() -> None:
    """16 GB * 3/4 at 100 GB/s, and 2 * 3 steps of 5 us."""
    cluster = cluster_of(
        1,
        4,
        intra=Link(bandwidth_bytes_per_s=100 * GB, latency_us=5),
        inter=Link(bandwidth_bytes_per_s=1),
    )
    assert tail_us(GRADIENTS, cluster) == 120_000 + 30


def test_between_nodes_each_device_sends_its_slice() -> None:
    """16 GB * 1/2 at 100 GB/s in the node; 8 GB slices * 2/3 at 10 GB/s between three nodes."""
    cluster = cluster_of(
        3,
        2,
        intra=Link(bandwidth_bytes_per_s=100 * GB),
        inter=Link(bandwidth_bytes_per_s=10 * GB, latency_us=7),
    )
    assert tail_us(GRADIENTS, cluster) == 80_000 + 533_334 + 2 * 2 * 7


def test_the_memory_rule_says_what_is_moved_and_what_each_device_updates() -> None:
    volume = MemoryRule(optimizer_shards=4).tail_volume(1000)
    assert volume == TailVolume(gradient_bytes=2000, weight_bytes=2000, update_bytes=7000)


def test_more_nodes_and_larger_models_have_longer_tails() -> None:
    tails = [
        analytic_for_cluster(model_spec(name), cluster).tail_us(cluster)
        for name, cluster in [
            ("wan2.1-1.3b", even_cluster(1, 8)),
            ("wan2.1-14b", even_cluster(1, 8)),
            ("wan2.1-14b", even_cluster(4, 8)),
        ]
    ]
    assert 0 < tails[0] < tails[1] < tails[2]


def table(measured_tail_us: int) -> TableCostModel:
    row = CostRow(
        task="denoise",
        device_type="T4",
        degree=1,
        batch=1,
        shape=Shape(frames=5, height=64, width=64),
        duration_us=100,
        memory_bytes=0,
    )
    model = model_spec("wan2.1-1.3b")
    return TableCostModel(model=model, rows=(row,), measured_tail_us=measured_tail_us)


def test_a_measured_tail_survives_json_and_corrections() -> None:
    measured = table(4321)
    again = cost_table_from_json(cost_table_to_json(measured), "here")
    assert again == measured
    assert again.version == measured.version != table(0).version
    corrected = CorrectedCostModel(base=again, corrections=())
    assert corrected.tail_us(even_cluster()) == 4321


def test_a_table_without_a_tail_writes_none() -> None:
    assert "tail_us" not in cost_table_to_json(table(0))


def test_a_negative_tail_is_refused() -> None:
    with pytest.raises(InputError, match="0 us or more"):
        table(-1)
