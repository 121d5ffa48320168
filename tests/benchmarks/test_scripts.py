"""The scripts in benchmarks/, run as a reader would run them, on small problems."""

import os
import re
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import ModuleType

import pytest

from arachne_opt.cascade.plan import CascadePlan, Placement
from arachne_opt.cascade.problem import CascadeProblem
from arachne_opt.cluster_file import read_cluster
from arachne_opt.errors import InputError
from arachne_opt.solvers.base import Limits
from arachne_opt.solvers.registry import cascade_solver
from tests.strategies import two_stage

ROOT = Path(__file__).resolve().parent.parent.parent


@pytest.fixture
def script(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], ModuleType]:
    """Imports a script, with the folder on the path as it is when Python runs a file in it."""
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    return __import__


def run(name: str, *args: object) -> str:
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [sys.executable, ROOT / "benchmarks" / name, *map(str, args)],
        capture_output=True,
        text=True,
        check=False,
        env=environment,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.slow
def test_the_headline_prints_reductions_and_draws_them(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    picture = tmp_path / "gain.png"
    small = ("--sizes", 16, 24, "--iterations", 1, "--time-limit", 0.5)
    out = run("headline.py", *small, "--plot", picture)
    rows = [line for line in out.splitlines() if re.match(r"(720p|mixed) +\d", line)]
    assert [row.split()[:2] for row in rows] == [
        [m, s] for m in ("720p", "mixed") for s in ("16", "24")
    ]
    assert "cores" in out
    assert "seed 0" in out
    assert picture.read_bytes().startswith(b"\x89PNG")


@pytest.mark.slow
def test_scale_prints_gaps_memory_and_the_time_to_a_gap() -> None:
    small = ("--sizes", 16, "--iterations", 1, "--time-limit", 2, "--gap", 5)
    out = run("scale.py", *small)
    assert re.search(r"^ +16 +4 +\d+\.\d % +\d+\.\d % +\d+\.\d % +\d+ MiB +1 of 1", out, re.M)


@pytest.mark.slow
def test_the_ablation_has_a_row_for_each_variant() -> None:
    out = run("ablation.py", "--sizes", 16, "--iterations", 1, "--time-limit", 0.3)
    assert re.search(r"^whole +1\.000 +1\.000 +0 +0 ", out, re.M)
    for name in ("no hints", "no LNS", "no area cut", "no topology"):
        assert re.search(rf"^{name} +\d\.\d+ ", out, re.M), name


@pytest.mark.slow
def test_mixed_types_counts_wins() -> None:
    out = run("mixed_types.py", "--mixtures", "mixed", "--iterations", 1, "--time-limit", 1)
    assert "shorter than each of the three on 1 of 1" in out


@pytest.mark.slow
def test_near_hits_go_on_where_they_were_broken_off(tmp_path: Path) -> None:
    out = tmp_path / "rows.jsonl"
    small = ("--clusters", "H100-80:8x6", "--time-limit", 0.3, "--warm-limit", 0.3, "--out", out)
    run("near_hits.py", *small, "--changes", 1)
    first = out.read_text()
    shown = run("near_hits.py", *small, "--changes", 2)
    assert out.read_text().startswith(first)
    assert len(out.read_text().splitlines()) == 2
    assert re.search(r"^mixed 0 +6 +[+-]\d +\d+\.\d+ s ", shown, re.M)
    assert "6 nodes, 2 changes: as good as cold after" in shown


@pytest.mark.slow
def test_the_plan_store_is_measured_part_by_part(tmp_path: Path) -> None:
    database = ("--db", tmp_path / "plans.db")
    small = ("--plans", 63, "--processes", 2, "--operations", 20, "--kills", 3)
    parts = ("fill", "look-up", "processes", "kills", "gc")
    out = run("plan_store.py", *database, *small, "--only", *parts)
    assert "63 plans of" in out
    assert re.search(r"^near hits: \d+\.\d+ ms median", out, re.M)
    assert re.search(r"^2 processes, 40 operations: \d+/s", out, re.M)
    assert re.search(r"^3 writers killed in .* each of them whole", out, re.M)
    assert re.search(r"^gc: \d+ plans in .* problems stay", out, re.M)


def test_what_fits_nowhere_is_said_in_one_line() -> None:
    done = subprocess.run(
        [sys.executable, ROOT / "benchmarks" / "scale.py", "--sizes", "8", "--seed", "0"],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    assert done.returncode == 3
    assert done.stderr.startswith("error: micro-batch mb0")
    assert len(done.stderr.splitlines()) == 1


def test_proofs_of_what_no_plan_can_be_are_refused(
    script: Callable[[str], ModuleType], monkeypatch: pytest.MonkeyPatch
) -> None:
    room = script("pipeline_room")
    wanted = ["room", "--scenarios", "none", "--profiles", "none", "--only", "D1"]
    for given in (["--below", "nan"], ["--below", "0"], ["--time-limit", "-3"], ["--least", "0"]):
        monkeypatch.setattr(sys, "argv", [*wanted, *given])
        with pytest.raises(InputError, match=given[0]):
            room.main()


def test_a_plan_that_ignores_types_is_charged_by_its_slowest_device(
    script: Callable[[str], ModuleType],
) -> None:
    cascades = (two_stage("a", {1: 100}, {2: 500}),)
    fast = CascadeProblem(name="x", cluster=read_cluster("H100-80:1x2"), cascades=cascades)
    plan = CascadePlan(
        problem_name="x",
        placements=(
            Placement(cascade=0, task=0, devices=(0,), start_us=0, end_us=100),
            Placement(cascade=0, task=1, devices=(0, 1), start_us=100, end_us=700),
        ),
    )
    mixed = read_cluster("H100-80:1, A100-80:1")
    factors_ppm = {"H100-80": 1_000_000, "A100-80": 2_200_000}
    charged_us = script("mixed_types").charged_by_slowest_us(fast, plan, mixed, factors_ppm)
    # 100 on the fast device; 500 * 2.2 * 1.048166 (both use their NIC group 0) over both nodes.
    assert charged_us == 100 + 1153


def test_a_plan_made_without_topology_is_charged_with_it(
    script: Callable[[str], ModuleType],
) -> None:
    cascades = (two_stage("a", {1: 100}, {2: 500}),)
    problem = CascadeProblem(name="x", cluster=read_cluster("H100-80:1x2"), cascades=cascades)
    flat = script("ablation").VARIANTS["no topology"](problem, Limits(time_limit_s=0.5))
    full = cascade_solver().solve(problem, Limits(time_limit_s=0.5))
    assert flat[0] == full.objective_us == 100 + 525
    assert flat[1] <= 600


def test_reductions_are_over_the_sum_of_the_iterations(
    script: Callable[[str], ModuleType],
) -> None:
    row = script("headline").Row(
        mixture="x",
        devices=8,
        cascades=2,
        spread=0.0,
        ours_us=30,
        bound_us=30,
        tail_us=0,
        theirs_us={"best-uniform": 40, "flex-sp": None, "knapformer": 35, "dynamic-cp": 36},
    )
    assert row.reduction("best-uniform") == 0.25
    assert row.reduction("flex-sp") is None
    assert row.best_dynamic_us == 35
    with_tail = replace(row, tail_us=10)
    assert with_tail.reduction("best-uniform") == pytest.approx(1 - 40 / 50)


@pytest.mark.slow
def test_random_clusters_print_gains_over_the_best_rule(
    shared_data: Path, tmp_path: Path, script: Callable[[str], ModuleType]
) -> None:
    folder, rows = shared_data / "pipelines" / "sailor", tmp_path / "rows.jsonl"
    asked = ("--profiles", folder, "--models", "OPT-350", "--time-limit", 1, "--out", rows)
    out = run("pipeline_clusters.py", *asked, "--count", 1)
    assert len(re.findall(r"^ +\d+ OPT-350 .* %", out, re.M)) == 1
    assert "dense, 1 clusters: over the best rule" in out
    assert "seed 0" in out
    kept = rows.read_text()
    assert (
        run("pipeline_clusters.py", *asked, "--count", 1).splitlines()[2:] == (out.splitlines()[2:])
    )
    assert rows.read_text() == kept


def test_a_cluster_without_a_plan_in_time_is_a_loss(
    script: Callable[[str], ModuleType], capsys: pytest.CaptureFixture[str]
) -> None:
    clusters = script("pipeline_clusters")
    common = {"seed": 0, "model": "OPT-350", "pool": "V100-16=4", "time_limit_s": 1, "load": 0}
    rows = [
        clusters.Row(number=0, exists=True, ours_s=4.0, rules_s={"a": 6.0, "b": None}, **common),
        clusters.Row(number=1, exists=True, ours_s=None, rules_s={"a": 6.0, "b": 5.0}, **common),
        clusters.Row(number=2, exists=True, ours_s=3.0, rules_s={"a": None, "b": None}, **common),
    ]
    assert [row.gain for row in rows] == [0.5, None, None]
    clusters.summary(rows)
    told = capsys.readouterr().out
    assert "over the best rule 50.0 % in geometric mean" in told
    assert "longer on 1 (1 without a plan in time) of 2; no rule has a plan on 1 more" in told
