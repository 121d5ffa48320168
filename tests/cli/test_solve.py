"""``arachne solve cascade``: plans, cache, files, exit codes."""

import json
import os
import resource
import shutil
import signal
import sqlite3
import subprocess
import sys
import time
from pathlib import Path

import pytest

from arachne_opt.cascade.check import check_plan
from arachne_opt.cascade.plan import plan_from_json
from arachne_opt.cascade.problem_json import problem_from_json
from tests.cli.conftest import Run

ROOT = Path(__file__).resolve().parent.parent.parent
CLUSTER = """format = "arachne.cluster/1"
name = "pair"

[[node]]
name = "left"
device_type = "H100-80"
devices = 8

[[node]]
name = "right"
device_type = "A100-80"
devices = 8
"""


def solve(manifest: Path, *extra: object) -> list[object]:
    source = ["--workload", manifest, "--cluster", "A100-80:4x2", "--model", "wan2.1-1.3b"]
    return ["solve", "cascade", *source, "--time-limit", "1", *extra]


def test_plans_are_stored_and_found_again(arachne: Run, manifest: Path) -> None:
    code, out, _ = arachne(*solve(manifest, "--format", "json"))
    first = json.loads(out)
    assert code == 0
    assert first["format"] == "arachne.solve/1"
    assert [plan["cached"] for plan in first["plans"]] == [False]
    assert first["plans"][0]["makespan_us"] >= first["plans"][0]["bound_us"] > 0

    code, out, _ = arachne(*solve(manifest, "--format", "json"))
    again = json.loads(out)["plans"][0]
    assert code == 0
    assert again["cached"]
    assert again["id"] == first["plans"][0]["id"]
    assert again["lookup_s"] < 0.5


def test_renumbered_nodes_hit_and_another_cluster_misses(
    arachne: Run, manifest: Path, tmp_path: Path
) -> None:
    left, right = tmp_path / "a.toml", tmp_path / "b.toml"
    left.write_text(CLUSTER)
    head, one, two = CLUSTER.split("[[node]]")
    right.write_text("[[node]]".join([head, two + "\n", one]))
    wide = tmp_path / "c.toml"
    wide.write_text(CLUSTER.replace("devices = 8", "devices = 4", 1))

    cached = []
    for cluster in (left, right, wide):
        source = ["--workload", manifest, "--cluster", cluster, "--model", "wan2.1-1.3b"]
        limits = ["--time-limit", "1", "--format", "json"]
        code, out, _ = arachne("solve", "cascade", *source, *limits)
        assert code == 0
        cached.append(json.loads(out)["plans"][0]["cached"])
    assert cached == [False, True, False]


def test_the_exported_plan_is_legal(arachne: Run, manifest: Path, tmp_path: Path) -> None:
    code, out, _ = arachne(*solve(manifest, "--out", tmp_path / "plans.jsonl", "--format", "json"))
    assert code == 0
    exported = json.loads((tmp_path / "plans.jsonl").read_text())
    plan_id = json.loads(out)["plans"][0]["id"]
    record = json.loads(arachne("plans", "show", plan_id, "--format", "json")[1])
    problem = problem_from_json(record["problem"])
    assert check_plan(problem, plan_from_json(exported, problem)) == ()
    assert json.loads(arachne("plans", "export", plan_id)[1]) == exported


def test_no_cache_solves_afresh(arachne: Run, manifest: Path) -> None:
    arachne(*solve(manifest))
    out = arachne(*solve(manifest, "--no-cache", "--format", "json"))[1]
    assert not json.loads(out)["plans"][0]["cached"]


def test_a_longer_limit_searches_again(arachne: Run, manifest: Path) -> None:
    arachne(*solve(manifest, "--solver", "list"))
    out = arachne(*solve(manifest, "--solver", "portfolio", "--format", "json"))[1]
    plan = json.loads(out)["plans"][0]
    assert plan["solver"] == "portfolio" or plan["status"] == "optimal"


