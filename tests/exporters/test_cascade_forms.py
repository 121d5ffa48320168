"""Cascade plans by ranks and by groups."""

import json
from pathlib import Path

import pytest

from arachne_opt.cascade.problem import CascadeProblem
from arachne_opt.errors import InputError
from arachne_opt.exporters import group_list, rank_yaml
from arachne_opt.importers.rank_yaml import read_rank_plan, recognise
from tests.strategies import random_problem, seeded_plan

SEEDS = range(4)


@pytest.fixture
def _yaml():
    pytest.importorskip("yaml", reason="PyYAML is not installed")


def problem_of(seed: int) -> CascadeProblem:
    return random_problem(seed)


@pytest.mark.usefixtures("_yaml")
@pytest.mark.parametrize("seed", SEEDS)
def test_a_plan_by_ranks_comes_back(tmp_path: Path, seed: int):
    problem = problem_of(seed)
    plan = seeded_plan(problem)
    file = tmp_path / "plan.yaml"
    file.write_text(rank_yaml.export(plan, problem, source="abc").text, encoding="utf-8")
    assert recognise(file)
    found = read_rank_plan(file)
    assert found.source == "abc"
    assert found.plan(problem) == plan


@pytest.mark.parametrize("seed", SEEDS)
def test_groups_and_steps_say_the_same_as_the_plan(seed: int):
    problem = problem_of(seed)
    plan = seeded_plan(problem)
    value = json.loads(group_list.export(plan, problem, source="abc").text)
    assert value["world_size"] == problem.cluster.device_count
    groups = [tuple(g["ranks"]) for g in value["groups"]]
    assert len(set(groups)) == len(groups)
    assert [groups[s["group"]] for s in value["steps"]] == [p.devices for p in plan.placements]
    for rank, steps in enumerate(value["rank_steps"]):
        assert steps == [i for i, p in enumerate(plan.placements) if rank in p.devices]


TEXT = """format: arachne.rank-plan/1
plan: "abc"
plan_format: arachne.cascade-plan/1
instance: "it0"
problem: {problem}
makespan_s: 1.0
ranks:
  - rank: 0
    tasks:
      - {{order: 0, task: 0, stage: "vae", sp: 2, gpus: [0, 1], start_s: 0.0, end_s: 1.0}}
      - {{order: 1, task: 0, stage: "dit", sp: 1, gpus: [0], start_s: 1.0, end_s: 2.0}}
  - rank: 1
    tasks:
      - {{order: 0, task: 0, stage: "vae", sp: 2, gpus: [0, 1], start_s: 0.0, end_s: 1.0}}
"""


@pytest.mark.usefixtures("_yaml")
@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("arachne.rank-plan/1", "arachne.rank-plan/9", r"p.yaml:1: format is .*, not"),
        ("ranks:", "ranks", r"p.yaml:\d+: no valid YAML"),
        ("- rank: 1", "- rank: 2", r"p.yaml:12: expected rank 1, found 2"),
        ("gpus: [0], ", "gpus: [1], ", r"p.yaml:11: rank 0 is not in the group \[1\]"),
        ("order: 1", "order: 0", r"p.yaml:11: task number 0 comes after number 0"),
        ("order: 1, ", "", r"p.yaml:11: 'order' is missing"),
        ("gpus: [0], ", "gpus: [0, 1], ", r"p.yaml:11: rank 1 is in the group .* but lacks the"),
        ("gpus: [0], ", "gpus: [0, 7], ", r"p.yaml:11: rank 7 is in the group .* but lacks the"),
        ('plan: "abc"\n', "", r"p.yaml:1: 'plan' is missing"),
        ("gpus: [0], ", "gpus: 0, ", r"p.yaml:11: gpus must be a list, not 0"),
        ("format:", "#", r"p.yaml:2: 'format' is missing"),
    ],
)
def test_a_broken_plan_by_ranks_is_explained(tmp_path: Path, old: str, new: str, message: str):
    file = tmp_path / "p.yaml"
    file.write_text(TEXT.format(problem="f").replace(old, new, 1))
    with pytest.raises(InputError, match=message):
        read_rank_plan(file)


@pytest.mark.usefixtures("_yaml")
def test_ranks_that_disagree_are_named_by_their_lines(tmp_path: Path):
    head, _, tail = TEXT.format(problem="f").rpartition("end_s: 1.0")
    file = tmp_path / "p.yaml"
    file.write_text(f"{head}end_s: 1.5{tail}")
    with pytest.raises(InputError, match=r"p.yaml:14: differs from the same task at line 10"):
        read_rank_plan(file)


@pytest.mark.usefixtures("_yaml")
def test_a_plan_for_another_problem_is_refused(tmp_path: Path):
    file = tmp_path / "p.yaml"
    file.write_text(TEXT.format(problem="f"))
    with pytest.raises(InputError, match="the plan is for problem f, not for"):
        read_rank_plan(file).plan(problem_of(0))
