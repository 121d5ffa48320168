"""Near problems, stale prices, merged bounds and quarantine, on every kind of database."""

from __future__ import annotations

import logging
from dataclasses import replace

import pytest
from sqlalchemy import delete, insert, text

from arachne_opt.canonical import digest
from arachne_opt.cascade.problem import CascadeProblem
from arachne_opt.cascade.problem_json import problem_to_json
from arachne_opt.db import feature_rows, migrate, models
from arachne_opt.db.store import PlanStore
from arachne_opt.errors import DisagreementError, StoreError
from arachne_opt.nearness import cascade_features
from arachne_opt.records import PlanRecord
from tests.db.builders import fingerprint, plan_record
from tests.strategies import even_cluster, seeded_plan, two_stage

S = 10**6


def problem(nodes: int = 4, *seconds: int, version: str = "table/m/T:1") -> CascadeProblem:
    cascades = tuple(
        two_stage(f"c{i}", {1: s * S}, {1: 8 * s * S, 2: 5 * s * S})
        for i, s in enumerate(seconds or (1, 2, 3))
    )
    return CascadeProblem(
        name=f"{nodes} nodes",
        cluster=even_cluster(nodes, 4),
        cascades=cascades,
        cost_version=version,
    )


def record(of: CascadeProblem, **changes: object) -> PlanRecord:
    plan = seeded_plan(of)
    values = {
        "name": of.name,
        "fingerprint": of.fingerprint(),
        "cluster_fingerprint": digest(of.cluster.canonical()),
        "cost_version": of.cost_version,
        "problem": problem_to_json(of),
        "plan": plan.to_json(of),
        "objective_us": plan.makespan_us,
        "bound_us": 1,
    }
    return plan_record(**(values | changes))


def near(store: PlanStore, wanted: CascadeProblem, limit: int = 3) -> list[str]:
    features, own = cascade_features(wanted), wanted.fingerprint()
    return [r.name for _, r in store.near_plans(features, exclude=own, limit=limit)]


def test_the_nearest_cluster_comes_first_and_the_problem_itself_is_left_out(
    store: PlanStore,
) -> None:
    for nodes in (2, 4, 5, 8, 12):
        store.add_plan(record(problem(nodes)))
    assert near(store, problem(4)) == ["5 nodes", "8 nodes", "2 nodes"]
    assert near(store, problem(11), limit=1) == ["12 nodes"]


def test_similar_work_comes_first_among_equal_clusters(store: PlanStore) -> None:
    for seconds in ((1, 2, 3), (1, 2, 4), (5, 6, 7)):
        given = problem(4, *seconds)
        store.add_plan(record(given, name=str(seconds)))
    assert near(store, problem(4, 1, 2, 5))[0] == "(1, 2, 4)"
    assert near(store, problem(4, 5, 6))[0] == "(5, 6, 7)"


def test_another_kind_of_cluster_serves_where_no_like_one_is_known(store: PlanStore) -> None:
    given = problem(4)
    mixed = replace(given.cluster.nodes[0], name="m", zone="west")
    store.add_plan(
        record(replace(given, cluster=replace(given.cluster, nodes=(*given.cluster.nodes, mixed))))
    )
    assert near(store, given) == ["4 nodes"]


def test_problems_without_a_usable_plan_and_far_ones_are_no_near_hits(store: PlanStore) -> None:
    kept = store.add_plan(record(problem(5)))
    store.add_plan(record(problem(40, 900, 800, 700), name="far"))
    assert near(store, problem(4)) == ["5 nodes"]
    store.quarantine_plan(kept.id, "for a test")
    assert near(store, problem(4)) == []


def test_a_cluster_of_more_than_twice_the_size_is_no_near_hit(store: PlanStore) -> None:
    store.add_plan(record(problem(9)))
    assert near(store, problem(4)) == []
    assert near(store, problem(5)) == ["9 nodes"]


def test_facts_are_filled_in_for_problems_of_an_older_schema(store: PlanStore, url: str) -> None:
    store.add_plan(record(problem(5)))
    store.add_plan(plan_record("unreadable"))
    broken = store.add_plan(record(problem(6)))
    store.database.write(lambda c: c.execute(delete(models.PROBLEM_FEATURES)) and None)
    store.database.write(
        lambda c: c.execute(text("UPDATE cost_models SET lineage = NULL")) and None
    )
    damage = "UPDATE plan_payloads SET problem = '[1]' WHERE plan_id = :id"
    store.database.write(lambda c: c.execute(text(damage), {"id": broken.id}) and None)
    assert near(store, problem(4)) == []
    migrate.upgrade(url)
    assert near(store, problem(4)) == ["5 nodes"]
    lineages = "SELECT lineage FROM cost_models WHERE version = 'table/m/T:1'"
    assert store.database.read(lambda c: c.execute(text(lineages)).scalar()) == "table/m/T"


