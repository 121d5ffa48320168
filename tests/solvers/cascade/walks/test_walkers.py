"""Walks in C and in Python: equal number by number, legal, and never lost."""

import itertools
import logging
import random
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from arachne_opt.cascade.check import check_plan
from arachne_opt.cascade.problem import CascadeProblem
from arachne_opt.cascade.usable import usable_part
from arachne_opt.cluster import Link
from arachne_opt.solvers.base import Limits
from arachne_opt.solvers.cascade.digest import Digest
from arachne_opt.solvers.cascade.schedule import from_plan, to_plan
from arachne_opt.solvers.cascade.walks import native
from arachne_opt.solvers.cascade.walks.choice import ModeTable, ranked
from arachne_opt.solvers.cascade.walks.cooling import Heat, cooled
from arachne_opt.solvers.cascade.walks.plain import PlainWalker
from arachne_opt.solvers.cascade.walks.quick_list import ANY_US
from arachne_opt.solvers.cascade.walks.walker import Walks
from arachne_opt.solvers.portfolio import solve_cascade
from tests.strategies import even_cluster, random_problem, seeded_plan, two_stage

ROOT = Path(__file__).parents[4]
C = ROOT / "solvers" / "cascade" / "walks" / "c"

needs_library = pytest.mark.skipif(
    native.library() is None, reason="no C compiler was there at the installation"
)


def digest_of(seed):
    problem = random_problem(seed)
    if problem.pinned:
        pytest.skip("walks are not asked where there are pins")
    return Digest(usable_part(problem).problem if problem.forbidden_devices else problem)


def drawn(digest, table, rng):
    modes = [rng.choice(task.modes) for task in digest.tasks]
    choice = table.choice(modes, [rng.randrange(9) for _ in modes])
    for i in range(len(modes)):
        choice.sites[i] = rng.randrange(-1, len(digest.nodes))
        if rng.random() < 0.3:
            choice.groups[i] = table.group(some_devices(digest, modes[i], rng))
    return choice


def some_devices(digest, mode, rng):
    """A group for a mode, or now and then one that is none."""
    able = [d for d, kind in enumerate(digest.kind_of) if kind == mode.kind or rng.random() < 0.1]
    return rng.sample(able, min(len(able), mode.degree + (rng.random() < 0.1)))


def some_tasks(digest, rng):
    chosen = sorted(rng.sample(range(len(digest.cascades)), rng.randint(1, len(digest.cascades))))
    return [i for c in chosen for i in digest.cascades[c]]


def state(place):
    return place.choice, list(place.order), place.key


@needs_library
@pytest.mark.parametrize("seed", range(120))
def test_both_walk_the_same_way(seed):
    """Any problem, some of its nodes, some of its cascades, equal odds and others."""
    digest, rng = digest_of(seed), random.Random(seed)
    table = ModeTable(digest)
    odds = None
    if seed % 2:
        odds = [
            list(itertools.accumulate(rng.random() + 0.01 for _ in range(count)))
            for count in table.drawn
        ]
    nodes = range(len(digest.nodes))
    if seed % 3 == 0 and len(nodes) > 1:
        nodes = sorted(rng.sample(nodes, len(nodes) - 1))
    plain = PlainWalker(digest, table, seed, odds, nodes)
    quick = native.NativeWalker(native.native_problem(digest, table), seed, odds, nodes)
    tasks = some_tasks(digest, rng) if seed % 5 == 0 else None
    for _ in range(3):
        choice = drawn(digest, table, rng)
        began = plain.begin(choice, ANY_US, tasks)
        assert quick.begin(choice, ANY_US, tasks) == began
        if began is None:
            continue
        for _ in range(4):
            plain.walk(25, 0.01)
            quick.walk(25, 0.01)
            assert state(quick.now) == state(plain.now)
            assert state(quick.best) == state(plain.best)
            assert quick.task() == plain.task()


@needs_library
@pytest.mark.parametrize("seed", range(3))
def test_long_schedules_begin_anywhere_in_the_same_way(seed):
    """Slots are kept before every eighth task; tasks that are alike are not placed again."""
    bandwidth = (10**9, 10**13, 10**18)[seed]
    digest, rng = Digest(many_tasks(bandwidth)), random.Random(seed)
    table = ModeTable(digest)
    plain = PlainWalker(digest, table, seed)
    quick = native.NativeWalker(native.native_problem(digest, table), seed, None, range(4))
    first = drawn(digest, table, rng)
    for tasks in (None, [i for row in digest.cascades[:13] for i in row], None):
        assert quick.begin(first, ANY_US, tasks) == plain.begin(first, ANY_US, tasks)
        for _ in range(6):
            plain.walk(40, 0.004)
            quick.walk(40, 0.004)
            assert state(quick.now) == state(plain.now)
            # What ends too late leaves traces in the schedule that is tried only.
            late = drawn(digest, table, rng)
            assert quick.begin(late, 1, None) is plain.begin(late, 1, None) is None
        assert state(quick.best) == state(plain.best)


