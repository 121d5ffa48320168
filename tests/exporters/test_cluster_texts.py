"""Clusters that are written come back."""

import json
from pathlib import Path

import pytest

from arachne_opt.cluster import Cluster
from arachne_opt.cluster_file import parse_shorthand, read_cluster
from arachne_opt.errors import InputError
from arachne_opt.exporters.cluster_texts import cluster_json, cluster_skypilot, cluster_toml
from arachne_opt.importers.cluster_facts import ClusterOptions
from arachne_opt.importers.cluster_sources import CLUSTER_FORMATS, recognise_cluster

EXAMPLES = Path(__file__).parents[2] / "examples"


def clusters() -> list[Cluster]:
    files = [read_cluster(str(EXAMPLES / name)) for name in ("cluster.toml", "own-device.toml")]
    return [*files, parse_shorthand("H100-80:8x4, A100-80:4x2"), parse_shorthand("CPU:2")]


@pytest.mark.parametrize("number", range(4))
def test_toml_comes_back(tmp_path: Path, number: int):
    cluster = clusters()[number]
    file = tmp_path / "c.toml"
    file.write_text(cluster_toml(cluster).text)
    assert read_cluster(str(file)) == cluster


@pytest.mark.parametrize("number", range(4))
def test_json_comes_back(tmp_path: Path, number: int):
    cluster = clusters()[number]
    file = tmp_path / "c.json"
    file.write_text(cluster_json(cluster).text)
    assert recognise_cluster(file)[0] == "arachne"
    assert CLUSTER_FORMATS["arachne"].read(file, ClusterOptions()).cluster == cluster


def test_skypilot_comes_back_but_for_what_is_said_to_be_lost(tmp_path: Path):
    pytest.importorskip("yaml", reason="PyYAML is not installed")
    cluster = parse_shorthand("A100-80:8x4")
    made = cluster_skypilot(cluster)
    file = tmp_path / "c.yaml"
    file.write_text(made.text)
    found = CLUSTER_FORMATS["skypilot"].read(file, ClusterOptions(name=cluster.name)).cluster
    assert found == cluster
    assert "NIC groups" in made.lost[0]


def test_skypilot_takes_equal_nodes_only():
    with pytest.raises(InputError, match="has equal nodes, these are A100-80 x 4, H100-80 x 8"):
        cluster_skypilot(parse_shorthand("H100-80:8x4, A100-80:4x2"))
    with pytest.raises(InputError, match="no name for CPU"):
        cluster_skypilot(parse_shorthand("CPU:2"))


def test_the_json_is_that_of_the_command_line():
    value = json.loads(cluster_json(parse_shorthand("CPU:2")).text)
    assert value["format"] == "arachne.cluster/1"