def test_the_search_looks_at_few_of_many_problems(store: PlanStore) -> None:
    given = problem(4)
    row = store.add_plan(record(given))
    features = cascade_features(given)

    def many(connection: object) -> None:
        base = connection.execute(models.PROBLEMS.select()).mappings().one()
        rows = [dict(base) | {"id": f"{i:016x}", "fingerprint": f"{i:064x}"} for i in range(2000)]
        connection.execute(insert(models.PROBLEMS), rows)
        facts = connection.execute(models.PROBLEM_FEATURES.select()).mappings().one()
        more = [
            dict(facts) | {"problem_id": r["id"], "work": 10**9 + i} for i, r in enumerate(rows)
        ]
        connection.execute(insert(models.PROBLEM_FEATURES), more)

    store.database.write(many)
    seen: list[int] = []
    original = feature_rows.distance
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(feature_rows, "distance", lambda a, b: seen.append(1) or original(a, b))
        # The others have no plans, and are not even looked at.
        found = store.near_plans(features)
    assert [r.id for _, r in found] == [row.id]
    assert len(seen) < 20


def test_newer_prices_of_the_same_model_make_plans_stale(store: PlanStore) -> None:
    old = store.add_plan(record(problem(4)))
    other = store.add_plan(record(problem(4, version="table/m/other:1")))
    assert not store.get_plan(old.id).stale
    new = problem(4, version="table/m/T:2")
    assert store.find_plan(new.fingerprint()) is None
    assert "4 nodes" in near(store, new)
    fresh = store.add_plan(record(new))
    assert store.get_plan(old.id).stale
    assert [p.id for p in store.list_plans(stale=True)] == [old.id]
    assert {p.id for p in store.list_plans(stale=False)} == {other.id, fresh.id}


def test_a_bound_that_another_plan_proves_holds_for_the_best_one(store: PlanStore) -> None:
    best = store.add_plan(plan_record(objective_us=100, bound_us=60))
    prover = store.add_plan(plan_record(objective_us=120, bound_us=90))
    found = store.find_plan(fingerprint("p"))
    assert found is not None
    assert (found.id, found.bound_us, found.status) == (best.id, 90, "feasible")
    assert {p.bound_us for p in store.list_plans()} == {90}
    store.add_plan(plan_record(objective_us=130, bound_us=100))
    assert store.get_plan(best.id).status == "optimal"
    assert [p.id for p in store.list_plans(status="optimal")] == [best.id]
    assert [p.id for p in store.list_plans(best=True)] == [best.id]
    assert prover.id in {p.id for p in store.list_plans(status="feasible")}


def test_a_bound_above_a_stored_plan_is_refused(store: PlanStore) -> None:
    kept = store.add_plan(plan_record(objective_us=100, bound_us=60))
    with pytest.raises(DisagreementError, match=f"above the objective 100 us of plan {kept.id}"):
        store.add_plan(plan_record(objective_us=150, bound_us=101))
    assert len(store.list_plans()) == 1


def test_a_plan_that_refutes_a_bound_puts_the_prover_into_quarantine(
    store: PlanStore, caplog: pytest.LogCaptureFixture
) -> None:
    wrong = store.add_plan(plan_record(objective_us=100, bound_us=90))
    right = store.add_plan(plan_record(objective_us=80, bound_us=50))
    found = store.find_plan(fingerprint("p"))
    assert found is not None
    assert (found.id, found.bound_us) == (right.id, 50)
    assert wrong.id in caplog.text
    reasons = {p.id: p.quarantine for p in store.list_plans()}
    assert reasons[right.id] is None
    assert "better than the bound" in str(reasons[wrong.id])


def test_a_damaged_plan_is_put_into_quarantine_once(
    store: PlanStore, caplog: pytest.LogCaptureFixture
) -> None:
    good = store.add_plan(plan_record(objective_us=50_000_000))
    bad = store.add_plan(plan_record(objective_us=45_000_000))
    spoil = "UPDATE plan_payloads SET plan = '[1]' WHERE plan_id = :id"
    store.database.write(lambda c: c.execute(text(spoil), {"id": bad.id}) and None)
    with caplog.at_level(logging.WARNING):
        assert store.find_plan(good.fingerprint) == store.get_plan(good.id)
        told = len(caplog.records)
        assert store.find_plan(good.fingerprint) is not None
    assert len(caplog.records) == told >= 1
    assert [p.quarantine is None for p in store.list_plans()] == [False, True]
    with pytest.raises(StoreError, match="damaged"):
        store.get_plan(bad.id)
