"""The contract of the plan store, on every kind of database."""

from __future__ import annotations

import json
import logging
import secrets
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from sqlalchemy import text
from sqlalchemy.engine import make_url

from arachne_opt.db import migrate
from arachne_opt.db.store import PlanStore
from arachne_opt.errors import DisagreementError, InputError, StoreError
from tests.db.builders import fingerprint, measurement, plan_record, run_record


def count(store: PlanStore, table: str) -> int:
    return store.database.read(lambda c: c.execute(text(f"SELECT count(*) FROM {table}")).scalar())


def execute(store: PlanStore, statement: str, **values: object) -> None:
    store.database.write(lambda c: c.execute(text(statement), values))


def test_a_stored_plan_comes_back_as_it_was_given(store: PlanStore) -> None:
    given = plan_record()
    stored = store.add_plan(given)
    assert replace(stored, id="", created_at="") == given
    assert store.find_plan(given.fingerprint) == stored
    assert store.get_plan(stored.id) == stored


def test_payloads_keep_unicode_numbers_and_the_order_of_keys(store: PlanStore) -> None:
    payload = {"z": "naïve – 影片 \u0001", "a": [0.1, -0.0, 1e-300, 2**53], "n": None, "t": True}
    stored = store.add_plan(plan_record("x", plan=payload, name="影片 'x' % \"y\""))
    found = store.get_plan(stored.id)
    assert json.dumps(found.plan) == json.dumps(payload)
    assert found.name == "影片 'x' % \"y\""


def test_the_time_of_storing_is_utc(store: PlanStore) -> None:
    stored = store.add_plan(plan_record())
    moment = datetime.fromisoformat(stored.created_at)
    assert moment.utcoffset() == timedelta(0)
    assert abs(datetime.now(UTC) - moment) < timedelta(seconds=10)
    assert store.get_plan(stored.id).created_at == stored.created_at


def test_an_unknown_problem_has_no_plan(store: PlanStore) -> None:
    store.add_plan(plan_record())
    assert store.find_plan(fingerprint("another")) is None


def test_the_best_plan_of_a_problem_is_found_and_the_others_stay(store: PlanStore) -> None:
    for objective, bound in [(50, 40), (45, 30), (45, 44), (45, 41), (60, 45)]:
        store.add_plan(plan_record(objective_us=objective, bound_us=bound))
    best = store.find_plan(fingerprint("p"))
    assert best is not None
    # The plan of 60 proved 45 for all.
    assert (best.objective_us, best.bound_us, best.status) == (45, 45, "optimal")
    assert len(store.list_plans()) == 5


def test_of_equal_plans_the_oldest_is_found(store: PlanStore) -> None:
    first = store.add_plan(plan_record())
    for _ in range(3):
        store.add_plan(plan_record())
    found = store.find_plan(first.fingerprint)
    assert found is not None
    assert found.created_at == first.created_at


def test_clusters_cost_models_and_problems_are_stored_once(store: PlanStore) -> None:
    for problem in ("p", "q", "p", "q"):
        store.add_plan(plan_record(problem))
    store.add_plan(plan_record("r", cluster_fingerprint=fingerprint("other"), cluster_name="big"))
    tables = ("clusters", "cost_models", "problems", "plans", "plan_payloads")
    assert [count(store, table) for table in tables] == [2, 1, 3, 5, 5]


def test_plans_of_one_problem_keep_the_names_that_they_were_asked_under(store: PlanStore) -> None:
    a = store.add_plan(plan_record(cluster_name="monday", name="a"))
    b = store.add_plan(plan_record(cluster_name="tuesday", name="b"))
    assert store.get_plan(a.id).cluster_name == "monday"
    assert store.get_plan(b.id).cluster_name == "tuesday"


@pytest.mark.parametrize("verdict", ["illegal", "", "unchecked"])
def test_a_plan_that_the_checker_did_not_pass_is_never_stored(
    store: PlanStore, verdict: str
) -> None:
    with pytest.raises(DisagreementError, match="only legal plans"):
        store.add_plan(plan_record(verdict=verdict))
    assert count(store, "clusters") == 0


def test_a_plan_that_beats_its_bound_is_never_stored(store: PlanStore) -> None:
    with pytest.raises(DisagreementError, match="above the objective"):
        store.add_plan(plan_record(objective_us=10, bound_us=11))


@pytest.mark.parametrize(
    "changes",
    [
        {"plan": {"end_s": float("nan")}},
        {"plan": {"x": float("inf")}},
        {"plan": {"x": {1, 2}}},
        {"seed": 2**70},
        {"name": "half a pair \ud800"},
        {"kind": "dance"},
        {"status": "infeasible"},
    ],
)
def test_what_cannot_be_stored_is_refused_and_leaves_nothing(
    store: PlanStore, changes: dict[str, object]
) -> None:
    with pytest.raises(InputError, match="cannot be stored"):
        store.add_plan(plan_record(**changes))
    assert [count(store, t) for t in ("clusters", "problems", "plans")] == [0, 0, 0]


