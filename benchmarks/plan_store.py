"""How fast a plan store is with many plans, and what many processes at once do to it.

    python benchmarks/plan_store.py --db plans.db
    .ci/with-postgres python benchmarks/plan_store.py   # takes the server's address from CI
    python benchmarks/plan_store.py --db plans.db --only look-up   # one part, as often as wanted

The database must be empty or missing, or filled by an earlier run. Prints medians of an exact
look-up, of a search for near problems and of the first page of the list, the wall time of
``arachne plans list``, the throughput of processes that store, find and list at the same time, what
is left when writers are killed at random moments, how long after the death of a process that
solves another one takes over, and the time of ``gc``. Plans that are lost, doubled or half end it.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import random
import signal
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime

from generated import run
from sqlalchemy import Connection, insert, text

from arachne_opt.canonical import digest
from arachne_opt.cascade.plan import CascadePlan
from arachne_opt.cascade.problem import CascadeProblem
from arachne_opt.cascade.problem_json import problem_to_json
from arachne_opt.cluster_file import parse_shorthand
from arachne_opt.costs.analytic import analytic_for_cluster
from arachne_opt.costs.build import build_problem
from arachne_opt.db import migrate
from arachne_opt.db.locks import single_flight
from arachne_opt.db.models import METADATA, PLAN_PAYLOADS, PLANS, PROBLEM_FEATURES, PROBLEMS
from arachne_opt.db.store import PlanStore
from arachne_opt.models import model_spec
from arachne_opt.nearness import cascade_features
from arachne_opt.records import PlanRecord
from arachne_opt.solvers.cascade.quick import quick_plan
from arachne_opt.workload_generator import generate_workload

_CHUNK = 1000
CASES = tuple(
    (preset, nodes) for nodes in (2, 3, 4, 6, 8, 12, 16) for preset in ("mixed", "720p", "360p")
)


PARTS = ("fill", "look-up", "processes", "kills", "take-over", "gc")


def main() -> None:
    """Fills the database, measures and prints."""
    options = _options()
    migrate.upgrade(options.db)
    with PlanStore.open(options.db) as store:
        kind = store.database.engine.dialect.name
        print(f"{kind}, {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}")
        if "fill" in options.only and not store.list_plans(limit=1):
            fill(store, options.plans)
        if "look-up" in options.only:
            look_up(store)
    if "look-up" in options.only:
        listing(options.db)
    if "processes" in options.only:
        throughput(options.db, options.processes, options.operations)
    if "kills" in options.only:
        kills(options.db, options.kills)
    if "take-over" in options.only:
        take_over(options.db)
    if "gc" in options.only:
        collect(options.db)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--db", default=os.environ.get("ARACHNE_TEST_POSTGRES"))
    parser.add_argument("--only", nargs="+", choices=PARTS, default=PARTS)
    parser.add_argument("--plans", type=int, default=100_000)
    parser.add_argument("--processes", type=int, default=8)
    parser.add_argument("--operations", type=int, default=500, help="of each process")
    parser.add_argument("--kills", type=int, default=200)
    options = parser.parse_args()
    if options.db is None:
        parser.error("name a database with --db")
    return options


def fill(store: PlanStore, count: int) -> None:
    """Stores real problems of many cluster sizes and shapes, and copies of them up to a count."""
    dice, begin, seen = random.Random(0), time.perf_counter(), 0
    for preset, nodes in CASES:
        stored = store.add_plan(_record(*_planned(preset, nodes)))
        seen += 1
        copies = count // len(CASES) - 1
        for first in range(0, copies, _CHUNK):
            number = min(_CHUNK, copies - first)
            store.database.write(lambda c, r=stored, n=number: _copies(c, r.id, n, dice))
            seen += number
    if store.database.location.path is None:
        store.database.write(lambda c: c.execute(text("ANALYZE")) and None)
    print(f"{seen} plans, {time.perf_counter() - begin:.0f} s to store")


def _planned(preset: str, nodes: int) -> tuple[CascadeProblem, CascadePlan]:
    cluster = parse_shorthand(f"H100-80:8x{nodes}")
    costs = analytic_for_cluster(model_spec("wan2.1-14b"), cluster)
    workload = generate_workload(preset, iterations=1, cascades=2 * nodes + 4, seed=nodes)
    problem = build_problem(workload.iterations[0], cluster, costs, name=f"{preset} x{nodes}")
    return problem, quick_plan(problem)[0]


def _record(problem: CascadeProblem, plan: CascadePlan) -> PlanRecord:
    return PlanRecord(
        kind="cascade",
        name=problem.name,
        fingerprint=problem.fingerprint(),
        cluster_fingerprint=digest(problem.cluster.canonical()),
        cluster_name=problem.cluster.name,
        cost_version=problem.cost_version,
        problem=problem_to_json(problem),
        plan=plan.to_json(problem),
        status="feasible",
        objective_us=plan.makespan_us,
        bound_us=1,
        solver="list",
        seed=0,
        wall_s=0.01,
        time_limit_s=1.0,
        verdict="legal",
    )


def _copies(connection: Connection, plan_id: str, count: int, dice: random.Random) -> None:
    """Copies of a plan, most of them of problems of their own with slightly other work."""
    plan = dict(connection.execute(PLANS.select().where(PLANS.c.id == plan_id)).mappings().one())
    own = PROBLEMS.c.id == plan["problem_id"]
    problem = dict(connection.execute(PROBLEMS.select().where(own)).mappings().one())
    facts_of = PROBLEM_FEATURES.c.problem_id == problem["id"]
    facts = dict(connection.execute(PROBLEM_FEATURES.select().where(facts_of)).mappings().one())
    payload_of = PLAN_PAYLOADS.c.plan_id == plan_id
    payload = dict(connection.execute(PLAN_PAYLOADS.select().where(payload_of)).mappings().one())
    rows: dict[str, list[dict[str, object]]] = {t.name: [] for t in METADATA.sorted_tables}
    now = datetime.now(UTC)
    for _ in range(count):
        key = f"{dice.getrandbits(64):016x}"
        if dice.random() < 0.8 or not rows["problems"]:
            new = {"id": key, "fingerprint": f"{dice.getrandbits(256):064x}"}
            rows["problems"].append(problem | new)
            work = round(facts["work"] * dice.uniform(0.5, 2))
            rows["problem_features"].append(facts | {"problem_id": key, "work": work})
        mine = {"id": key, "problem_id": rows["problems"][-1]["id"], "created_at": now}
        worse = plan["objective_us"] + dice.randrange(10**6)
        rows["plans"].append(plan | mine | {"objective_us": worse})
        rows["plan_payloads"].append(payload | {"plan_id": key})
    for table in METADATA.sorted_tables:
        if rows[table.name]:
            connection.execute(insert(table), rows[table.name])


def look_up(store: PlanStore) -> None:
    """Prints the medians of what a request asks the database."""
    query = text("SELECT fingerprint FROM problems ORDER BY fingerprint")
    prints = list(store.database.read(lambda c: c.execute(query).scalars().all()))
    wanted = [cascade_features(_planned(preset, nodes)[0]) for preset, nodes in CASES]
    print(f"{store.stats().rows['plans']} plans of {len(prints)} problems")
    dice = random.Random(1)
    exact = [_timed(lambda: store.find_plan(dice.choice(prints))) for _ in range(200)]
    near = []
    for _ in range(40):
        like = dice.choice(wanted)
        like = replace(like, work=round(like.work * dice.uniform(0.6, 1.6)))
        near.append(_timed(lambda like=like: store.near_plans(like)))
    page = [_timed(lambda: store.list_plans(limit=20)) for _ in range(20)]
    best = [_timed(lambda: store.list_plans(limit=20, best=True)) for _ in range(5)]
    for name, times_s in (("exact look-up", exact), ("near hits", near), ("list page", page)):
        worst, middle = 1e3 * max(times_s), 1e3 * statistics.median(times_s)
        print(f"{name}: {middle:.2f} ms median, {worst:.1f} ms at most")
    print(f"best page: {1e3 * statistics.median(best):.2f} ms median")


def _timed(work: Callable[[], object]) -> float:
    begin = time.perf_counter()
    assert work()
    return time.perf_counter() - begin


def listing(url: str) -> None:
    """Prints the wall time of the whole command, imports included."""
    command = [sys.executable, "-m", "arachne_opt", "plans", "list", "--db", url]
    times_s = []
    for _ in range(3):
        begin = time.perf_counter()
        subprocess.run(command, check=True, capture_output=True)
        times_s.append(time.perf_counter() - begin)
    print(f"arachne plans list: {min(times_s):.2f} s wall, best of 3")


def throughput(url: str, processes: int, operations: int) -> None:
    """Prints what several processes get through, and checks that nothing is lost or doubled."""
    with PlanStore.open(url) as store:
        before = store.stats().rows["plans"]
    context = multiprocessing.get_context("fork")
    begin = time.perf_counter()
    with context.Pool(processes) as pool:
        stored = pool.starmap(_mix, [(url, operations, seed) for seed in range(processes)])
    wall_s = time.perf_counter() - begin
    ids = [plan_id for part in stored for plan_id in part]
    with PlanStore.open(url) as store:
        added = store.stats().rows["plans"] - before
    assert len(set(ids)) == len(ids) == added, (len(ids), added)
    total = processes * operations
    print(
        f"{processes} processes, {total} operations: {total / wall_s:.0f}/s, {added} plans stored,"
    )
    print("none lost, none doubled")


def _mix(url: str, operations: int, seed: int) -> list[str]:
    dice, ids = random.Random(seed), []
    problem, plan = _planned("360p", 2)
    records = [
        replace(_record(problem, plan), fingerprint=f"{i:064x}", name=f"mix {i}") for i in range(5)
    ]
    with PlanStore.open(url) as store:
        for _ in range(operations):
            draw, record = dice.random(), dice.choice(records)
            if draw < 0.4:
                ids.append(store.add_plan(record).id)
            elif draw < 0.8:
                store.find_plan(record.fingerprint)
            else:
                store.list_plans(limit=10)
    return ids


def kills(url: str, times: int) -> None:
    """Kills writers at random moments; every plan must be whole or absent."""
    dice, known, begin = random.Random(1), set[str](), time.perf_counter()
    problem, plan = _planned("mixed", 12)
    record = replace(_record(problem, plan), name="killed", fingerprint="killed")
    with PlanStore.open(url) as store:
        for _ in range(times):
            reader, writer = os.pipe()
            child = os.fork()
            if child == 0:
                os.close(reader)
                _store_for_ever(store, record, writer)
            os.close(writer)
            with os.fdopen(reader) as lines:
                known.add(lines.readline())
                time.sleep(dice.uniform(0, 0.05))
                os.kill(child, signal.SIGKILL)
                os.waitpid(child, 0)
                known |= set(lines.read().splitlines(keepends=True))
    # An id that was cut off in the pipe was stored as well.
    ids = {line.strip() for line in known if line.endswith("\n")}
    begin_check = time.perf_counter()
    assert migrate.check(url).ok
    check_s = time.perf_counter() - begin_check
    with PlanStore.open(url) as store:
        stored = store.list_plans(limit=10_000, fingerprint="killed")
        assert ids <= {row.id for row in stored}
        for row in stored:
            assert store.get_plan(row.id).plan == record.plan
    wall_s = begin_check - begin
    print(f"{times} writers killed in {wall_s:.0f} s: {len(stored)} plans, each of them whole,")
    print(f"of which {len(ids)} were told before the kill; db check passes ({check_s:.1f} s)")


def _store_for_ever(store: PlanStore, record: PlanRecord, pipe: int) -> None:
    while True:
        os.write(pipe, f"{store.add_plan(record).id}\n".encode())


def take_over(url: str) -> None:
    """Prints how soon another process solves after one was killed, and after one was stopped."""
    for name, number in (("killed", signal.SIGKILL), ("stopped", signal.SIGSTOP)):
        reader, writer = os.pipe()
        child = os.fork()
        if child == 0:
            _solve_for_ever(url, writer)
        assert os.read(reader, 1) == b"."
        print(f"taken over {_wait_for(url, child, number):.1f} s after a solver was {name}")
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)


def _solve_for_ever(url: str, pipe: int) -> None:
    with PlanStore.open(url) as store, single_flight(store, "request", 0):
        os.write(pipe, b".")
        time.sleep(600)


def _wait_for(url: str, child: int, number: signal.Signals) -> float:
    """Waits for a request of a process, which is sent a signal meanwhile; seconds since then."""
    sent: list[float] = []

    def send(_waited_s: float) -> None:
        if not sent:
            os.kill(child, number)
            sent.append(time.perf_counter())

    with PlanStore.open(url) as store, single_flight(store, "request", 60, on_wait=send) as alone:
        assert alone
        return time.perf_counter() - sent[0]


def collect(url: str) -> None:
    """Removes superseded plans; the best of every problem must stay."""
    best = text("SELECT problem_id, min(objective_us) FROM plans GROUP BY problem_id")
    with PlanStore.open(url) as store:
        before = set(store.database.read(lambda c: c.execute(best).all()))
        begin = time.perf_counter()
        gone = store.remove_superseded()
        wall_s = time.perf_counter() - begin
        assert set(store.database.read(lambda c: c.execute(best).all())) == before
        left = store.stats()
        assert left.answers == left.rows["problems"] == len(before), left
    print(f"gc: {len(gone)} plans in {wall_s:.1f} s, the best of {len(before)} problems stay")
    assert migrate.check(url).ok


if __name__ == "__main__":
    run(main)
