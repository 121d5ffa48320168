"""Public pipeline data: profiles, scenarios, measured plans and lines of layers."""

import json
import shutil

import pytest

from arachne_opt.costs.pipeline.tables import TableCosts
from arachne_opt.errors import InputError
from arachne_opt.importers.measured_plans import accuracy, read_measured_plans
from arachne_opt.importers.pipeline_profiles import profiled_models, read_profiles
from arachne_opt.importers.pipeline_scenarios import read_scenario, read_scenarios, with_cluster
from arachne_opt.importers.scenario_problems import scenario_problem
from arachne_opt.importers.zorse_profiles import read_lines
from arachne_opt.pipeline.plan import ReplicaKind
from arachne_opt.pipeline.pool import parse_pool
from arachne_opt.pipeline.presets import architecture


@pytest.fixture(scope="module")
def sailor(shared_data):
    return shared_data / "pipelines" / "sailor"


@pytest.fixture(scope="module")
def scenarios(shared_folder):
    return {s.name: s for s in read_scenarios(shared_folder / "judges" / "scenarios_pipeline.json")}


@pytest.mark.parametrize(
    ("model", "rows"), [("OPT-350", 26), ("GPT-Neo-2.7", 34), ("OPT-30", 50), ("LLAMA-3-8", 35)]
)
def test_all_models_are_read(sailor, model, rows):
    profiles = read_profiles(sailor, model)
    assert profiles.model.row_count == rows
    assert {"A100-40", "V100-16", "GH-96"} <= set(profiles.device_types)
    assert all(s.error is None for s in profiles.steps)
    assert model in profiled_models(sailor)


def test_the_main_table_goes_before_the_planners_files(sailor):
    """The two disagree on GPT-Neo-2.7 on GH-96; measured runs agree with the main table."""
    value = json.loads((sailor / "profiles_tmp.json").read_text())["GPT-Neo-2.7"]["GH-96"]
    other = json.loads((sailor / "planner_profiles" / "GPT-Neo-2.7__GH-96.json").read_text())
    (found,) = (s for s in read_profiles(sailor, "GPT-Neo-2.7").steps if s.key == ("GH-96", 1, 1))
    assert found.forward_s[3] == value["1"]["1"]["3"][0]
    assert found.forward_s[3] > 1.5 * other["1"]["1"]["3"][0]


def test_a_type_of_the_planners_files_alone_is_read(sailor):
    main = json.loads((sailor / "profiles_tmp.json").read_text())["OPT-30"]
    assert "GH-96" not in main
    assert "GH-96" in read_profiles(sailor, "OPT-30").device_types


def test_missing_and_malformed_profiles_are_refused(sailor, tmp_path):
    with pytest.raises(InputError, match="no such folder"):
        read_profiles(tmp_path / "nothing", "OPT-350")
    with pytest.raises(InputError, match=r"no profile of model 'OPT-35'.*OPT-350"):
        read_profiles(sailor, "OPT-35")
    for name in ("profiles_tmp.json", "llm_info.json", "multizone_bandwidths_het.json"):
        shutil.copy(sailor / name, tmp_path / name)
    assert read_profiles(tmp_path, "OPT-350").node_links == ()
    (tmp_path / "multizone_bandwidths_het.json").write_text('{"us-central1-a": {"A100-40": 3}}')
    with pytest.raises(InputError, match="malformed profiles"):
        read_profiles(tmp_path, "OPT-350")


def test_every_scenario_becomes_a_problem(scenarios, sailor):
    for scenario in scenarios.values():
        for model in scenario.models:
            problem = scenario_problem(scenario, sailor, model=model)
            assert TableCosts(problem).kinds
            if scenario.sparse is not None:
                assert problem.model.experts is not None
                assert any("imbalance 1.25" in note for note in problem.notes)
                assert any("assumed" in note for note in problem.notes)


def test_a_scenario_says_what_is_known_of_it(scenarios):
    d7 = scenarios["D7"]
    assert d7.cluster().count_of_type == {"A100-40": 32, "V100-16": 96}
    assert d7.best_peer == ("Metis", 5.173129)
    assert d7.peers["Sailor"].iteration_s == 5.883749
    assert d7.best_known_s == 5.173129
    assert scenarios["D9"].peers["Metis"].iteration_s is None
    assert scenarios["E2"].infeasible
    assert not scenarios["E6"].priced


