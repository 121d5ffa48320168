"""The comparison on public instances."""

import dataclasses
from pathlib import Path

import pytest

from arachne_opt.bench.cascades import RULES, Row, compare, rule_makespan_us, summarise
from arachne_opt.importers.instances import read_instances, read_instances_sparingly
from arachne_opt.solvers.base import Limits


@pytest.fixture(scope="module")
def rows(shared_data: Path) -> list[Row]:
    folder, only = shared_data / "cascades", ["wa*_it0", "n4_g32_it2"]
    instances = read_instances_sparingly(folder, only=only)
    full = read_instances(folder, allow_estimates=True, only=only)
    limits = Limits(time_limit_s=0.5, workers=1)
    pairs = zip(instances, full, strict=True)
    return [compare(i, limits, solver="list", full=whole.problem) for i, whole in pairs]


def test_estimates_are_used_only_where_a_task_has_no_others(shared_data: Path) -> None:
    found = read_instances_sparingly(shared_data / "cascades")
    estimated = [i.id for i in found if i.estimated]
    assert estimated == ["n4_g32_it2", "n4_g64_it2"]
    plain = read_instances(shared_data / "cascades", exclude=estimated)
    assert {i.id: i.problem for i in plain}.items() <= {i.id: i.problem for i in found}.items()


def test_published_figures_and_rules_stand_beside_ours(rows: list[Row]) -> None:
    row = next(r for r in rows if r.instance.id == "wa_g32_it0")
    assert set(row.rules_us) == set(RULES)
    assert row.opponents_us["genetic, written schedule"] == 34_237_719
    assert row.opponents_us["best published, 32 GPUs"] == 30_751_287
    assert row.opponents_us["flex-sp-milp"] == row.rules_us["flex-sp-milp"]


def test_a_rule_may_use_estimates_that_our_solver_may_not(rows: list[Row]) -> None:
    row = next(r for r in rows if r.instance.id == "wa_g64_it0")
    problem, limits = row.instance.problem, Limits()
    assert not row.instance.estimated
    assert rule_makespan_us([problem], "megatron-uniform", limits) is None
    assert row.rules_us["megatron-uniform"] == 24_213_107


def test_a_rule_without_a_plan_is_no_opponent(rows: list[Row]) -> None:
    row = dataclasses.replace(rows[0], rules_us={"flex-sp": None, "best-uniform": 1})
    assert "flex-sp" not in row.opponents_us
    assert row.opponents_us["best-uniform"] == 1


def test_the_summary_counts_every_instance_of_an_opponent(rows: list[Row]) -> None:
    summary = summarise(rows)
    assert summary["best-uniform"].count == len(rows)
    assert summary["genetic, written schedule"].count == 3
    assert list(summary)[-1] == RULES[-1]
    assert all(r.wins + r.ties + r.losses == r.count for r in summary.values())


def test_even_list_schedules_beat_the_uniform_rules(rows: list[Row]) -> None:
    summary = summarise(rows)
    assert summary["best-uniform"].wins == len(rows)
