"""``--group clips``: micro-batches chosen together with their placement."""

import copy
import json
from collections import Counter
from pathlib import Path

import pytest

from arachne_opt.cascade.check import check_plan
from arachne_opt.cascade.plan import plan_from_json
from arachne_opt.cascade.problem_json import problem_from_json
from arachne_opt.db.store import PlanStore
from tests.cli.conftest import Run

SOURCE = ["--cluster", "A100-80:4x2", "--model", "wan2.1-1.3b"]
LIMITS = ["--time-limit", "0.2", "--workers", "1"]


@pytest.fixture
def clips(arachne: Run, tmp_path: Path) -> Path:
    """12 clips of a few shapes, three of which share a micro-batch by default here."""
    path = tmp_path / "many.csv"
    arachne("workload", "generate", "--clips", 12, "--preset", "360p", "--seed", 2, "--out", path)
    return path


def solve(clips: Path, *extra: object) -> list[object]:
    grouping = ["--group", "clips", "--batch", "3", "--iteration-size", "3"]
    return ["solve", "cascade", "--workload", clips, *SOURCE, *LIMITS, *grouping, *extra]


def test_both_makespans_are_shown_and_every_clip_is_in_one_micro_batch(
    arachne: Run, clips: Path
) -> None:
    code, out, _ = arachne(*solve(clips, "--format", "json"))
    shown = json.loads(out)
    assert code == 0
    assert shown["format"] == "arachne.solve-clips/1"
    held = Counter(
        clip for it in shown["iterations"] for b in it["micro_batches"] for clip in b["clips"]
    )
    lines = clips.read_text().splitlines()
    assert held == Counter(line.split(",")[0] for line in lines[1:])
    for it in shown["iterations"]:
        best = min(it["bucketed"]["makespan_us"], it["clips"]["makespan_us"])
        assert it["bound_us"] <= best
        assert it["gap"] == pytest.approx(best / it["bound_us"] - 1)
    table = arachne(*solve(clips))[1]
    assert {"buckets", "chosen", "change"} <= set(table.splitlines()[0].split())


def test_the_second_request_is_answered_from_the_database(arachne: Run, clips: Path) -> None:
    first = json.loads(arachne(*solve(clips, "--format", "json"))[1])["iterations"]
    again = json.loads(arachne(*solve(clips, "--format", "json"))[1])["iterations"]
    assert [it["clips"]["cached"] for it in first] == [False] * len(first)
    assert [it["clips"]["cached"] for it in again] == [True] * len(first)
    for before, after in zip(first, again, strict=True):
        assert after["clips"]["makespan_us"] == before["clips"]["makespan_us"]
        assert after["clips"]["lookup_s"] < 0.5


def test_the_stored_plan_is_legal_and_like_any_other(
    arachne: Run, clips: Path, tmp_path: Path
) -> None:
    out = tmp_path / "plans.jsonl"
    shown = json.loads(arachne(*solve(clips, "--out", out, "--format", "json"))[1])
    exported = [json.loads(line) for line in out.read_text().splitlines()]
    with PlanStore.open(tmp_path / "plans.db") as store:
        for it, value in zip(shown["iterations"], exported, strict=True):
            record = store.get_plan(it["plan"])
            problem = problem_from_json(record.problem)
            assert check_plan(problem, plan_from_json(value, problem)) == ()
            assert record.fingerprint == problem.fingerprint()
    plan = shown["iterations"][0]["plan"]
    assert arachne("simulate", plan)[0] == 0


@pytest.fixture
def exported(arachne: Run, clips: Path) -> list[dict]:
    """The plans for clips of a database, as ``plans export`` writes them."""
    arachne(*solve(clips))
    shown = json.loads(arachne("plans", "list", "--name", "(clips)", "--format", "json")[1])
    lines = arachne("plans", "export", "--with-problem", *(p["id"] for p in shown["plans"]))[1]
    return [json.loads(line) for line in lines.splitlines()]


