"""Prices, memory and legality equal those of the independent judge, on public tables."""

import importlib.util
import json
import random
import sys
from pathlib import Path
from types import ModuleType

import pytest

from arachne_opt.costs.pipeline.build import build_problem
from arachne_opt.costs.pipeline.closed_form import plan_price
from arachne_opt.costs.pipeline.tables import TableCosts
from arachne_opt.importers.measured_plans import predicted_s, read_measured_plans
from arachne_opt.importers.pipeline_profiles import read_profiles
from arachne_opt.pipeline.agreement import BOTH_APPLY, agreement
from arachne_opt.pipeline.check import Fault, check_plan
from arachne_opt.pipeline.closed_form import price_plan
from arachne_opt.pipeline.facts import Facts
from arachne_opt.pipeline.placement import place
from arachne_opt.pipeline.plan_json import plan_from_json, plan_to_json
from arachne_opt.pipeline.pool import parse_pool
from arachne_opt.pipeline.problem import PipelineOptions
from arachne_opt.pipeline.simulate import simulate
from tests.pipeline_builders import random_plan

POOLS = {
    "OPT-350": ("A100-40=8,V100-16=24", "GH-96=8,V100-16=4+2", "RTX-3090=16,Titan-RTX=8"),
    "GPT-Neo-2.7": ("A100-40=32,V100-16=96", "GH-96=32"),
    "OPT-30": ("A100-40=64,V100-16=64", "GH-96=32"),
    "LLAMA-3-8": ("A100-40=32", "GH-96=64"),
}
# What the judge calls by another name, or does not check.
SAME_CODE = {
    Fault.LAYERS: "layers",
    Fault.DEVICES: "gpus",
    Fault.PACKING: "node",
    Fault.TOO_WIDE: "node",
    Fault.MICROBATCH: "microbatch",
    Fault.NO_TIMES: "table",
    Fault.NO_LINK: "table",
    Fault.MEMORY: "memory",
    Fault.SAMPLES: "samples",
}


@pytest.fixture(scope="module")
def sailor(shared_data: Path) -> Path:
    folder = shared_data / "pipelines" / "sailor"
    if not folder.is_dir():
        pytest.skip("no measured profiles here")
    return folder


@pytest.fixture(scope="module")
def judge(shared_folder: Path) -> ModuleType:
    """The judge as a module, without leaving its folder on the path."""
    folder = shared_folder / "judges"
    if not (folder / "judge_pipeline.py").is_file():
        pytest.skip("the independent judge is not here")
    loaded = {}
    for name in ("pipeline_price", "judge_pipeline"):
        spec = importlib.util.spec_from_file_location(name, folder / f"{name}.py")
        loaded[name] = importlib.util.module_from_spec(spec)
        sys.modules[name] = loaded[name]
        spec.loader.exec_module(loaded[name])
    yield loaded["judge_pipeline"]
    for name in loaded:
        sys.modules.pop(name)


@pytest.fixture(scope="module")
def problems(sailor: Path):
    """Problems by model and pool, read once."""
    found = {}
    options = PipelineOptions(allow_excess=True)
    for model, pools in POOLS.items():
        profiles = read_profiles(sailor, model)
        for pool in pools:
            found[model, pool] = build_problem(profiles, parse_pool(pool), 512, options=options)
    return found