def test_a_plan_is_found_by_a_unique_prefix_of_its_id(store: PlanStore) -> None:
    stored = store.add_plan(plan_record())
    for length in (1, 8, 16):
        assert store.get_plan(stored.id[:length]) == stored
    assert store.get_plan(stored.id.upper()) == stored


def test_an_ambiguous_prefix_names_the_candidates(store: PlanStore) -> None:
    plans = [store.add_plan(plan_record(name=f"plan {i}")) for i in range(2)]
    with pytest.raises(InputError, match="several plans") as caught:
        store.get_plan(plans[0].id[:1])
    assert all(f"{plan.id} ({plan.name})" in str(caught.value) for plan in plans)


@pytest.mark.parametrize("prefix", ["0", "", "xyz", "%", "_", "' OR 1=1 --", "0" * 17])
def test_an_unknown_or_malformed_id_is_refused(store: PlanStore, prefix: str) -> None:
    store.add_plan(plan_record())
    with pytest.raises(InputError, match="arachne plans list"):
        store.get_plan(prefix)


def test_plans_are_listed_by_age_page_by_page(store: PlanStore) -> None:
    ids = [store.add_plan(plan_record(f"p{i}")).id for i in range(5)]
    assert [plan.id for plan in store.list_plans()] == ids[::-1]
    pages = [store.list_plans(limit=2, offset=offset) for offset in (0, 2, 4, 6)]
    assert [plan.id for page in pages for plan in page] == ids[::-1]


def test_a_summary_says_what_the_plan_says(store: PlanStore) -> None:
    stored = store.add_plan(plan_record())
    (summary,) = store.list_plans()
    for name in summary.__dataclass_fields__:
        assert getattr(summary, name) == getattr(stored, name)
    assert summary.gap == stored.gap


def test_plans_are_filtered(store: PlanStore) -> None:
    store.add_plan(plan_record("a", name="Wan 100%", cluster_name="lab"))
    store.add_plan(plan_record("b", name="wan 1000", cluster_name="big"))
    store.add_plan(plan_record("c", name="gpt", kind="pipeline", cluster_name="big"))

    def names(**filters: str) -> set[str]:
        return {plan.name for plan in store.list_plans(**filters)}

    assert names(kind="pipeline") == {"gpt"}
    assert names(name="WAN") == {"Wan 100%", "wan 1000"}
    assert names(name="100%") == {"Wan 100%"}
    assert names(cluster="big") == {"wan 1000", "gpt"}
    assert names(cluster="big", name="wan") == {"wan 1000"}
    assert names(fingerprint=fingerprint("c")) == {"gpt"}
    assert names(name="' OR 1=1 --") == set()


@pytest.mark.parametrize(("limit", "offset"), [(0, 0), (-1, 0), (10**6, 0), (5, -1)])
def test_a_page_out_of_range_is_refused(store: PlanStore, limit: int, offset: int) -> None:
    with pytest.raises(InputError, match="a page has"):
        store.list_plans(limit=limit, offset=offset)


def test_a_run_is_stored_with_what_it_measured(store: PlanStore) -> None:
    plan = store.add_plan(plan_record())
    given = run_record(plan.id)
    run = store.add_run(given, [measurement(source="replay"), measurement(degree=4)])
    assert replace(run, id="", created_at="") == given
    assert store.get_run(run.id[:12]) == run
    assert {m.degree for m in store.measurements()} == {2, 4}


def test_a_run_of_an_unknown_plan_is_refused_whole(store: PlanStore) -> None:
    with pytest.raises(InputError, match="not in the database"):
        store.add_run(run_record("0" * 16), [measurement()])
    assert [count(store, table) for table in ("runs", "models", "measurements")] == [0, 0, 0]


def test_runs_are_listed_by_age_and_by_plan(store: PlanStore) -> None:
    plans = [store.add_plan(plan_record(f"p{i}")) for i in range(2)]
    runs = [store.add_run(run_record(plans[i % 2].id)) for i in range(4)]
    assert [run.id for run in store.list_runs()] == [run.id for run in runs[::-1]]
    listed = store.list_runs(plan=plans[0].id)
    assert [run.id for run in listed] == [runs[2].id, runs[0].id]
    assert listed[0].plan_name == plans[0].name
    assert listed[0].fidelity == runs[2].fidelity == 1.1


def test_an_unknown_run_is_refused(store: PlanStore) -> None:
    with pytest.raises(InputError, match="no run has the id"):
        store.get_run("abc")
    with pytest.raises(InputError, match="no plan has the id"):
        store.list_runs(plan="abc")