def test_plans_for_clips_are_imported_and_answer_requests(
    arachne: Run, clips: Path, exported: list[dict], tmp_path: Path
) -> None:
    file, other = tmp_path / "plans.jsonl", tmp_path / "other.db"
    file.write_text("\n".join(map(json.dumps, exported)))
    code, out, err = arachne("plans", "import", file, "--db", other)
    assert (code, out) == (0, f"imported {len(exported)} plans\n"), err
    shown = json.loads(arachne(*solve(clips, "--format", "json", "--db", other))[1])
    assert len(shown["iterations"]) == len(exported) > 1
    assert all(it["clips"]["cached"] for it in shown["iterations"])


def _cheaper(problem: dict) -> None:
    """Another price of the first micro-batch that was chosen, legal for the plan."""
    problem["cascades"][0]["label"] = "other"
    for option in problem["cascades"][0]["tasks"][0]["options"]:
        option["memory_bytes"] += 1


_TAMPERED = [
    (lambda p: p["clips"]["kinds"].reverse(), "is no candidate"),
    (lambda p: p["clips"]["families"].pop(), "that were chosen"),
    (lambda p: p["clips"]["families"][0].pop(), "that were chosen"),
    (lambda p: p["clips"]["families"][0][-1].append(None), "its fingerprint is"),
    (lambda p: p["clips"]["families"][0][0].insert(0, 10**6), "cannot be read"),
    (lambda p: p["clips"].update(families=7), "cannot be read"),
    (lambda p: p["clips"].update(more=7), "unknown key 'more'"),
    (lambda p: p.update(clips=[]), "expected a table of keys"),
    (lambda p: p.pop("clips"), "its fingerprint is"),
    (_cheaper, "is no candidate"),
]


def test_a_plan_for_clips_that_was_tampered_with_is_not_imported(
    arachne: Run, exported: list[dict], tmp_path: Path
) -> None:
    plan = next(p for p in exported if len(p["problem"]["clips"]["kinds"]) > 1)
    file, other = tmp_path / "plans.jsonl", tmp_path / "other.db"
    for number, (change, what) in enumerate(_TAMPERED):
        changed = copy.deepcopy(plan)
        change(changed["problem"])
        file.write_text(json.dumps(changed))
        code, _, err = arachne("plans", "import", file, "--db", other)
        assert (code, other.exists()) == (2, False), number
        assert what in err, number


def test_workload_show_shows_the_chosen_micro_batches(arachne: Run, clips: Path) -> None:
    command = ["workload", "show", clips, "--batch", "3", "--iteration-size", "3"]
    code, out, err = arachne(*command, "--group", "clips", *SOURCE, *LIMITS, "--format", "json")
    assert code == 0
    chosen = json.loads(out)["iterations"]
    bucketed = json.loads(arachne(*command, "--format", "json", *SOURCE[2:])[1])["iterations"]
    assert len(chosen) == len(bucketed)
    for one, other in zip(chosen, bucketed, strict=True):
        assert Counter(c for b in one["micro_batches"] for c in b["clips"]) == Counter(
            c for b in other["micro_batches"] for c in b["clips"]
        )
    assert err.count("as the buckets group it") == len(chosen)


def test_what_is_missing_is_named(arachne: Run, clips: Path) -> None:
    code, _, err = arachne("workload", "show", clips, "--group", "clips", "--model", "toy")
    assert code == 2
    assert "--cluster" in err
    code, _, err = arachne("solve", "cascade", "--instances", clips, "--group", "clips")
    assert code == 2
    assert "clips" in err
    train = ["train", "--workload", clips, "--cluster", "CPU:2", "--model", "toy"]
    code, _, err = arachne(*train, "--group", "clips", "--plan", "abc")
    assert code == 2
    assert "--plan" in err


def test_training_takes_the_chosen_micro_batches(arachne: Run, tmp_path: Path) -> None:
    clips, job = tmp_path / "tiny.csv", tmp_path / "job.json"
    arachne("workload", "generate", "--clips", 10, "--preset", "tiny", "--out", clips)
    train = ["train", "--workload", clips, "--cluster", "CPU:2", "--model", "toy"]
    train += ["--batch", "2", "--group", "clips", *LIMITS, "--dry-run", "--job", job]
    code, out, err = arachne(*train)
    assert code == 0, err
    assert "torch.distributed.run" in out
    text = job.read_text()
    for line in clips.read_text().splitlines()[1:]:
        assert f'"{line.split(",")[0]}"' in text
