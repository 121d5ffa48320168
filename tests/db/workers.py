"""What other processes do in tests: `python -m tests.db.workers TASK URL …`."""

from __future__ import annotations

import itertools
import os
import random
import signal
import subprocess
import sys
import time
import traceback
from importlib import import_module
from pathlib import Path
from typing import NoReturn

from sqlalchemy import text

from arachne_opt.db import lease_rows
from arachne_opt.db.locks import single_flight
from arachne_opt.db.store import PlanStore
from arachne_opt.errors import StoreError
from tests.db.builders import fingerprint, plan_record

ROOT = Path(__file__).resolve().parents[2]


def start(*arguments: object) -> subprocess.Popen[str]:
    """A process with the task that the arguments name; its output is piped."""
    command = [sys.executable, "-W", "error", "-m", "tests.db.workers", *map(str, arguments)]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    return subprocess.Popen(command, cwd=ROOT, text=True, **pipes)


def finish(*processes: subprocess.Popen[str], timeout_s: float = 60) -> list[str]:
    """Their outputs, once all have ended well."""
    results = [process.communicate(timeout=timeout_s) for process in processes]
    for process, (_, complaints) in zip(processes, results, strict=True):
        assert process.returncode == 0, complaints
    return [output for output, _ in results]


def say(line: str) -> None:
    print(line, flush=True)  # noqa: T201  # the parent reads it


def count_up(url: str, times: str) -> None:
    """Reads a number and writes the next one, many times."""
    with PlanStore.open(url) as store:
        for _ in range(int(times)):
            store.database.write(_count_one)


def _count_one(connection) -> None:
    value = connection.execute(text("SELECT holdout_error FROM cost_models")).scalar_one()
    connection.execute(text("UPDATE cost_models SET holdout_error = :v"), {"v": value + 1})


def mix(url: str, times: str, seed: str) -> None:
    """Stores, finds and lists plans of a few problems, in a random order; prints the ids."""
    dice = random.Random(int(seed))
    with PlanStore.open(url) as store:
        for _ in range(int(times)):
            problem = f"p{dice.randrange(5)}"
            choice = dice.random()
            if choice < 0.4:
                say(store.add_plan(plan_record(problem)).id)
            elif choice < 0.8:
                store.find_plan(fingerprint(problem))
            else:
                store.list_plans(limit=10)


def upgrade(url: str) -> None:
    """Brings a database to head."""
    from arachne_opt.db import migrate

    say(migrate.upgrade(url))


def open_and_store(url: str) -> None:
    """Opens a database, which may be missing, and stores a plan."""
    with PlanStore.open(url) as store:
        say(store.add_plan(plan_record()).id)


def _set_lease(lease_s: float) -> None:
    lease_rows.LEASE_S, lease_rows.BEAT_S = lease_s, lease_s / 4


def solve(url: str, key: str, seconds: str, lease_s: str = "10", again: str = "") -> None:
    """Does what a solving command does: look up, or solve alone; prints which.

    With ``again`` it solves what has a plan as well.
    """
    _set_lease(float(lease_s))
    with PlanStore.open(url) as store:
        say("ready")
        once = itertools.count()
        wait = lambda _: None if next(once) else say("waits")  # noqa: E731  # says it once
        with single_flight(store, key, 60, on_wait=wait) as alone:
            assert alone
            say("alone")
            if again or store.find_plan(fingerprint(key)) is None:
                time.sleep(float(seconds))
                store.add_plan(plan_record(key))
                say("solved")
            else:
                say("found")