def test_measurements_come_back_in_order_and_filtered(store: PlanStore) -> None:
    samples = [
        measurement(model="b", duration_us=1),
        measurement(model="a", device_type="A100-40", duration_us=2),
        measurement(model="a", duration_us=3, task="encode"),
        measurement(model="a", duration_us=4, source="replay"),
        measurement(model="a", duration_us=5, source="replay", recompute=True),
    ]
    assert store.add_measurements(samples) == 5
    assert store.measurements() == tuple(samples)
    assert store.measurements(model="a") == tuple(samples[1:])
    assert store.measurements(model="a", device_type="cpu") == tuple(samples[2:])
    assert store.measurements(task="encode") == (samples[2],)
    assert store.measurements(source="replay") == tuple(samples[3:])
    assert store.measurements(model="c") == ()


def test_one_bad_measurement_keeps_all_out(store: PlanStore) -> None:
    with pytest.raises(InputError, match="cannot be stored"):
        store.add_measurements([measurement(), measurement(source="guess")])
    assert store.measurements() == ()
    assert store.add_measurements([]) == 0


def test_a_deleted_plan_is_gone_and_the_others_stay(store: PlanStore) -> None:
    plans = [store.add_plan(plan_record(objective_us=50_000_000 + i)) for i in range(2)]
    assert store.delete_plan(plans[0].id) == plans[0].id
    assert store.find_plan(fingerprint("p")) == plans[1]
    assert count(store, "plan_payloads") == 1
    with pytest.raises(InputError, match="no plan has the id"):
        store.delete_plan(plans[0].id)


def test_a_plan_with_runs_goes_only_when_they_may_go_and_measurements_stay(
    store: PlanStore,
) -> None:
    plan = store.add_plan(plan_record())
    store.add_run(run_record(plan.id), [measurement()])
    with pytest.raises(InputError, match="has 1 runs"):
        store.delete_plan(plan.id)
    store.delete_plan(plan.id, with_runs=True)
    assert store.list_runs() == ()
    assert store.measurements() == (measurement(),)


def test_a_store_that_is_open_for_reading_reads_and_refuses_writes(url: str) -> None:
    with PlanStore.open(url) as writer:
        plan = writer.add_plan(plan_record())
    with PlanStore.open(url, read_only=True) as reader:
        assert reader.find_plan(plan.fingerprint) == plan
        with pytest.raises(StoreError, match="for reading only"):
            reader.add_plan(plan_record())


def test_a_reading_transaction_cannot_write(store: PlanStore) -> None:
    if store.database.location.path is None:
        with pytest.raises(StoreError, match="read-only"):
            store.database.read(lambda c: c.execute(text("DELETE FROM plans")))


@pytest.mark.postgres
def test_a_role_that_may_only_select_can_look(postgres_url: str) -> None:
    migrate.upgrade(postgres_url)
    role = f"reader_{secrets.token_hex(4)}"
    with PlanStore.open(postgres_url) as owner:
        plan = owner.add_plan(plan_record())
        schema = owner.database.read(lambda c: c.execute(text("SELECT current_schema()")).scalar())
        grants = (
            f"CREATE ROLE {role} LOGIN",
            f"GRANT USAGE ON SCHEMA {schema} TO {role}",
            f"GRANT SELECT ON ALL TABLES IN SCHEMA {schema} TO {role}",
        )
        for statement in grants:
            execute(owner, statement)
        url = make_url(postgres_url).set(username=role).render_as_string(hide_password=False)
        with PlanStore.open(url, read_only=True) as reader:
            assert reader.find_plan(plan.fingerprint) == plan
            assert len(reader.list_plans()) == len(reader.list_clusters()) == 1
            assert reader.stats().answers == 1
        assert migrate.check(url).ok
        with PlanStore.open(url) as writer, pytest.raises(StoreError, match="may not do that"):
            writer.add_plan(plan_record())
        execute(owner, f"DROP OWNED BY {role}")
        execute(owner, f"DROP ROLE {role}")


def test_a_damaged_plan_is_passed_over_and_named(
    store: PlanStore, caplog: pytest.LogCaptureFixture
) -> None:
    worse = store.add_plan(plan_record(objective_us=50_000_000))
    best = store.add_plan(plan_record(objective_us=45_000_000))
    execute(store, "UPDATE plan_payloads SET plan = '[1]' WHERE plan_id = :id", id=best.id)
    with caplog.at_level(logging.WARNING):
        assert store.find_plan(best.fingerprint) == worse
    assert best.id in caplog.text
    with pytest.raises(StoreError, match=f"{best.id} is damaged.*arachne plans delete {best.id}"):
        store.get_plan(best.id)
    assert store.delete_plan(best.id) == best.id


def test_a_failing_transaction_leaves_nothing(store: PlanStore) -> None:
    def work(connection: object) -> None:
        execute_on = connection.execute
        execute_on(
            text("INSERT INTO models (id, name, created_at) VALUES ('1', 'm', :now)"),
            {"now": datetime.now(UTC)},
        )
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        store.database.write(work)
    assert count(store, "models") == 0
