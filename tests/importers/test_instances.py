"""Published instances."""

import json
from pathlib import Path
from typing import Any

import pytest

from arachne_opt.cluster import PUBLIC_PENALTY_SCALE
from arachne_opt.errors import InputError
from arachne_opt.importers.instances import read_instances


def instance(name: str = "x_g16_it0", **changes: Any) -> dict[str, Any]:
    task = {
        "id": 0,
        "data_rank": 0,
        "shape": [2, 65, 1280, 720],
        "text": None,
        "vae": [[1, 9.000001, "est"], [2, 5.0, "exact"], [4, 3.25, "inferred"]],
        "dit": [[4, 20.5, "exact"], [8, 11.0, "est"]],
    }
    raw = {"id": name, "n_gpus": 16, "machine_size": 8, "tasks": [task], "published": {}}
    return raw | changes


def put(folder: Path, *instances: dict[str, Any], name: str = "instances_x.json") -> Path:
    file = folder / name
    file.write_text(json.dumps({"repo": "a/b", "instances": list(instances)}), encoding="utf-8")
    return file


def test_estimated_candidates_are_left_out_unless_allowed(tmp_path: Path) -> None:
    (plain,) = read_instances(put(tmp_path, instance()))
    (full,) = read_instances(put(tmp_path, instance()), allow_estimates=True)

    def options(found, task: int) -> list[tuple[int, int]]:
        row = found.problem.cascades[0].tasks[task]
        return [(o.degree, o.duration_us) for o in row.options]

    assert options(plain, 0) == [(2, 5_000_000), (4, 3_250_000)]
    assert options(plain, 1) == [(4, 20_500_000)]
    assert options(full, 0)[0] == (1, 9_000_001)
    assert (plain.estimated, full.estimated) == (False, True)
    assert plain.problem.fingerprint() != full.problem.fingerprint()
    assert plain.source == "a/b"


def test_the_cluster_has_the_published_topology(tmp_path: Path) -> None:
    (found,) = read_instances(put(tmp_path, instance(n_gpus=20)))
    cluster = found.problem.cluster
    assert [node.device_count for node in cluster.nodes] == [8, 8, 4]
    assert cluster.nodes[0].nic_of_device == (0, 0, 1, 1, 2, 2, 3, 3)
    assert cluster.nodes[0].numa_of_nic == (0, 0, 1, 1)
    assert cluster.penalty.scale == PUBLIC_PENALTY_SCALE
    reference = {0: 1_211_387, 0.5: 1_100_904, 1: 1_048_166}
    groups = {0: (0, 10), 0.5: (0, 2, 8), 1: (0, 8)}
    for overlap, group in groups.items():
        assert cluster.penalty_ppm(group) == pytest.approx(reference[overlap], abs=1)


def test_the_denoise_task_follows_its_encode_and_names_tell_the_shape(tmp_path: Path) -> None:
    (found,) = read_instances(put(tmp_path, instance()))
    cascade = found.problem.cascades[0]
    assert [task.name for task in cascade.tasks] == ["encode", "denoise"]
    assert cascade.tasks[1].predecessors == (0,)
    assert cascade.label == "2x65x1280x720"


def test_the_best_makespan_of_each_peer_counts_and_others_do_not(tmp_path: Path) -> None:
    published = {
        "genetic_final_2026": 30.0,
        "genetic_2025": 29.5,
        "genetic_internal_best_2026": 28.25,
        "genetic_2026_no_topology": 1.0,
        "genetic_topology_off": 1.0,
        "genetic_plan_s": 2.0,
        "genetic_trace": {"precedence_violations_tasks": []},
        "flex_sp_2026": 40.0,
        "arachne_reported_iteration_time_s": 3.0,
    }
    rules = {"megatron_lm": 41.5, "flex_sp": 40.0, "flex_sp_alloc": [4]}
    raw = instance(published=published, rule_recomputed=rules)
    (found,) = read_instances(put(tmp_path, raw))
    assert found.published_us == {
        "genetic": 29_500_000,
        "genetic_internal": 28_250_000,
        "flex_sp": 40_000_000,
    }
    assert found.best_published_us == 28_250_000
    assert found.recomputed_us == {"megatron_lm": 41_500_000, "flex_sp": 40_000_000}
    assert found.planning_s == 2.0


def test_nothing_published_is_none(tmp_path: Path) -> None:
    (found,) = read_instances(put(tmp_path, instance()))
    assert found.best_published_us is None


def estimates_only(name: str) -> dict[str, Any]:
    raw = instance(name)
    raw["tasks"][0]["dit"] = [[4, 20.5, "est"]]
    return raw