def many_tasks(bandwidth):
    rows = tuple(
        two_stage(
            f"c{i}", {1: 90, 2: 50}, {k: 990 // k + 7 * i for k in (1, 3, 6, 12)}, input_bytes=10**6
        )
        for i in range(30)
    )
    cluster = even_cluster(4, 6)
    link = Link(bandwidth_bytes_per_s=bandwidth, latency_us=3)
    nodes = tuple(replace(node, intra_link=link) for node in cluster.nodes)
    cluster = replace(cluster, nodes=nodes, inter_link=link)
    return CascadeProblem(name="many", cluster=cluster, cascades=rows)


@pytest.fixture(params=["C", "Python"])
def library(request, monkeypatch):
    """Both kinds of walkers, where there are two."""
    if request.param == "Python":
        monkeypatch.setattr(native, "library", lambda: None)
    elif native.library() is None:
        pytest.skip("no C compiler was there at the installation")
    return request.param


@pytest.mark.usefixtures("library")
@pytest.mark.parametrize("seed", range(12))
def test_walks_end_in_legal_schedules_that_are_no_longer(seed):
    digest = digest_of(seed)
    walks = Walks(digest)
    walker, start = walks.walker(seed), drawn(digest, walks.table, random.Random(seed))
    first_us = walker.begin(start, ANY_US)
    shares = iter([*(k / 40 for k in range(40)), 1.0])
    places = cooled(walker, start, Heat(0.02, 0.001), lambda _placed: next(shares))
    best_us = [place.makespan_us for place in places]
    assert best_us == sorted(best_us, reverse=True)
    assert best_us[-1] <= first_us
    schedule = walks.schedule(walker.best)
    assert schedule.makespan_us <= best_us[-1]
    assert check_plan(digest.problem, to_plan(digest, schedule)) == ()


@pytest.mark.usefixtures("library")
@pytest.mark.parametrize("seed", range(8))
def test_a_choice_that_ends_too_late_changes_nothing(seed):
    digest, rng = digest_of(seed), random.Random(seed)
    walks = Walks(digest)
    walker = walks.walker(seed)
    walker.begin(drawn(digest, walks.table, rng), ANY_US)
    before = state(walker.now)
    assert walker.begin(drawn(digest, walks.table, rng), 1) is None
    assert state(walker.now) == before
    # The walk goes on as if nobody had asked.
    walker.walk(30, 0.01)
    other = walks.walker(seed)
    other.begin(before[0], ANY_US)
    other.walk(30, 0.01)
    assert state(other.now) == state(walker.now)


@pytest.mark.usefixtures("library")
def test_a_choice_is_not_changed_by_the_walk_that_began_with_it():
    digest = digest_of(1)
    walks = Walks(digest)
    choice = drawn(digest, walks.table, random.Random(1))
    kept = choice.copy()
    walker = walks.walker(0)
    walker.begin(choice, ANY_US)
    walker.walk(200, 0.05)
    assert choice == kept


@pytest.mark.usefixtures("library")
def test_the_choice_of_a_schedule_has_its_degrees_and_nodes():
    digest = digest_of(2)
    walks = Walks(digest)
    walker = walks.walker(0)
    walker.begin(drawn(digest, walks.table, random.Random(2)), ANY_US)
    schedule = walks.schedule(walker.now)
    choice = walks.table.of_schedule(schedule)
    modes = walks.table.modes(choice.picks)
    for i, devices in schedule.runs:
        assert modes[i].degree == len(devices)
        assert choice.sites[i] in {-1, digest.node_of[devices[0]]}
    assert walker.begin(choice, ANY_US) <= schedule.makespan_us
    assert walks.runs(walker.now) == [(i, tuple(sorted(d))) for i, d in schedule.runs]


@pytest.mark.usefixtures("library")
@pytest.mark.parametrize("seed", range(12))
def test_a_schedule_is_begun_with_as_it_is_whatever_its_groups(seed):
    digest = digest_of(seed)
    schedule = from_plan(digest, seeded_plan(digest.problem, seed))
    walks = Walks(digest)
    walker = walks.walker(seed)
    assert walker.begin(walks.table.of_schedule(schedule), ANY_US) <= schedule.makespan_us
    devices = {i: tuple(sorted(group)) for i, group in schedule.runs}
    assert dict(walks.runs(walker.now)) == devices
    walker.walk(300, 0.001)
    assert walker.best.makespan_us <= schedule.makespan_us
    plan = to_plan(digest, walks.schedule(walker.best))
    assert check_plan(digest.problem, plan) == ()


def hard_problem():
    rows = tuple(
        two_stage(f"c{i}", {1: 900, 2: 500}, {2: 3100 + 190 * i, 4: 1700 + 97 * i, 8: 990 + 60 * i})
        for i in range(20)
    )
    return CascadeProblem(name="hard", cluster=even_cluster(8, 8), cascades=rows)


@pytest.mark.usefixtures("library")
def test_whole_searches_end_in_time_with_legal_plans():
    result = solve_cascade(hard_problem(), Limits(time_limit_s=1.0, workers=2))
    assert check_plan(hard_problem(), result.plan) == ()
    assert result.wall_s < 3


@needs_library
def test_nodes_and_times_that_masks_cannot_hold_are_left_to_python():
    wide = CascadeProblem(
        name="wide",
        cluster=even_cluster(1, 72),
        cascades=(two_stage("a", {1: 10}, {72: 100}),),
    )
    assert native.native_problem(Digest(wide), ModeTable(Digest(wide))) is None
    slow = replace(
        wide, cluster=even_cluster(1, 2), cascades=(two_stage("a", {1: 10}, {2: 1 << 51}),)
    )
    assert native.native_problem(Digest(slow), ModeTable(Digest(slow))) is None
    assert check_plan(wide, solve_cascade(wide, Limits(time_limit_s=0.2)).plan) == ()
    assert check_plan(slow, solve_cascade(slow, Limits(time_limit_s=0.2)).plan) == ()


def test_a_broken_or_older_library_is_named_and_not_used(tmp_path, caplog):
    broken = tmp_path / "_walks.so"
    broken.write_bytes(b"no library")
    with caplog.at_level(logging.WARNING):
        assert native._loaded(broken) is None
    assert str(broken) in caplog.text


@pytest.mark.skipif(shutil.which("cc") is None, reason="no C compiler")
def test_the_source_compiles_without_warnings_and_an_older_one_is_refused(tmp_path, caplog):
    older = tmp_path / "c"
    shutil.copytree(C, older)
    header = older / "walks.h"
    text = header.read_text(encoding="utf-8")
    header.write_text(text.replace("#define WALKS_VERSION", "#define WALKS_VERSION 0 //"))
    made = tmp_path / "older.so"
    options = ["-O1", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC"]
    subprocess.run(["cc", *options, "-o", made, *older.glob("*.c"), "-lm"], check=True)
    with caplog.at_level(logging.WARNING):
        assert native._loaded(made) is None
    assert "of another version (0" in caplog.text


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("cc") is None, reason="no C compiler")
@pytest.mark.skipif(sys.platform != "linux", reason="sanitizers are preloaded as on Linux")
def test_memory_is_kept_to_under_the_address_sanitizer(tmp_path):
    made = tmp_path / "walks.so"
    options = ["-g", "-O1", "-fsanitize=address,undefined", "-fno-sanitize-recover=undefined"]
    built = subprocess.run(
        ["cc", *options, "-shared", "-fPIC", "-o", made, *C.glob("*.c"), "-lm"],
        capture_output=True,
        text=True,
        check=False,
    )
    found = subprocess.run(
        ["cc", "-print-file-name=libasan.so"], capture_output=True, text=True, check=True
    )
    asan = found.stdout.strip()
    if built.returncode or not Path(asan).is_absolute():
        pytest.skip("this compiler has no sanitizers")
    program = f"""
import random, sys
sys.path[:0] = [{str(ROOT)!r}]
from pathlib import Path
from arachne_opt.cascade.usable import usable_part
from arachne_opt.solvers.cascade.digest import Digest
from arachne_opt.solvers.cascade.walks import native
from arachne_opt.solvers.cascade.walks.walker import Walks
from tests.solvers.cascade.walks.test_walkers import drawn, many_tasks
from tests.strategies import random_problem
found = native._loaded(Path({str(made)!r}))
assert found is not None
native.library = lambda: found
problems = [random_problem(seed) for seed in range(40)]
problems += [many_tasks(10**9), many_tasks(10**18)]
for seed, problem in enumerate(problems):
    if problem.pinned:
        continue
    if problem.forbidden_devices:
        problem = usable_part(problem).problem
    digest, rng = Digest(problem), random.Random(seed)
    walks = Walks(digest)
    assert walks.beside
    walker = walks.walker(seed)
    walker.begin(drawn(digest, walks.table, rng), 1 << 62)
    walker.walk(300, 0.02)
    walker.begin(drawn(digest, walks.table, rng), 1)
    walker.begin(walks.table.of_schedule(walks.schedule(walker.best)), 1 << 62)
    walker.walk(100, 0.02)
    del walker, walks
print("done")
"""
    run = subprocess.run(
        [sys.executable, "-c", program],
        env={"LD_PRELOAD": asan, "ASAN_OPTIONS": "detect_leaks=0", "PATH": "/usr/bin:/bin"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 0, run.stderr[-2000:]
    assert run.stdout.strip() == "done"


def test_walkers_of_several_threads_do_not_disturb_each_other():
    from concurrent.futures import ThreadPoolExecutor

    digest = Digest(hard_problem())
    walks = Walks(digest)
    start = drawn(digest, walks.table, random.Random(0))

    def walked(seed):
        walker = walks.walker(seed)
        walker.begin(start, ANY_US)
        walker.walk(400, 0.01)
        return state(walker.best)

    alone = [walked(seed) for seed in range(4)]
    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(walked, range(4))) == alone


def test_priorities_beyond_64_bits_keep_their_order():
    assert list(ranked([5, -3])) == [5, -3]
    assert list(ranked([10**20, 3, -(10**30), 3])) == [2, 1, 0, 1]
