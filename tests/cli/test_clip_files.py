"""Files of clips from the outside: scanned, quarantined, cached, decoded; and plans rehearsed."""

import json

import pytest
import torch
from safetensors.torch import save_file

from tests.executor.videos import damage, frames_of, write_video

pytest.importorskip("av", reason="needs the extra decode")

HEADER = "id,path,text_tokens,num_frames,height,width,fps\n"
TRAIN = ("train", "--model", "toy", "--cluster", "CPU:2", "--time-limit", "0.5")


def video_rows(folder):
    """Two videos, an image and cached latents; the second video is damaged half-way."""
    write_video(folder / "a.mkv", frames_of(24, 64, 96), fps=24)
    write_video(folder / "b.mp4", frames_of(9, 64, 96) // 2)
    damage(folder / "b.mp4")
    write_video(folder / "c.png", frames_of(1, 64, 96))
    save_file({"latents": torch.randn(4, 3, 8, 12)}, folder / "d.safetensors")
    rows = (("a.mkv", 24, 24), ("b.mp4", 9, 8), ("c.png", 1, 0), ("d.safetensors", 9, 8))
    return "".join(f"{p[0]},{folder / p},5,{n},64,96,{fps}\n" for p, n, fps in rows)


@pytest.fixture
def videos(tmp_path):
    manifest = tmp_path / "videos.csv"
    manifest.write_text(HEADER + video_rows(tmp_path))
    return manifest


def test_a_scan_reads_all_files_and_quarantines_bad_ones(arachne, videos):
    code, out, err = arachne("workload", "scan", videos, "--files")
    assert code == 2
    assert "3 clips, text tokens 5 to 5" in out
    assert "quarantined: clip b: " in err
    kept = json.loads((videos.parent / "videos.csv.quarantine.jsonl").read_text())
    assert kept["id"] == "b"
    assert kept["path"].endswith("b.mp4")
    code, out, err = arachne("workload", "show", videos, "--model", "toy", "--fps", "8")
    assert code == 0
    assert "1 clips are in quarantine" in err
    assert "1 clips: 24 frames at 24 fps -> 8 at 8 fps -> 5 trained" in err
    assert "1 clips: cached latents of 9 frames" in err
    assert "3 clips in 1 iterations" in out


def test_a_scan_of_good_files_is_content(arachne, videos):
    videos.write_text("".join(videos.read_text().splitlines(keepends=True)[:2]))
    code, out, _ = arachne("workload", "scan", videos, "--files", "--format", "json")
    assert code == 0
    assert json.loads(out)["quarantined"] == []
    assert not (videos.parent / "videos.csv.quarantine.jsonl").exists()


@pytest.mark.slow
def test_a_training_leaves_out_the_damaged_video_names_it_and_goes_on(arachne, videos, tmp_path):
    report = tmp_path / "report.json"
    options = ("--workload", videos, "--fps", "8", "--epochs", "2", "--report", report)
    code, out, err = arachne(*TRAIN, *options)
    assert code == 2
    assert "left out: clip b: " in out
    assert "1 clips were left out" in out
    assert "1 clips in quarantine" in err
    value = json.loads(report.read_text())
    assert [it["left_out"][0][0] for it in value["iterations"]] == ["b", "b"]
    # d has its latents: nothing to encode.
    tasks = {(t["micro_batch"], t["task"]) for t in value["iterations"][0]["tasks"]}
    assert sorted(task for _, task in tasks) == ["denoise"] * 4 + ["encode"] * 3
    code, out, err = arachne(*TRAIN, *options)
    assert code == 0
    assert "1 clips are in quarantine" in err
    assert "left out" not in out
    assert "1 clips of the manifest were not trained" in out
    (dropped,) = json.loads(report.read_text())["dropped"]
    assert dropped[0] == "b"
    assert dropped[1].startswith("in quarantine: ")
    (tmp_path / "videos.csv.quarantine.jsonl").unlink()
    code, out, _ = arachne(*TRAIN, *options, "--allow-left-out")
    assert code == 0
    assert "1 clips were left out" in out


@pytest.mark.slow
def test_a_stored_plan_is_rehearsed_without_its_clips(arachne, manifest, tmp_path):
    solve = (
        "solve",
        "cascade",
        "--workload",
        manifest,
        "--cluster",
        "CPU:8",
        "--time-limit",
        "0.5",
    )
    assert arachne(*solve, "--model", "tiny-wan")[0] == 0
    plan = json.loads(arachne("plans", "list", "--format", "json")[1])["plans"][0]
    speed = plan["objective_us"] / 300_000
    files = ("--report", tmp_path / "r.json", "--trace", tmp_path / "t.json")
    code, out, _ = arachne("train", "--emulate", "--plan", plan["id"], "--speed", speed, *files)
    assert code == 0
    assert out.startswith("emulated: ")
    value = json.loads((tmp_path / "r.json").read_text())
    assert value["emulated"] is True
    assert value["world_size"] == 8
    assert abs(value["iterations"][0]["planned_us"] - 300_000) < 1000
    assert json.loads((tmp_path / "t.json").read_text())["traceEvents"]
    runs = json.loads(arachne("runs", "list", "--format", "json")[1])["runs"]
    assert [run["status"] for run in runs] == ["emulated"]


def test_training_needs_clips_and_a_rehearsal_a_plan(arachne):
    for options in ((), ("--emulate",)):
        code, _, err = arachne("train", *options)
        assert code == 2
        assert "Missing option '--workload'" in err