@pytest.mark.parametrize(("model", "pool"), [(m, p) for m, ps in POOLS.items() for p in ps])
def test_random_plans_have_the_judges_price_memory_and_verdict(
    judge, problems, sailor, model, pool
):
    problem = problems[model, pool]
    costs, facts = TableCosts(problem), Facts(problem)
    cards = judge.read_json(sailor / "configs" / "basic_cluster_config.json")
    cluster = judge.parse_cluster(pool, "4", cards)
    tables = judge.Tables(sailor, model)
    legal = priced = 0
    for seed in range(60):
        plan = random_plan(problem, seed)
        theirs = judge.parse_plan(plan_to_json(plan))
        verdict = judge.judge(tables, theirs, cluster)
        mine = {SAME_CODE[v.code] for v in check_plan(problem, plan)}
        told = {fault["code"] for fault in verdict["faults"]}
        # The judge does not look at nodes where there are too few devices in all.
        assert mine - {"node"} == told - {"node"}
        assert ("node" in mine) == ("node" in told) or "gpus" in told
        if verdict["iteration_s"] is None:
            continue
        priced += 1
        legal += verdict["legal"]
        for price in (price_plan(problem, plan), plan_price(costs, plan)):
            assert price.iteration_s == pytest.approx(verdict["iteration_s"], rel=1e-9)
            if verdict["cautious_s"] is not None:
                assert price.cautious_s == pytest.approx(verdict["cautious_s"], rel=1e-9)
            assert price.sync_s == pytest.approx(verdict["sync_s"], rel=1e-9)
        for p, i, own in plan.stages():
            pipe = plan.pipelines[p]
            for kind in own.kinds:
                samples = pipe.batch // len(own.replicas)
                flight = len(pipe.stages) - i
                told = judge.replica_bytes(tables, theirs.pipelines[p], i, kind.tp)
                own_bytes = facts.memory_bytes(own, kind, samples, flight, zero1=False)
                assert own_bytes == pytest.approx(told, rel=1e-12)
    # Between the RTX cards only groups of one and of eight were measured.
    assert priced >= (10 if "RTX" in pool else 50)
    assert legal or model in ("OPT-30", "LLAMA-3-8")  # which few random plans fit


def test_all_measured_plans_have_the_judges_price(judge, sailor):
    told = {
        (row["family"], Path(row["file"]).stem): row["judge_s"]
        for row in judge.measured(sailor)["rows"]
    }
    records = read_measured_plans(sailor)
    assert len(records) == len(told) == 36
    paths = sorted((sailor / "validation").rglob("*.json"))
    profiles = {model: read_profiles(sailor, model) for model in ("OPT-350", "GPT-Neo-2.7")}
    for record, path in zip(records, paths, strict=True):
        expected = told[path.parent.name, path.stem]
        found = predicted_s(profiles[record.plan.model], record)
        assert found == pytest.approx(expected, rel=1e-9)


def test_reference_plans_have_their_stored_price_and_simulate_as_they_must(shared_folder, sailor):
    """The published simulator's prices of other planners' plans, and our event simulator's."""
    file = shared_folder / "judges" / "tests" / "parity_pipeline.json"
    if not file.is_file():
        pytest.skip("no reference prices here")
    gaps, seen = [], 0
    profiles = {}
    for case in json.loads(file.read_text(encoding="utf-8"))["cases"]:
        if "plan" not in case or not case["fits"]:
            continue
        plan = plan_from_json(case["plan"])
        pool = ",".join(f"{kind}={count}" for kind, count in plan.devices_used().items())
        if plan.model not in profiles:
            profiles[plan.model] = read_profiles(sailor, plan.model)
        problem = build_problem(profiles[plan.model], parse_pool(pool, 8), plan.global_batch)
        price = price_plan(problem, plan)
        assert price.iteration_s == pytest.approx(case["reference_s"], rel=1e-6)
        seen += 1
        work = max(plan.counts) * sum(len(s.replicas) for _, _, s in plan.stages())
        if work < 2000:
            owed = agreement(problem, plan)
            played = simulate(problem, plan, published_ends=True).iteration_s
            assert owed.allows(played)
            if owed.both_apply:
                gaps.append(abs(played / price.iteration_s - 1))
    assert seen >= 100
    assert len(gaps) >= 30
    assert max(gaps) <= BOTH_APPLY


def test_a_placed_plan_is_legal_for_the_judge(judge, problems, sailor):
    model, pool = "OPT-350", "A100-40=8,V100-16=24"
    problem = problems[model, pool]
    cards = judge.read_json(sailor / "configs" / "basic_cluster_config.json")
    seen = 0
    for seed in random.Random(0).sample(range(1000), 300):
        plan = random_plan(problem, seed)
        if check_plan(problem, plan):
            continue
        placed = place(problem, plan)
        assert check_plan(problem, placed) == ()
        theirs = judge.parse_plan(plan_to_json(placed))
        cluster = judge.parse_cluster(pool, "4", cards)
        assert judge.judge(judge.Tables(sailor, model), theirs, cluster)["legal"]
        seen += 1
    assert seen >= 20