def test_zones_uneven_nodes_and_events_are_kept(scenarios):
    zones = {n.zone for n in scenarios["E4"].cluster().nodes}
    assert zones == {"us-central1-a", "us-central1-b"}
    sizes = [n.device_count for n in scenarios["E5"].cluster().nodes]
    assert sizes == [8, 4, 2, 1] * 2
    trace = scenarios["E7"]
    assert (trace.event_count, trace.event_s) == (20, 600)
    assert trace.cluster(5).count_of_type == {"A100-40": 8, "V100-16": 8}
    with pytest.raises(InputError, match="event 20 of 20"):
        trace.cluster(20)


def test_a_sparse_scenario_can_be_priced_without_imbalance(scenarios, sailor):
    even = scenario_problem(scenarios["M2"], sailor, imbalance=1.0)
    usual = scenario_problem(scenarios["M2"], sailor)
    kind = ReplicaKind("A100-40", 1, 4, True)
    fast, slow = (TableCosts(p).work_s(kind, 1, 1, 33) for p in (even, usual))
    assert fast < slow
    alone = kind._replace(ep=1, ep_local=False)
    assert TableCosts(even).work_s(alone, 1, 1, 33) == TableCosts(usual).work_s(alone, 1, 1, 33)


def test_other_counts_of_a_scenarios_types(scenarios, sailor):
    other = with_cluster(scenarios["D7"], "A100-40=5,V100-16=9")
    assert other.best_known_s is None
    assert scenario_problem(other, sailor).cluster.device_count == 14


def test_a_scenario_is_named_after_a_colon(shared_folder, tmp_path):
    file = shared_folder / "judges" / "scenarios_pipeline.json"
    assert read_scenario(f"{file}:E1b").name == "E1b"
    with pytest.raises(InputError, match="no scenario 'D17'"):
        read_scenario(f"{file}:D17")
    with pytest.raises(InputError, match="names no scenario"):
        read_scenario(file)
    bad = tmp_path / "bad.json"
    bad.write_text('{"format": "arachne.pipeline-scenarios/1", "scenarios": [{"id": "X"}]}')
    with pytest.raises(InputError, match="malformed scenario X"):
        read_scenarios(bad)
    bad.write_text('{"format": "other/1", "scenarios": []}')
    with pytest.raises(InputError, match="format"):
        read_scenarios(bad)


def test_a_wrong_model_of_a_scenario_is_refused(scenarios, sailor):
    with pytest.raises(InputError, match="has no model 'OPT-30'"):
        scenario_problem(scenarios["E7"], sailor, model="OPT-30")


def test_the_closed_form_is_within_ten_percent_of_the_sound_measured_plans(sailor):
    found = accuracy(sailor)
    assert found["all"].runs == 35
    assert found["all"].mean_abs < 0.10
    runs = {group: a.runs for group, a in found.items()}
    assert runs == {
        "GPT-Neo-2.7 on clariden": 11,
        "OPT-350 on clariden": 15,
        "OPT-350 on mit": 9,
        "all": 35,
    }
    assert sum(r.corrupt for r in read_measured_plans(sailor)) == 1


def test_a_folder_without_measured_plans_says_so(tmp_path):
    with pytest.raises(InputError, match="no measured plans"):
        read_measured_plans(tmp_path)


def test_lines_give_points_where_measured(shared_data):
    folder = shared_data / "pipelines" / "zorse"
    raw = json.loads((folder / "model_latencies.json").read_text())["deepspeedllama_7b"]
    points = raw["t4"]["2048"]["float16"][2]
    cluster = parse_pool("T4=4,A100-40=4")
    model = architecture("Llama-7B")
    profiles = read_lines(folder, "deepspeedllama_7b", model, cluster)
    by_size = {s.microbatch: s for s in profiles.steps if s.device_type == "T4"}
    assert by_size[2].forward_s[5] == pytest.approx(points[1] / 1e3)
    times = [sum(by_size[m].forward_s) for m in sorted(by_size)]
    assert times == sorted(times)
    assert all(s.forward_s[0] < s.forward_s[1] for s in profiles.steps)


@pytest.mark.parametrize(
    ("model", "pool", "word"),
    [
        ("deepspeedllama_8b", "T4=4", "did you mean"),
        ("deepspeedllama_7b", "GH-96=4", "no profile for type GH-96"),
        ("deepspeedllama_7b", "L40S=4", "not measured at sequence length 2048"),
    ],
)
def test_lines_that_are_not_there_are_named(shared_data, model, pool, word):
    folder = shared_data / "pipelines" / "zorse"
    with pytest.raises(InputError, match=word):
        read_lines(folder, model, architecture("Llama-7B"), parse_pool(pool))
