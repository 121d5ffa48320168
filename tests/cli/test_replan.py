"""Plans after a change of the cluster, from the command line."""

import json

import pytest

from arachne_opt.db.store import PlanStore
from arachne_opt.pipeline.check import check_plan
from arachne_opt.pipeline.plan_json import plan_from_json
from arachne_opt.pipeline.problem_json import problem_from_json
from arachne_opt.planning.pipeline_service import PipelineService
from arachne_opt.solvers.base import Limits
from tests.pipeline_builders import small_problem

A, V = "A100-40", "V100-16"
GANTT_TASKS = ("--model", "wan2.1-1.3b", "--iterations", "0", "--iteration-size", "3")


@pytest.fixture
def running(arachne, tmp_path):
    """Id of a stored pipeline plan on 8 + 8 devices."""
    problem = small_problem(f"{A}=8,{V}=8", batch=64)
    with PlanStore.open(str(tmp_path / "plans.db")) as store:
        return PipelineService(store).plan(problem, Limits(time_limit_s=2)).record.id


def replan(arachne, plan, cluster, *more):
    code, out, err = arachne(
        "replan", "--plan", plan, "--cluster", cluster, "--format", "json", "--time-limit", 2, *more
    )
    assert code == 0, err
    return json.loads(out)


def stored(tmp_path, plan_id):
    with PlanStore.open(str(tmp_path / "plans.db"), read_only=True) as store:
        record = store.get_plan(plan_id)
    return problem_from_json(record.problem), plan_from_json(record.plan)


@pytest.mark.parametrize("pool", [f"{A}=4,{V}=4", f"{V}=8", f"{A}=4+2+1,{V}=4", f"{A}=1,{V}=4"])
def test_a_shrunk_cluster_never_gets_a_plan_for_devices_that_are_gone(
    arachne, tmp_path, running, pool
):
    answer = replan(arachne, running, pool)
    problem, plan = stored(tmp_path, answer["id"])
    assert problem.cluster.name == pool
    assert not check_plan(problem, plan)
    for name, count in plan.devices_used().items():
        assert count <= problem.cluster.count_of_type[name]


def test_a_move_has_to_pay_within_the_horizon(arachne, running):
    at_once = replan(arachne, running, f"{A}=16,{V}=16", "--horizon", 0)
    assert at_once["choice"] == "kept"
    assert at_once["relayout"]["seconds"] == 0
    in_the_end = replan(arachne, running, f"{A}=16,{V}=16", "--horizon", 10_000_000)
    assert in_the_end["choice"] == "changed"
    assert in_the_end["relayout"]["network_bytes"] > 0
    assert in_the_end["iteration_s"] < at_once["iteration_s"]


def test_an_unchanged_cluster_moves_nothing(arachne, running):
    answer = replan(arachne, running, f"{A}=8,{V}=8")
    assert answer["relayout"]["seconds"] == 0
    assert answer["nodes_left"] == 0


def test_words_say_what_was_done(arachne, running):
    code, out, _ = arachne("replan", "--plan", running, "--cluster", f"{A}=4,{V}=8")
    assert code == 0
    assert "1 nodes of the old cluster are gone" in out
    assert "an iteration" in out
    assert "rows 0-" in out


def test_a_type_without_tables_needs_profiles(arachne, running):
    code, _, err = arachne("replan", "--plan", running, "--cluster", f"{A}=4,H100-80=8")
    assert code == 2
    assert "no profile for type H100-80" in err
    assert "--profiles" in err


def test_a_cluster_that_is_too_small_is_infeasible(arachne, tmp_path):
    problem = small_problem(f"{V}=8", rows=40, batch=16)
    with PlanStore.open(str(tmp_path / "plans.db")) as store:
        plan = PipelineService(store).plan(problem, Limits(time_limit_s=2)).record.id
    code, _, err = arachne("replan", "--plan", plan, "--cluster", f"{V}=1")
    assert code == 3
    assert "no plan exists" in err


def test_cascades_are_placed_anew_from_the_old_plan(arachne, manifest):
    code, out, err = arachne(
        "solve", "cascade", "--workload", manifest, "--cluster", "H100-80:4x2", *GANTT_TASKS,
        "--time-limit", 2, "--format", "json",
    )  # fmt: skip
    assert code == 0, err
    before = json.loads(out)["plans"][0]
    answer = replan(arachne, before["id"], "H100-80:4x1")
    assert answer["from"] == before["id"]
    assert answer["makespan_us"] >= before["bound_us"]
    code, _, err = arachne("replan", "--plan", before["id"], "--cluster", "A100-80:4x1")
    assert code == 2
    assert "priced for H100-80 only" in err