def test_tasks_with_estimates_only_are_all_named_with_the_way_out(tmp_path: Path) -> None:
    path = put(tmp_path, instance("a"), estimates_only("b"), estimates_only("c"))
    with pytest.raises(InputError) as caught:
        read_instances(path)
    shown = str(caught.value)
    assert "b (task 0 dit), c (task 0 dit)" in shown
    assert "--allow-estimates, or --exclude b --exclude c" in shown

    assert [i.id for i in read_instances(path, exclude=["b", "c"])] == ["a"]
    assert [i.id for i in read_instances(path, only="a")] == ["a"]
    assert len(read_instances(path, allow_estimates=True)) == 3


def test_patterns_choose_by_id(tmp_path: Path) -> None:
    path = put(tmp_path, *(instance(f"n4_g32_it{i}") for i in (0, 1, 10)))
    assert [i.id for i in read_instances(path, only="*_it1*")] == ["n4_g32_it1", "n4_g32_it10"]
    kept = read_instances(path, only=["*_it1*"], exclude=["*_it10"])
    assert [i.id for i in kept] == ["n4_g32_it1"]


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ({"only": "n4_g23_it0"}, "no instance matches 'n4_g23_it0' (did you mean 'n4_g32_it0'?)"),
        ({"exclude": "zzz*"}, "no instance matches 'zzz*'"),
        ({"exclude": "*"}, "the patterns leave no instance"),
    ],
)
def test_patterns_that_are_wrong_are_told(tmp_path: Path, arguments: dict, expected: str) -> None:
    with pytest.raises(InputError) as caught:
        read_instances(put(tmp_path, instance("n4_g32_it0")), **arguments)
    assert expected in str(caught.value)


def test_a_folder_is_read_file_by_file(tmp_path: Path) -> None:
    put(tmp_path, instance("b"), name="instances_1.json")
    put(tmp_path, instance("a"), name="instances_2.json")
    put(tmp_path, instance("c"), name="other.json")
    assert [i.id for i in read_instances(tmp_path)] == ["b", "a"]


def test_double_ids_over_files_are_refused(tmp_path: Path) -> None:
    put(tmp_path, instance("a"), name="instances_1.json")
    put(tmp_path, instance("a"), name="instances_2.json")
    with pytest.raises(InputError, match="two instances are called 'a'"):
        read_instances(tmp_path)


def test_an_empty_folder_and_a_missing_file_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"holds no instances_\*.json"):
        read_instances(tmp_path)
    with pytest.raises(InputError, match="cannot read instances"):
        read_instances(tmp_path / "absent.json")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("{", "cannot read instances"),
        ("[]", "no list 'instances'"),
        ('{"instances": 3}', "no list 'instances'"),
        ('{"instances": [3]}', "an instance needs an id"),
    ],
)
def test_files_of_another_kind_are_refused(tmp_path: Path, text: str, expected: str) -> None:
    (tmp_path / "i.json").write_text(text, encoding="utf-8")
    with pytest.raises(InputError, match=expected):
        read_instances(tmp_path / "i.json")


def test_instances_with_impossible_numbers_are_named_too(tmp_path: Path) -> None:
    raw = instance("slow")
    raw["tasks"][0]["vae"][1][1] = 1e13
    with pytest.raises(InputError, match=r"instance slow: an option takes 1e\+13 s"):
        read_instances(put(tmp_path, raw))


def test_malformed_instances_are_named(tmp_path: Path) -> None:
    raw = instance("bad")
    del raw["tasks"][0]["vae"]
    with pytest.raises(InputError, match=r"instance bad: malformed instance: KeyError 'vae'"):
        read_instances(put(tmp_path, raw))
    raw = instance("odd")
    raw["tasks"][0]["id"] = 4
    with pytest.raises(InputError, match="task ids must count from 0"):
        read_instances(put(tmp_path, raw))
    raw = instance("flag")
    raw["tasks"][0]["vae"][0][2] = "guess"
    with pytest.raises(InputError, match="unknown flag 'guess'"):
        read_instances(put(tmp_path, raw))


def test_all_public_instances_are_read(shared_data: Path) -> None:
    found = read_instances(shared_data / "cascades", allow_estimates=True)
    assert len(found) == 27
    assert {i.problem.cluster.device_count for i in found} == {16, 32, 64}
    assert all(i.best_published_us for i in found)
    with pytest.raises(InputError, match=r"n4_g32_it2.*n4_g64_it2"):
        read_instances(shared_data / "cascades")
    assert len(read_instances(shared_data / "cascades", exclude="n4_*_it2")) == 25


def test_the_published_best_agrees_with_the_raw_file(shared_data: Path) -> None:
    (found,) = read_instances(shared_data / "cascades", only="wa_g32_it0")
    assert found.published_us == {
        "genetic": 34_237_719,
        "genetic_internal": 30_751_287,
        "flex_sp": 44_014_208,
        "megatron_lm": 47_718_055,
    }