def test_an_unreached_gap_exits_with_4_and_prints_the_plan(arachne: Run, tmp_path: Path) -> None:
    hard = tmp_path / "hard.csv"
    arachne("workload", "generate", "--clips", 24, "--preset", "720p", "--seed", 3, "--out", hard)
    source = ["--workload", hard, "--cluster", "H100-80:8x3", "--model", "hunyuanvideo-13b"]
    grouping = ["--iteration-size", 12, "--iterations", "0:1"]
    limits = ["--time-limit", "0.05", "--gap", "0.0001", "--format", "json"]
    code, out, _ = arachne("solve", "cascade", *source, *grouping, *limits)
    plan = json.loads(out)["plans"][0]
    assert plan["gap"] > 0.0001
    assert code == 4


def test_public_instances_are_planned(arachne: Run, shared_data: Path, tmp_path: Path) -> None:
    file = shared_data / "cascades" / "instances_wa16_16gpu.json"
    options = ["--time-limit", "1", "--out", tmp_path / "plans.jsonl"]
    assert arachne("solve", "cascade", "--instances", file, *options)[0] == 0
    judge = shared_data.parent / "judges" / "judge_cascade.py"
    command = [sys.executable, judge, file, tmp_path / "plans.jsonl"]
    verdict = subprocess.run(command, capture_output=True, text=True)
    assert verdict.returncode == 0, verdict.stdout
    assert "3 of 3 plans legal" in verdict.stdout


def test_instances_with_estimates_only_are_named(arachne: Run, shared_data: Path) -> None:
    file = shared_data / "cascades" / "instances_n4_32gpu.json"
    code, _, err = arachne("solve", "cascade", "--instances", file)
    assert code == 2
    assert "n4_g32_it2" in err
    assert "--allow-estimates" in err


# ---------------------------------------------------------------------------------- bad input


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("num_frames", "frame_number", ["num_frames", "clips.csv"]),
        (
            "a,,a red kite over the sea,33",
            "a,,a red kite over the sea,0",
            ["clips.csv", "line 2", "0"],
        ),
        (
            "a,,a red kite over the sea,33",
            "a,,a red kite over the sea,x",
            ["clips.csv", "line 2", "x"],
        ),
        ("b,,a dog", "a,,a dog", ["clips.csv", "line 3", "a"]),
    ],
)
def test_a_bad_manifest_is_refused(
    arachne: Run, manifest: Path, tmp_path: Path, old: str, new: str, words: list[str]
) -> None:
    manifest.write_text(manifest.read_text().replace(old, new))
    code, out, err = arachne(*solve(manifest))
    assert code == 2
    assert out == ""
    assert all(word in err for word in words), err
    assert not (tmp_path / "plans.db").exists()


def test_a_clip_that_fits_no_degree_is_named_with_its_memory(arachne: Run, tmp_path: Path) -> None:
    clips = tmp_path / "clips.csv"
    clips.write_text(
        "id,path,caption,num_frames,height,width,fps\nwhale,,a whale,129,1088,1920,24\n"
    )
    source = ["--workload", clips, "--cluster", "T4:1", "--model", "hunyuanvideo-13b"]
    code, _, err = arachne("solve", "cascade", *source)
    assert code == 3
    assert "whale" in err
    assert "GiB" in err


def test_a_degree_that_does_not_divide_the_heads_is_explained(arachne: Run, manifest: Path) -> None:
    code, _, err = arachne(*solve(manifest, "--degrees", "1,5"))
    assert code == 2
    assert "degree 5 does not divide the 12 heads" in err
    assert "1, 2, 3, 4, 6, 12" in err


@pytest.mark.parametrize(
    ("cluster", "words"),
    [
        ("H100-8O:8x4", ["H100-8O", "H100-80"]),
        ("H100-80:0x4", ["0"]),
        ("nowhere.toml", ["nowhere"]),
    ],
)
def test_a_bad_cluster_is_refused(
    arachne: Run, manifest: Path, cluster: str, words: list[str]
) -> None:
    source = ["--workload", manifest, "--cluster", cluster, "--model", "wan2.1-1.3b"]
    code, _, err = arachne("solve", "cascade", *source)
    assert code == 2
    assert all(word in err for word in words), err


