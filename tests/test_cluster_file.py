"""Cluster files and shorthand."""

import json
from pathlib import Path

import pytest
from hypothesis import given, settings

from arachne_opt.cluster import PUBLIC_PENALTY_DECAY, PUBLIC_PENALTY_SCALE
from arachne_opt.cluster_file import (
    cluster_from_dict,
    cluster_to_dict,
    parse_shorthand,
    read_cluster,
)
from arachne_opt.errors import InputError
from tests.strategies import clusters

EXAMPLES = Path(__file__).parent.parent / "examples"

GOOD = """
format = "arachne.cluster/1"
[[node]]
count = 2
device_type = "A100-80"
devices = 4
"""


def write(folder: Path, text: str) -> str:
    file = folder / "lab.toml"
    file.write_text(text, encoding="utf-8")
    return str(file)


def message(folder: Path, text: str) -> str:
    with pytest.raises(InputError) as caught:
        read_cluster(write(folder, text))
    assert caught.value.exit_code == 2
    shown = str(caught.value)
    assert "lab.toml" in shown
    return shown


def test_a_small_file_takes_usual_values_for_what_it_leaves_out(tmp_path: Path) -> None:
    cluster = read_cluster(write(tmp_path, GOOD))

    assert cluster.name == "lab"
    assert [node.name for node in cluster.nodes] == ["node0", "node1"]
    assert cluster.device_count == 8
    assert cluster.nodes[0].nic_of_device == (0, 0, 1, 1)
    assert cluster.nodes[0].intra_link.bandwidth_bytes_per_s == 300 * 10**9
    assert cluster.inter_link.bandwidth_bytes_per_s == 25 * 10**9
    assert cluster.penalty.scale == PUBLIC_PENALTY_SCALE
    assert cluster.penalty.decay == PUBLIC_PENALTY_DECAY


def test_the_examples_say_what_their_comments_promise() -> None:
    cluster = read_cluster(str(EXAMPLES / "cluster.toml"))

    assert [n.name for n in cluster.nodes][3:5] == ["h100-3", "a100-0"]
    assert cluster.device_types["A100-80"].memory_bytes == 79 * 2**30
    assert cluster.count_of_type == {"H100-80": 32, "A100-80": 16}
    assert cluster.nodes[4].zone == "west"
    assert cluster.zone_links[0].link.latency_us == 1000

    own = read_cluster(str(EXAMPLES / "own-device.toml"))
    assert own.device_types["Lab-48"].peak_flops_per_s == 150 * 10**12


def test_eight_devices_share_four_nic_groups_on_two_numa_domains() -> None:
    node = parse_shorthand("H100-80:8").nodes[0]
    assert node.nic_of_device == (0, 0, 1, 1, 2, 2, 3, 3)
    assert node.numa_of_nic == (0, 0, 1, 1)


@pytest.mark.parametrize(
    ("text", "sizes"),
    [
        ("H100-80:8x4", [8] * 4),
        ("H100-80:8 x 4, A100-80:8x2", [8] * 6),
        ("CPU:4", [4]),
        ('"H100-80:8" × 4', [8] * 4),
        ("T4:1", [1]),
    ],
)
def test_shorthand_names_devices_and_nodes(text: str, sizes: list[int]) -> None:
    assert [node.device_count for node in read_cluster(text).nodes] == sizes


