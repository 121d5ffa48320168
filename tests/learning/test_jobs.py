"""Whoever works, the answers are the same, and a worker that dies loses nothing."""

import os
import signal
from functools import partial
from pathlib import Path

import pytest

from arachne_opt.errors import InputError
from arachne_opt.learning.examples import Recipe
from arachne_opt.learning.generation import generate
from arachne_opt.learning.jobs import Workers, run_many

RECIPE = Recipe(policy="templates", world="learned", units=1.0, features=1, searched=0)


def square(number):
    return number * number


def square_or_die(folder, number):
    """Kills its process the first time that it is asked for 3."""
    mark = Path(folder) / "died"
    if number == 3 and not mark.exists():
        mark.touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return square(number)


def test_one_process_works_in_order_and_stops_when_asked():
    seen = []
    for position, answer in run_many(
        square, range(9), Workers(), should_stop=lambda: len(seen) > 3
    ):
        seen.append((position, answer))
    assert seen == [(0, 0), (1, 1), (2, 4), (3, 9)]


def test_nobody_or_two_masters_cannot_work():
    with pytest.raises(InputError, match="at least one process"):
        Workers(jobs=0)
    with pytest.raises(InputError, match="exclude each other"):
        Workers(jobs=2, dask="tcp://here:1")


@pytest.mark.slow
def test_a_process_that_is_killed_loses_nothing(tmp_path):
    work = partial(square_or_die, str(tmp_path))
    found = dict(run_many(work, range(6), Workers(jobs=2)))
    assert (tmp_path / "died").exists()
    assert found == {i: i * i for i in range(6)}


def test_a_scheduler_that_is_not_there_is_named(monkeypatch):
    pytest.importorskip("distributed")
    monkeypatch.setattr("arachne_opt.learning.jobs._CONNECT_S", 0.2)
    with pytest.raises(InputError, match=r"tcp://127\.0\.0\.1:1: no Dask scheduler"):
        list(run_many(square, range(3), Workers(dask="tcp://127.0.0.1:1")))


@pytest.fixture
def cluster():
    """A Dask cluster of two worker processes on this machine."""
    distributed = pytest.importorskip("distributed")
    with distributed.LocalCluster(
        n_workers=2, threads_per_worker=1, processes=True, dashboard_address=None
    ) as found:
        yield found


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # of Dask's own, when a worker dies
def test_dask_gives_what_one_process_gives_though_a_worker_is_killed(cluster, tmp_path):
    address = Workers(dask=cluster.scheduler_address)
    alone = generate(tmp_path / "one.jsonl", RECIPE, range(3), Workers())
    many = generate(tmp_path / "two.jsonl", RECIPE, range(3), address)
    assert many == alone
    assert {e.number for e in alone if e.priced} == {0, 1, 2}
    work = partial(square_or_die, str(tmp_path))
    assert dict(run_many(work, range(8), address)) == {i: i * i for i in range(8)}
    assert (tmp_path / "died").exists()