def test_a_typo_in_a_cluster_file_gets_a_suggestion(arachne: Run, tmp_path: Path) -> None:
    file = tmp_path / "cluster.toml"
    file.write_text(CLUSTER.replace("device_type", "device_typ", 1))
    code, _, err = arachne("cluster", "validate", file)
    assert code == 2
    assert "device_typ" in err
    assert "did you mean" in err
    assert "cluster.toml" in err


def test_an_unknown_solver_gets_a_suggestion(arachne: Run, manifest: Path) -> None:
    code, _, err = arachne(*solve(manifest, "--solver", "portfolo"))
    assert code == 2
    assert "portfolio" in err


def test_a_newer_database_is_refused(arachne: Run, manifest: Path, tmp_path: Path) -> None:
    arachne(*solve(manifest))
    with sqlite3.connect(tmp_path / "plans.db") as connection:
        connection.execute("UPDATE alembic_version SET version_num = '9999'")
    connection.close()
    code, _, err = arachne(*solve(manifest))
    assert code == 6
    assert "9999" in err


def test_a_folder_is_no_database(arachne: Run, manifest: Path, tmp_path: Path) -> None:
    code, _, err = arachne(*solve(manifest, "--db", tmp_path))
    assert code == 6
    assert str(tmp_path) in err


def test_a_read_only_database_stores_nothing(arachne: Run, manifest: Path, tmp_path: Path) -> None:
    disk = tmp_path / "disk"
    disk.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=4m", "tmpfs", str(disk)]
    if shutil.which("mount") is None or subprocess.run(mount, capture_output=True).returncode:
        pytest.skip("mounting a disk needs root")
    try:
        store = ("--db", disk / "plans.db")
        assert arachne(*solve(manifest, *store))[0] == 0
        subprocess.run(["mount", "-o", "remount,ro", str(disk)], check=True)
        before = arachne("plans", "list", "--format", "json", *store)[1]
        code, _, err = arachne(*solve(manifest, "--no-cache", *store))
        assert code == 6
        assert "read-only" in err
        assert arachne("plans", "list", "--format", "json", *store)[1] == before
    finally:
        subprocess.run(["umount", str(disk)], check=True)


def _limit_file_size() -> None:
    resource.setrlimit(resource.RLIMIT_FSIZE, (200_000, 200_000))
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)


def test_a_full_disk_leaves_no_half_written_plan(
    arachne: Run, manifest: Path, tmp_path: Path
) -> None:
    """A limit on the size of files stands for the disk: writing fails in the same way."""
    assert arachne("db", "upgrade")[0] == 0
    clips = tmp_path / "many.csv"
    arachne("workload", "generate", "--clips", 600, "--preset", "mixed", "--out", clips)
    command = [sys.executable, "-m", "arachne_opt", "solve", "cascade", "--workload", clips]
    command += ["--cluster", "H100-80:8x4", "--model", "wan2.1-1.3b", "--solver", "list"]
    command += ["--iteration-size", "300"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        command, env=environment, capture_output=True, text=True, preexec_fn=_limit_file_size
    )
    assert done.returncode == 6, done.stderr
    assert "disk" in done.stderr or "full" in done.stderr or "write" in done.stderr
    assert arachne("db", "check")[0] == 0


def test_ctrl_c_stores_the_best_plan_so_far(arachne: Run, tmp_path: Path) -> None:
    clips = tmp_path / "clips.csv"
    arachne("workload", "generate", "--clips", 48, "--preset", "720p", "--seed", 3, "--out", clips)
    assert arachne("db", "upgrade")[0] == 0
    command = [sys.executable, "-m", "arachne_opt", "solve", "cascade", "--workload", clips]
    command += ["--cluster", "H100-80:8x3", "--model", "hunyuanvideo-13b", "--time-limit", "300"]
    command += ["--iteration-size", "24", "--iterations", "0:1"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    process = subprocess.Popen(command, env=environment, stderr=subprocess.PIPE, text=True)
    time.sleep(4)
    process.send_signal(signal.SIGINT)
    begin_s = time.monotonic()
    _, err = process.communicate(timeout=30)
    assert time.monotonic() - begin_s < 5
    assert process.returncode == 130, err
    plans = json.loads(arachne("plans", "list", "--format", "json")[1])["plans"]
    assert len(plans) == 1
