"""``--forbid`` and ``--pin`` of ``arachne solve cascade``."""

import json
from pathlib import Path

import click
import pytest

from arachne_opt.cli.restrictions import parse_devices
from tests.cli.conftest import Run

SOURCE = ("--cluster", "A100-80:4x2", "--model", "wan2.1-1.3b", "--time-limit", "0.5")


def solve(arachne: Run, manifest: Path, *args: object) -> tuple[int, str, str]:
    return arachne("solve", "cascade", "--workload", manifest, *SOURCE, *args)


def used(path: Path) -> dict[str, set[int]]:
    plan = json.loads(path.read_text().splitlines()[0])
    out: dict[str, set[int]] = {}
    for row in plan["runs"]:
        out.setdefault(row["stage"], set()).update(row["gpus"])
    return out


def test_forbidden_and_pinned_devices_are_kept(
    arachne: Run, manifest: Path, tmp_path: Path
) -> None:
    out = tmp_path / "plans.jsonl"
    args = ("--forbid", "3,5-7", "--pin", "encode=0,4", "--out", out)
    assert solve(arachne, manifest, *args)[0] == 0
    assert used(out)["vae"] <= {0, 4}
    assert used(out)["dit"] <= {0, 1, 2, 4}


def test_a_drained_device_makes_another_plan(arachne: Run, manifest: Path) -> None:
    whole, drained, again = (
        json.loads(solve(arachne, manifest, *args, "--format", "json")[1])["plans"][0]
        for args in ((), ("--forbid", "3"), ("--forbid", "3"))
    )
    assert whole["fingerprint"] != drained["fingerprint"] == again["fingerprint"]
    assert again["cached"]


def test_a_pin_that_cannot_be_kept_exits_with_3_and_is_named(arachne: Run, manifest: Path) -> None:
    code, _, err = solve(arachne, manifest, "--forbid", "0,1", "--pin", "encode=0,1")
    assert code == 3
    assert "pinned to (0, 1)" in err


@pytest.mark.parametrize(
    ("args", "text"),
    [
        (("--forbid", "x"), "cannot read the devices"),
        (("--forbid", "9"), "no device 9"),
        (("--forbid", "0-7"), "all 8 devices are forbidden"),
        (("--pin", "encode"), "cannot read the pin"),
        (("--pin", "encod=0"), "did you mean 'encode'"),
        (("--forbid", "1", "--group", "clips"), "goes with neither"),
    ],
)
def test_what_cannot_be_meant_is_refused(
    arachne: Run, manifest: Path, args: tuple[str, ...], text: str
) -> None:
    code, _, err = solve(arachne, manifest, *args)
    assert code == 2
    assert text in err


def test_devices_are_read_as_numbers_and_ranges() -> None:
    assert parse_devices("7, 3,0-2") == (0, 1, 2, 3, 7)
    with pytest.raises(click.BadParameter, match="no range"):
        parse_devices("7-3")


def test_a_text_encoder_makes_a_task_that_can_be_pinned(
    arachne: Run, manifest: Path, tmp_path: Path
) -> None:
    out = tmp_path / "plans.jsonl"
    args = ("--text-encoder", "--pin", "text=0-1", "--forbid", "1", "--out", out)
    assert solve(arachne, manifest, *args)[0] == 0
    stages = used(out)
    assert set(stages) == {"text", "vae", "dit"}
    assert stages["text"] == {0}


def test_clips_are_batched_with_a_text_encoder_too(arachne: Run, manifest: Path) -> None:
    code, out, err = solve(arachne, manifest, "--text-encoder", "--group", "clips")
    assert code == 0, err
    assert "bound of all" in out


def test_tables_and_instances_have_the_tasks_they_have(
    arachne: Run, manifest: Path, tmp_path: Path
) -> None:
    code, _, err = arachne("solve", "cascade", "--instances", manifest, "--text-encoder")
    assert code == 2
    assert "--text-encoder goes with --workload" in err
    table = tmp_path / "costs.json"
    table.write_text("{}")
    source = ("--workload", manifest, "--cluster", "T4:2", "--costs", table, "--text-encoder")
    code, _, err = arachne("solve", "cascade", *source)
    assert code == 2
    assert "--text-encoder goes with --model" in err
