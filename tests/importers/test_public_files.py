"""Shape logs, bucket tables and durations of the public data."""

import json
from pathlib import Path
from typing import Any

import pytest

from arachne_opt.errors import InputError
from arachne_opt.importers.buckets import read_bucket_tables
from arachne_opt.importers.durations import read_durations
from arachne_opt.importers.workloads import read_workload_log
from arachne_opt.workload import Shape


def put(folder: Path, value: Any, name: str = "workload_x_720p.json") -> Path:
    file = folder / name
    file.write_text(json.dumps(value), encoding="utf-8")
    return file


def test_each_rank_of_a_log_becomes_a_micro_batch(tmp_path: Path) -> None:
    ranks = [[2, 65, 1280, 720, 12], [1, 5, 720, 1280, None]]
    found = read_workload_log(put(tmp_path, {"trace": [{"it": 3, "ranks": ranks}]}))
    assert found.name == "x_720p"
    first, second = found.iterations[0].micro_batches
    assert (first.id, first.size, first.text_tokens) == ("it3-rank0", 2, 12)
    assert first.shape == Shape(frames=65, height=1280, width=720)
    assert (second.size, second.text_tokens) == (1, 0)


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ({"rows": []}, "the key 'trace' is missing"),
        ([], "no JSON object"),
        ({"trace": [{"it": 0, "ranks": [[1, 2, 3]]}]}, "malformed iteration 0"),
        ({"trace": [{"it": 0, "ranks": [[1, 0, 3, 4, 5]]}]}, "at least 1"),
        ({"trace": [{"it": 0, "ranks": [[1, None, 3, 4, 5]]}]}, "only the text tokens"),
        ({"trace": [{"it": 0, "ranks": []}]}, "malformed iteration 0"),
        ({"trace": [7]}, "malformed iteration 7"),
    ],
)
def test_a_malformed_log_is_explained(tmp_path: Path, value: Any, expected: str) -> None:
    with pytest.raises(InputError) as caught:
        read_workload_log(put(tmp_path, value))
    assert expected in str(caught.value)
    assert "workload_x_720p.json" in str(caught.value)


def test_all_public_logs_are_read(shared_data: Path) -> None:
    files = sorted((shared_data / "workloads").glob("workload_*.json"))
    sizes = {}
    for file in files:
        found = read_workload_log(file)
        sizes[found.name] = len(found.iterations)
        assert found.clip_count >= sum(len(it.micro_batches) for it in found.iterations)
    assert sizes["hunyuan_720p_129"] == 18
    assert sizes["wan_360p"] == 9
    assert len(sizes) == 6


def test_labels_of_bucket_tables_become_shapes(tmp_path: Path) -> None:
    value = {"repo": "a/b", "c.py": {"960px": {"5": [1.0, 6], "9": [1.0, 4]}}}
    tables = read_bucket_tables(put(tmp_path, value))
    rows = [(str(b.shape), b.batch) for b in tables["c"].buckets]
    assert rows == [("5x720x1280", 6), ("9x720x1280", 4)]


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ({"repo": "x"}, "holds no bucket table"),
        ({"c.py": {"960": {"5": [1.0, 6]}}}, "cannot read the bucket label '960'"),
        ({"c.py": {"960px": {"5": 6}}}, "malformed table 'c'"),
        ({"c.py": {"960px": {"5": [1.0, 0]}}}, "at least one clip"),
    ],
)
def test_malformed_tables_are_explained(tmp_path: Path, value: Any, expected: str) -> None:
    with pytest.raises(InputError) as caught:
        read_bucket_tables(put(tmp_path, value))
    assert expected in str(caught.value)


def test_all_public_bucket_tables_are_read(shared_data: Path) -> None:
    tables = read_bucket_tables(shared_data / "cascades" / "buckets.json")
    assert len(tables) >= 4
    assert len(tables["bucket_config"].buckets) == 32


def test_durations_become_measurements(tmp_path: Path) -> None:
    rows = {"vae": {"2": [7.5, "exact"], "4": [4.0, "est"]}, "dit": {"8": [3.0, "inferred"]}}
    path = put(tmp_path, {"shapes": {"2_69": rows}})
    found = read_durations(path)
    assert [(m.task, m.degree, m.duration_us) for m in found] == [
        ("encode", 2, 7_500_000),
        ("denoise", 8, 3_000_000),
    ]
    assert (found[0].batch, found[0].frames) == (2, 69)
    assert len(read_durations(path, allow_estimates=True)) == 3


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ({"shapes": {"2x69": {}}}, "is not clips_frames"),
        ({"shapes": {"2_69": {"vae": {}}}}, "malformed 'dit'"),
        ({"shapes": {"2_69": {"vae": {"2": 5}, "dit": {}}}}, "malformed 'vae'"),
    ],
)
def test_malformed_durations_are_explained(tmp_path: Path, value: Any, expected: str) -> None:
    with pytest.raises(InputError) as caught:
        read_durations(put(tmp_path, value))
    assert expected in str(caught.value)