def test_two_groups_of_one_type_are_numbered_through() -> None:
    cluster = parse_shorthand("H100-80:8x2,H100-80:4")
    assert [node.name for node in cluster.nodes] == ["node0", "node1", "node2"]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("H100-80", "neither a file nor a cluster shorthand"),
        ("H100-80:8x", "neither a file nor a cluster shorthand"),
        ("H100-80:8x4,", "neither a file nor a cluster shorthand"),
        ("", "neither a file nor a cluster shorthand"),
        ("H100:8", "did you mean 'H100-80'?"),
        ("A100-800:8", "did you mean 'A100-80'?"),
        ("H100-80:0", "at least 1, not 0"),
        ("H100-80:8x0", "at least 1, not 0"),
        ("missing.toml", "cannot read the cluster file"),
        ("no/such/folder", "cannot read the cluster file"),
    ],
)
def test_bad_shorthand_is_explained(text: str, expected: str) -> None:
    with pytest.raises(InputError) as caught:
        read_cluster(text)
    assert expected in str(caught.value)


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ("count = 2", "cuont = 2", ["node 1", "'cuont'", "did you mean 'count'?"]),
        ("[[node]]", "[[nodes]]", ["unknown key 'nodes'", "did you mean 'node'?"]),
        ("A100-80", "A100_80", ["device_type", "'A100_80'", "did you mean 'A100-80'?"]),
        ("count = 2", "count = 0", ["node 1: count", "at least 1, not 0"]),
        ("devices = 4", "devices = 0", ["node 1: devices", "at least 1, not 0"]),
        ("devices = 4", "devices = -4", ["node 1: devices", "at least 1, not -4"]),
        ("devices = 4", "", ["node 1", "'devices' is missing"]),
        ('device_type = "A100-80"', "", ["node 1", "'device_type' is missing"]),
        ("devices = 4", 'devices = "4"', ["node 1: devices", "whole number", "the text '4'"]),
        ("devices = 4", "devices = 4.0", ["whole number", "the number 4.0"]),
        ("count = 2", "count = true", ["whole number", "the boolean True"]),
        ("cluster/1", "cluster/2", ["format is 'arachne.cluster/2'"]),
        ('format = "arachne.cluster/1"', "", ["'format' is missing"]),
        ("count = 2", "nics = [0, 0]", ["node 1: nics", "2 devices, but the node has 4"]),
        ("count = 2", "nics = [0, 0, 1, -1]", ["node 1: nics", "at least 0, not -1"]),
        ("count = 2", "numa = [0]", ["node 1: numa", "1 NUMA domains for 2 NIC groups"]),
        ("count = 2", 'memory = "80 Gib"', ["node 1: memory", "unknown size unit 'Gib'"]),
        ("count = 2", "memory = 0", ["node 1: memory", "at least 1, not 0"]),
        (
            "count = 2",
            "memory = 1.5",
            ["node 1: memory", "a string with a unit, found the number 1.5"],
        ),
        ("count = 2", 'name = "x"\nname = "y"', ["no valid TOML", "line 5"]),
        ("count = 2", "zone = 3", ["node 1: zone", "a string, found the number 3"]),
        ("count = 2", "intra_link = 5", ["node 1: intra_link", "a table of keys"]),
        ("count = 2", "intra_link = {}", ["intra_link", "'bandwidth' is missing"]),
        ("count = 2", "intra_link = {bandwith = 5}", ["did you mean 'bandwidth'?"]),
        ("count = 2", "intra_link = {bandwidth = 0}", ["bandwidth: must be at least 1, not 0"]),
        ("count = 2", 'intra_link = {bandwidth = "5 GB"}', ["unknown bandwidth unit 'GB'"]),
        (
            "count = 2",
            'intra_link = {bandwidth = "5 GB/s", latency = "3 min"}',
            ["latency", "unknown time unit 'min'"],
        ),
        ("devices = 4", "devices = 4\n[penalty]\nscale = -1", ["penalty: scale", ">= 0"]),
        ("devices = 4", "devices = 4\n[penalty]\nscale = inf", ["penalty: scale", "finite"]),
        ("devices = 4", "devices = 4\n[penalty]\ndecay = 'x'", ["penalty: decay", "a number"]),
        (
            "devices = 4",
            'devices = 4\n[[zone_link]]\nzones = ["default", "west"]\nbandwidth = 1',
            ["zone_link 1: zones", "no node is in zone 'west'"],
        ),
        (
            "devices = 4",
            'devices = 4\n[[zone_link]]\nzones = ["default"]\nbandwidth = 1',
            ["zone_link 1: zones", "two different zones"],
        ),
        ("devices = 4", "devices = 4 4", ["no valid TOML", "line 6, column"]),
        ("[[node]]", "node = 3\n[x]", ["unknown key 'x'"]),
    ],
)
def test_a_bad_file_names_the_place_and_the_way_out(
    tmp_path: Path, old: str, new: str, expected: list[str]
) -> None:
    shown = message(tmp_path, GOOD.replace(old, new, 1))
    for part in expected:
        assert part in shown


