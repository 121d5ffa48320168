"""``arachne cost`` and ``--cost-model``: learn, report, plan."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from arachne_opt.costs.learned import fitting, reports
from arachne_opt.db.store import PlanStore
from tests.cli.conftest import Run
from tests.costs.learned_builders import QUICK, made_up

MODEL = "wan2.1-1.3b"
FIT = ("cost", "fit", "cascade", "--name", "ours", "--model", MODEL)
CLIPS = """id,path,caption,num_frames,height,width,fps
a,,a red kite,17,256,256,16
b,,a dog,33,256,256,16
c,,snow falls,49,256,256,16
"""


@pytest.fixture(autouse=True)
def quick_fits(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fits that take a fraction of a second."""
    monkeypatch.setattr(fitting, "FitOptions", lambda seed=0: QUICK)
    monkeypatch.setattr(reports, "layer_options", lambda seed: replace(QUICK, members=1))


@pytest.fixture
def clips(tmp_path: Path) -> Path:
    path = tmp_path / "clips.csv"
    path.write_text(CLIPS, encoding="utf-8")
    return path


@pytest.fixture
def measured(arachne: Run, tmp_path: Path) -> Run:
    with PlanStore.open(tmp_path / "plans.db") as store:
        store.add_measurements(made_up(noise=0.03))
    return arachne


def solve(clips: Path, *more: object) -> list[object]:
    where = ["--workload", clips, "--cluster", "H100-80:4", "--iteration-size", "3"]
    return ["solve", "cascade", *where, "--time-limit", "1", *more]


@pytest.mark.slow
def test_learn_report_and_plan(measured: Run, clips: Path, tmp_path: Path) -> None:
    code, out, _ = measured(*FIT, "--out", "ours.json")
    assert code == 0
    assert out.startswith(f"learned/ours/{MODEL}:")
    assert "analytic core only" in out

    code, out, _ = measured("cost", "report", "ours", "--format", "json")
    report = json.loads(out)
    assert code == 0
    assert report["format"] == "arachne.cost-report/1"
    assert report["parts"]["denoise"]["errors"]["learned"] < 0.15
    assert report["parts"]["denoise"]["count"] == 24

    code, out, err = measured(*solve(clips, "--cost-model", "ours", "--format", "json"))
    middle = json.loads(out)["plans"][0]
    assert code == 0
    assert "lie outside" in err  # degree 3 divides the heads and was never measured
    assert "analytic core" in err

    risk = solve(clips, "--cost-model", "ours", "--risk", "0.9", "--format", "json")
    code, out, _ = measured(*risk)
    cautious = json.loads(out)["plans"][0]
    assert code == 0
    assert cautious["makespan_us"] > middle["makespan_us"]
    assert cautious["fingerprint"] != middle["fingerprint"]

    of_file = solve(clips, "--cost-model", tmp_path / "ours.json", "--format", "json")
    code, out, _ = measured(*of_file)
    assert code == 0
    assert json.loads(out)["plans"][0]["fingerprint"] == middle["fingerprint"]


@pytest.mark.slow
def test_fitting_again_makes_plans_of_the_old_version_stale(measured: Run, clips: Path) -> None:
    measured(*FIT)
    measured(*solve(clips, "--cost-model", "ours"))
    with PlanStore.open("plans.db") as store:
        store.add_measurements(made_up(noise=0.03, seed=7))
    code, _, _ = measured(*FIT)
    assert code == 0
    code, out, _ = measured("plans", "list", "--format", "json")
    assert code == 0
    assert [plan["stale"] for plan in json.loads(out)["plans"]] == [True]


@pytest.mark.slow
def test_the_picture_is_drawn(measured: Run, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    measured(*FIT)
    code, _, err = measured("cost", "report", "ours", "--plot", tmp_path / "errors.png")
    assert code == 0
    assert "drawn to" in err
    assert (tmp_path / "errors.png").read_bytes().startswith(b"\x89PNG")
    code, _, err = measured("cost", "report", "ours", "--plot", tmp_path / "errors.what")
    assert code == 2
    assert "cannot draw" in err


def test_what_cannot_be_learned_or_found_is_said(arachne: Run, clips: Path, tmp_path: Path) -> None:
    code, _, err = arachne(*FIT)
    assert code == 2
    assert "no measured task" in err
    code, _, err = arachne("cost", "report", "nobody")
    assert code == 2
    assert "no learned cost model is called 'nobody'" in err
    code, _, err = arachne("cost", "fit", "cascade", "--name", "a/b", "--model", MODEL)
    assert code == 2
    code, _, err = arachne("cost", "fit", "layers", "--name", "pool")
    assert code == 2
    assert "arachne profile layers" in err
    (tmp_path / "other.json").write_text("{}", encoding="utf-8")
    code, _, err = arachne(*solve(clips, "--cost-model", tmp_path / "other.json"))
    assert code == 2
    assert "arachne cost fit --out" in err


def test_risk_needs_a_model_that_knows_its_error(arachne: Run, clips: Path) -> None:
    code, _, err = arachne(*solve(clips, "--model", MODEL, "--risk", "0.9"))
    assert code == 2
    assert "--cost-model" in err
    code, _, err = arachne(*solve(clips, "--model", MODEL, "--cost-model", "ours"))
    assert code == 2
    assert "neither" in err
    code, _, err = arachne(*solve(clips, "--cost-model", "ours", "--risk", "1"))
    assert code == 2
    code, _, err = arachne(*solve(clips, "--cost-model", "ours", "--group", "clips"))
    assert code == 2
    assert "buckets" in err
    code, _, err = arachne("solve", "cascade", "--instances", clips, "--cost-model", "ours")
    assert code == 2
    assert "instances have their prices" in err


@pytest.mark.slow
def test_rows_are_learned_from_profiles_and_priced(arachne: Run, shared_data: Path) -> None:
    folder = shared_data / "pipelines" / "sailor"
    code, out, _ = arachne(
        "cost", "fit", "layers", "--name", "pool", "--profiles", folder, "--model", "LLAMA-3-8",
        "--arithmetic", "LLAMA-3-8:A100-40=single",
    )  # fmt: skip
    assert code == 0
    assert out.startswith("learned-layers/pool/rows:")
    plan = (
        "solve", "pipeline", "--profiles", folder, "--model", "GPT-Neo-2.7", "--global-batch", 16,
        "--cluster", "H100-80=8", "--gpus-per-node", "8", "--time-limit", 2,
    )  # fmt: skip
    code, _, err = arachne(*plan)
    assert code == 2
    assert "no profile for type H100-80" in err
    code, out, _ = arachne(*plan, "--cost-model", "pool", "--risk", "0.8")
    assert code == 0
    assert "predicted by pool" in out
    assert "quantile 0.8" in out
