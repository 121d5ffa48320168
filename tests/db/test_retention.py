"""What `gc` takes and what it leaves, and the numbers of a database."""

from __future__ import annotations

from sqlalchemy import text

from arachne_opt.db import migrate
from arachne_opt.db.store import PlanStore
from tests.db.builders import fingerprint, measurement, plan_record, run_record


def ids(store: PlanStore) -> set[str]:
    return {p.id for p in store.list_plans()}


def test_the_best_and_the_best_proof_of_every_problem_stay(store: PlanStore) -> None:
    best = store.add_plan(plan_record("a", objective_us=100, bound_us=50))
    proof = store.add_plan(plan_record("a", objective_us=140, bound_us=90))
    worse = [store.add_plan(plan_record("a", objective_us=o, bound_us=40)) for o in (110, 120)]
    other = store.add_plan(plan_record("b", objective_us=500, bound_us=1))
    assert set(store.remove_superseded(dry=True)) == {p.id for p in worse}
    assert len(ids(store)) == 5
    assert set(store.remove_superseded()) == {p.id for p in worse}
    assert ids(store) == {best.id, proof.id, other.id}
    found = store.find_plan(fingerprint("a"))
    assert found is not None
    assert (found.id, found.bound_us) == (best.id, 90)
    assert store.remove_superseded() == ()


def test_more_may_be_kept_and_young_ones_and_ones_with_runs_always_are(store: PlanStore) -> None:
    plans = [store.add_plan(plan_record(objective_us=100 + i, bound_us=50 - i)) for i in range(5)]
    store.add_run(run_record(plans[4].id), [measurement()])
    assert store.remove_superseded(older_than_s=3600) == ()
    assert set(store.remove_superseded(keep=2)) == {plans[2].id, plans[3].id}
    assert ids(store) == {plans[0].id, plans[1].id, plans[4].id}
    assert len(store.list_runs()) == 1


def test_quarantined_plans_go_and_stale_ones_when_asked(store: PlanStore) -> None:
    bad = store.add_plan(plan_record("a", objective_us=90, bound_us=70))
    good = store.add_plan(plan_record("a", objective_us=100, bound_us=80))
    store.quarantine_plan(bad.id, "test")
    old = store.add_plan(plan_record("old", cost_version="table/m/T:1"))
    new = store.add_plan(plan_record("new", cost_version="table/m/T:2"))
    assert store.remove_superseded() == (bad.id,)
    assert ids(store) == {good.id, old.id, new.id}
    assert store.remove_superseded(stale=True) == (old.id,)
    assert ids(store) == {good.id, new.id}


def test_many_plans_go_in_parts(store: PlanStore) -> None:
    store.add_plans([plan_record(objective_us=100, bound_us=10) for _ in range(1101)])
    assert len(store.remove_superseded()) == 1100
    assert len(ids(store)) == 1


def test_numbers_tell_answers_from_history(store: PlanStore, url: str) -> None:
    for objective in (100, 110, 120):
        plan = store.add_plan(plan_record("a", objective_us=objective, bound_us=10))
    store.add_plan(plan_record("b", cost_version="table/m/T:1"))
    store.add_plan(plan_record("c", cost_version="table/m/T:2"))
    store.quarantine_plan(plan.id, "test")
    found = store.stats()
    assert (found.rows["plans"], found.answers, found.stale, found.quarantined) == (5, 3, 1, 1)
    assert found.size_bytes > 10_000
    assert found.oldest is not None
    assert found.newest is not None
    assert found.oldest <= found.newest
    assert migrate.check(url).ok


def test_an_empty_database_has_numbers_too(store: PlanStore) -> None:
    found = store.stats()
    assert (found.rows["plans"], found.answers, found.oldest) == (0, 0, None)


def test_hostile_filters_find_nothing_and_break_nothing(store: PlanStore) -> None:
    kept = store.add_plan(plan_record())
    hostile = "'; DROP TABLE plans; --"
    for name in ("name", "cluster", "solver", "fingerprint", "kind"):
        assert store.list_plans(**{name: hostile}) == ()
    assert store.list_plans(name="%") == ()
    assert store.list_clusters(name=hostile) == ()
    hostile_record = plan_record(hostile, name=hostile, cluster_name=hostile, solver=hostile)
    stored = store.add_plan(hostile_record)
    assert [p.id for p in store.list_plans(name=hostile)] == [stored.id]
    assert store.get_plan(kept.id) == kept
    count = text("SELECT count(*) FROM plans")
    assert store.database.read(lambda c: c.execute(count).scalar()) == 2