def test_a_file_without_nodes_is_refused(tmp_path: Path) -> None:
    assert "at least one" in message(tmp_path, 'format = "arachne.cluster/1"')


def test_a_list_in_place_of_a_table_is_refused() -> None:
    with pytest.raises(InputError, match="expected a table of keys, found a list"):
        cluster_from_dict([], "here")


def test_a_file_that_is_no_text_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "bytes.toml"
    file.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(InputError, match="cannot read the cluster file"):
        read_cluster(str(file))


def test_equal_names_of_two_groups_are_refused(tmp_path: Path) -> None:
    group = '[[node]]\nname = "a"\ndevice_type = "T4"\ndevices = 1\n'
    text = 'format = "arachne.cluster/1"\n' + group + group
    assert "two nodes are called 'a'" in message(tmp_path, text)


def test_one_type_with_two_memories_is_refused(tmp_path: Path) -> None:
    group = '[[node]]\ndevice_type = "T4"\ndevices = 1\n'
    text = 'format = "arachne.cluster/1"\n' + group + group + 'memory = "8 GiB"\n'
    assert "two descriptions of device type T4" in message(tmp_path, text)


def test_an_own_type_goes_before_the_public_one(tmp_path: Path) -> None:
    own = '[[device_type]]\nname = "T4"\nmemory = "15 GiB"\npeak_flops = "60 TFLOP/s"\n'
    own += 'memory_bandwidth = "300 GB/s"\n[[node]]\ndevice_type = "T4"\ndevices = 1\n'
    cluster = read_cluster(write(tmp_path, 'format = "arachne.cluster/1"\n' + own))
    assert cluster.device_types["T4"].memory_bytes == 15 * 2**30


def test_an_own_type_needs_its_link_named_and_is_guessed_when_mistyped(tmp_path: Path) -> None:
    own = 'format = "arachne.cluster/1"\n[[device_type]]\nname = "Lab-48"\nmemory = 1\n'
    own += "peak_flops = 1\nmemory_bandwidth = 1\n[[node]]\ndevices = 1\n"
    assert "no usual link" in message(tmp_path, own + 'device_type = "Lab-48"\n')
    assert "did you mean 'Lab-48'?" in message(tmp_path, own + 'device_type = "Lab48"\n')


def test_zones_are_linked_once_only(tmp_path: Path) -> None:
    text = 'format = "arachne.cluster/1"\n'
    for zone in ("a", "b"):
        text += f'[[node]]\ndevice_type = "T4"\ndevices = 1\nzone = "{zone}"\n'
    for pair in ('["a", "b"]', '["b", "a"]'):
        text += f"[[zone_link]]\nzones = {pair}\nbandwidth = 5\n"
    assert "linked twice" in message(tmp_path, text)


def test_a_byte_order_mark_does_no_harm(tmp_path: Path) -> None:
    file = tmp_path / "lab.toml"
    file.write_text(GOOD, encoding="utf-8-sig")
    assert read_cluster(str(file)).device_count == 8


@settings(max_examples=60, deadline=None)
@given(clusters(max_nodes=6))
def test_any_cluster_comes_back_from_its_tables(cluster) -> None:
    through_json = json.loads(json.dumps(cluster_to_dict(cluster)))
    assert cluster_from_dict(through_json, "test") == cluster


def test_equal_nodes_become_one_group() -> None:
    tables = cluster_to_dict(parse_shorthand("H100-80:8x64,A100-80:8x64"))
    assert [group["count"] for group in tables["node"]] == [64, 64]
    named = cluster_to_dict(read_cluster(str(EXAMPLES / "cluster.toml")))
    assert [(g["name"], g["count"]) for g in named["node"]] == [("h100", 4), ("a100", 2)]
