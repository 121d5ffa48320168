"""The verbs around stored plans: diff, best, import, gc; clusters; copies of the database."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cli.conftest import Run


def solve(arachne: Run, manifest: Path, cluster: str, *more: object) -> dict:
    source = ["--workload", manifest, "--cluster", cluster, "--model", "wan2.1-1.3b"]
    code, out, err = arachne(
        "solve", "cascade", *source, "--solver", "list", "--format", "json", *more
    )
    assert code == 0, err
    return json.loads(out)["plans"][0]


def test_a_changed_cluster_is_answered_from_the_nearest_plan_and_compared(
    arachne: Run, manifest: Path
) -> None:
    old = solve(arachne, manifest, "A100-80:4x2")
    assert old["warm_from"] == ""
    new = solve(arachne, manifest, "A100-80:4x3")
    assert new["warm_from"] == old["id"]
    code, out, _ = arachne("plans", "diff", old["id"], new["id"])
    assert code == 0
    assert "the cluster gains 1 node of 4 x A100-80" in out
    assert "tasks keep their devices" in out
    body = json.loads(arachne("plans", "diff", old["id"], old["id"], "--format", "json")[1])
    assert (body["format"], body["changes"]) == ("arachne.plan-diff/1", [])
    assert "the plans are the same" in arachne("plans", "diff", old["id"], old["id"])[1]


def test_a_search_begins_with_the_plan_that_is_named(arachne: Run, manifest: Path) -> None:
    first = solve(arachne, manifest, "A100-80:4x2")
    near = solve(arachne, manifest, "A100-80:4x4")
    named = solve(arachne, manifest, "A100-80:4x5", "--warm-start", first["id"][:12])
    assert near["id"] != named["warm_from"] == first["id"]
    code, _, err = arachne(
        *("solve", "cascade", "--workload", manifest, "--cluster", "A100-80:4x6"),
        *("--model", "wan2.1-1.3b", "--solver", "list", "--warm-start", "00"),
    )
    assert code == 2
    assert "no plan has the id '00'" in err


def test_nothing_is_looked_for_without_the_cache(arachne: Run, manifest: Path) -> None:
    solve(arachne, manifest, "A100-80:4x2")
    assert solve(arachne, manifest, "A100-80:4x3", "--no-cache")["warm_from"] == ""


def test_best_lists_one_plan_of_each_problem_and_gc_keeps_it(arachne: Run, manifest: Path) -> None:
    for _ in range(3):
        solve(arachne, manifest, "A100-80:4x2", "--no-cache")
    other = solve(arachne, manifest, "A100-80:4x3", "--no-cache")
    best = json.loads(arachne("plans", "best", "--format", "json")[1])["plans"]
    assert len(best) == 2
    assert other["id"] in {p["id"] for p in best}
    code, out, _ = arachne("plans", "gc", "--older-than", 0, "--dry-run")
    assert (code, out) == (0, "would delete 2 plans\n")
    assert arachne("plans", "gc")[1] == "deleted 0 plans\n"
    body = json.loads(arachne("plans", "gc", "--older-than", 0, "--format", "json")[1])
    assert len(body["plans"]) == 2
    left = json.loads(arachne("plans", "list", "--format", "json")[1])["plans"]
    assert {p["id"] for p in left} == {p["id"] for p in best}


def test_filters_leave_what_they_say(arachne: Run, manifest: Path) -> None:
    plan = solve(arachne, manifest, "A100-80:4x2")
    for filters, found in (
        (["--kind", "cascade"], True),
        (["--kind", "pipeline"], False),
        (["--solver", "list"], True),
        (["--solver", "cpsat"], False),
        (["--status", plan["status"]], True),
        (["--fingerprint", plan["fingerprint"]], True),
        (["--fingerprint", "x"], False),
        (["--stale"], False),
        (["--current"], True),
        (["--cluster", "nowhere"], False),
    ):
        out = arachne("plans", "list", *filters)[1]
        assert (plan["id"][:12] in out) is found, filters


def test_exported_plans_are_imported_and_answer_requests(
    arachne: Run, manifest: Path, tmp_path: Path
) -> None:
    plan = solve(arachne, manifest, "A100-80:4x2")
    file, other = tmp_path / "p.jsonl", tmp_path / "other.db"
    arachne("plans", "export", "--with-problem", plan["id"], "--out", file)
    assert arachne("plans", "import", file, "--db", other)[1] == "imported 1 plans\n"
    again = solve(arachne, manifest, "A100-80:4x2", "--db", other)
    assert again["cached"]
    assert again["makespan_us"] == plan["makespan_us"]


@pytest.mark.parametrize(
    ("change", "what"),
    [
        (lambda v: v | {"objective_us": v["objective_us"] - 1}, "refused"),
        (lambda v: v | {"fingerprint": "0" * 64}, "its fingerprint is"),
        (lambda v: v | {"plan": {}}, "not a plan of format"),
        (lambda v: v | {"wall_s": "long"}, "wall_s must be float"),
        (lambda v: {k: x for k, x in v.items() if k != "seed"}, "missing or unknown: seed"),
        (lambda v: v | {"format": "other/1"}, "not a plan of format"),
        (lambda v: v | {"kind": "dance"}, "kind 'dance'"),
        (lambda _: [1], "not a plan of format"),
    ],
)
def test_a_plan_that_was_tampered_with_is_not_imported(
    arachne: Run, manifest: Path, tmp_path: Path, change, what: str
) -> None:
    plan = solve(arachne, manifest, "A100-80:4x2")
    line = arachne("plans", "export", "--with-problem", plan["id"])[1]
    file, other = tmp_path / "p.jsonl", tmp_path / "other.db"
    file.write_text(line + json.dumps(change(json.loads(line))) + "\n")
    code, _, err = arachne("plans", "import", file, "--db", other)
    assert code == 2
    assert f"{file}: line 2" in err
    assert what in err
    assert not other.exists()


def test_clusters_of_plans_are_listed_shown_and_compared(arachne: Run, manifest: Path) -> None:
    for nodes in (2, 3):
        solve(arachne, manifest, f"A100-80:4x{nodes}")
    rows = json.loads(arachne("clusters", "list", "--format", "json")[1])["clusters"]
    assert [(r["problems"], r["plans"]) for r in rows] == [(1, 1), (1, 1)]
    newer, older = (r["id"] for r in rows)
    assert "12 devices" in arachne("clusters", "show", newer)[1]
    assert "gains 1 node of 4 x A100-80" in arachne("clusters", "diff", older, newer)[1]
    assert "they differ in names only" in arachne("clusters", "diff", newer, "A100-80:4x3")[1]
    code, _, err = arachne("clusters", "show", "nowhere")
    assert code == 2
    assert "no cluster has the id or the name 'nowhere'" in err


def test_a_database_is_copied_and_counted(arachne: Run, manifest: Path, tmp_path: Path) -> None:
    plan = solve(arachne, manifest, "A100-80:4x2")
    copy, other = tmp_path / "copy.db", tmp_path / "other.db"
    assert arachne("db", "backup", copy)[0] == 0
    assert "exists" in arachne("db", "backup", copy)[2]
    assert arachne("db", "restore", copy, "--db", other)[0] == 0
    assert plan["id"] in arachne("plans", "show", plan["id"], "--db", other)[1]
    body = json.loads(arachne("db", "stats", "--format", "json")[1])
    assert (body["rows"]["plans"], body["answers"], body["stale"]) == (1, 1, 0)
    assert "0 plans are history" in arachne("db", "stats")[1]


SECRET = "postgresql://ann:geheim@127.0.0.1:1/plans?sslpassword=geheim"


@pytest.mark.parametrize(
    "command",
    [
        ["plans", "list"],
        ["plans", "best"],
        ["plans", "show", "0"],
        ["plans", "diff", "0", "1"],
        ["plans", "gc"],
        ["plans", "delete", "0"],
        ["clusters", "list"],
        ["runs", "list"],
        ["db", "upgrade"],
        ["db", "current"],
        ["db", "check"],
        ["db", "stats"],
        ["db", "backup", "copy.db"],
    ],
)
@pytest.mark.parametrize("url", [SECRET, SECRET.replace("://", "+psycopg2://"), "x" + SECRET])
def test_no_error_tells_the_password(arachne: Run, command: list[str], url: str) -> None:
    pytest.importorskip("psycopg")
    code, out, err = arachne(*command, "--db", url)
    assert code in (2, 6)
    assert "geheim" not in out + err