def plan_cascade(url: str, seconds: str, lease_s: str = "10") -> None:
    """Plans a hard problem as a solving command does; prints how, with id and objective."""
    from arachne_opt.cascade.problem import CascadeProblem
    from arachne_opt.planning.service import PlanService
    from arachne_opt.solvers.base import Limits
    from tests.strategies import even_cluster, two_stage

    _set_lease(float(lease_s))
    # Too many sizes that fit nowhere well: no proof within minutes.
    cascades = tuple(
        two_stage(f"c{s}", {1: s * 7 + 11}, {1: s * 113 + 5, 2: s * 61 + 9, 4: s * 37 + 3})
        for s in range(1, 17)
    )
    problem = CascadeProblem(name="hard", cluster=even_cluster(2, 5), cascades=cascades)

    once = itertools.count()
    with PlanStore.open(url) as store:
        say("ready")
        answer = PlanService(store).plan_cascade(
            problem,
            Limits(time_limit_s=float(seconds)),
            on_wait=lambda _: None if next(once) else say("waits"),
        )
        how = "found" if answer.cached else "solved"
        say(f"{how} {answer.record.id} {answer.record.objective_us}")


def plan_cascade_at_once(url: str, times: str, seconds: str) -> None:
    """Plans in many processes, which share this one's imports; prints what each says last.

    On a machine that is busy, too: nobody takes over from a process that only got no core.
    """
    for needed in ("planning.service", "solvers.portfolio", "solvers.cascade.cpsat.solver"):
        import_module(f"arachne_opt.{needed}")
    children = {}
    for _ in range(int(times)):
        reader, writer = os.pipe()
        child = os.fork()
        if child == 0:
            _plan_into(writer, url, seconds)
        os.close(writer)
        children[child] = reader
    for child, reader in children.items():
        with os.fdopen(reader) as lines:
            say(lines.read().split("\n")[-2])
        assert os.waitpid(child, 0)[1] == 0


def _plan_into(pipe: int, url: str, seconds: str) -> NoReturn:
    os.dup2(pipe, sys.stdout.fileno())
    try:
        plan_cascade(url, seconds, lease_s="60")
    except BaseException:
        traceback.print_exc()
        os._exit(1)
    os._exit(0)


def store_until_killed(url: str, times: str, seed: str) -> None:
    """Starts writers and kills each at a random moment; prints what they knew to be stored."""
    dice = random.Random(int(seed))
    for number in range(int(times)):
        reader, writer = os.pipe()
        child = os.fork()
        if child == 0:
            os.close(reader)
            _store_for_ever(url, writer, number)
        os.close(writer)
        with os.fdopen(reader) as lines:
            known = [lines.readline() for _ in range(2 + dice.randrange(3))]
            time.sleep(dice.uniform(0, 0.01))
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
            say("".join(known) + lines.read().rpartition("\n")[0])


def _store_for_ever(url: str, pipe: int, number: int) -> None:
    with PlanStore.open(url) as store:
        os.write(pipe, b"\n")
        for i in itertools.count():
            plan = store.add_plan(plan_record(f"p{number}.{i}", cascades=200))
            os.write(pipe, f"{plan.id}\n".encode())


def store_with_small_files(url: str, limit_bytes: str) -> None:
    """Stores a plan that is larger than a file may become; prints what it is told."""
    import resource

    with PlanStore.open(url) as store:
        limit = int(limit_bytes)
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
        try:
            store.add_plan(plan_record("large", cascades=20_000))
        except StoreError as error:
            say(str(error))


def look_without_rights(url: str) -> None:
    """Opens a database as a user who owns nothing; prints how it went."""
    import_module("arachne_opt.db.migrate")  # while the interpreter may still read its files
    if os.geteuid() == 0:
        os.setgid(65534)
        os.setuid(65534)
    for read_only in (False, True):
        try:
            with PlanStore.open(url, read_only=read_only) as store:
                say(f"{len(store.list_plans())} plans")
        except StoreError as error:
            say(str(error))


def use_after_fork(url: str) -> None:
    """Uses a store before a fork and in both processes after it."""
    with PlanStore.open(url) as store:
        store.add_plan(plan_record("before"))
        child = os.fork()
        if child == 0:
            for i in range(20):
                store.add_plan(plan_record(f"child {i}"))
            os._exit(0)
        for i in range(20):
            store.add_plan(plan_record(f"parent {i}"))
        assert os.waitpid(child, 0)[1] == 0
        say(f"{len(store.list_plans())} plans")


if __name__ == "__main__":
    globals()[sys.argv[1]](*sys.argv[2:])
