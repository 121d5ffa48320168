"""A look-up is a matter of milliseconds."""

from __future__ import annotations

import statistics
import subprocess
import sys
import time
from pathlib import Path

from sqlalchemy import text

from arachne_opt.db.store import PlanStore
from tests.db.builders import fingerprint, plan_record

ROOT = Path(__file__).resolve().parents[2]

_FRESH = """
import sys, time
from arachne_opt.db.store import PlanStore
before = time.perf_counter()
with PlanStore.open(sys.argv[1]) as store:
    assert store.find_plan(sys.argv[2]) is not None
print(time.perf_counter() - before)
heavy = {"alembic", "sqlalchemy.orm", "torch", "ortools", "numpy", "mako"} & set(sys.modules)
assert not heavy, heavy
"""


def test_a_look_up_among_other_plans_takes_less_than_20_ms(store: PlanStore) -> None:
    for i in range(30):
        store.add_plan(plan_record(f"p{i}", cascades=64))
    times_s = []
    for i in range(30):
        before = time.perf_counter()
        assert store.find_plan(fingerprint(f"p{i}")) is not None
        times_s.append(time.perf_counter() - before)
    assert statistics.median(times_s) < 0.02


def test_a_fresh_process_opens_and_looks_up_in_100_ms_without_alembic(sqlite_file: Path) -> None:
    with PlanStore.open(sqlite_file) as store:
        store.add_plan(plan_record(cascades=64))
    command = [sys.executable, "-c", _FRESH, str(sqlite_file), fingerprint("p")]
    times_s = []
    for _ in range(2):
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
        times_s.append(float(done.stdout))
    assert min(times_s) < 0.1


def test_look_ups_and_lists_use_an_index(sqlite_file: Path) -> None:
    seen: list[str] = []
    with PlanStore.open(sqlite_file) as store:
        raw = store.database

        def explain(statement: str, **values: object) -> str:
            query = text(f"EXPLAIN QUERY PLAN {statement}")
            return " ".join(str(row) for row in raw.read(lambda c: c.execute(query, values).all()))

        seen.append(
            explain(
                "SELECT * FROM problems JOIN plans ON plans.problem_id = problems.id"
                " WHERE problems.fingerprint = :f ORDER BY objective_us",
                f="x",
            )
        )
        seen.append(explain("SELECT id FROM plans ORDER BY created_at DESC, id DESC LIMIT 5"))
        seen.append(explain("SELECT id FROM plans WHERE id BETWEEN 'a' AND 'b'"))
    assert not any("SCAN" in plan and "USING" not in plan for plan in seen), seen
