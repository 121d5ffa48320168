"""Beside a training: plans arrive, drift makes new costs, a lost database stops nothing."""

import time
from dataclasses import replace

import pytest

from arachne_opt.cluster_file import read_cluster
from arachne_opt.costs.analytic import analytic_for_cluster
from arachne_opt.db.store import PlanStore
from arachne_opt.executor.plan_mail import PlanMail
from arachne_opt.models import model_spec
from arachne_opt.planning.companion import Companion, Outlook
from arachne_opt.solvers.base import Limits
from tests.executor.jobs import ODD, SMALL
from tests.executor.test_drift import step, task
from tests.executor.trainings import EPOCH, epoch_job

STEPS = EPOCH * 3


@pytest.fixture
def outlook():
    cluster = read_cluster("CPU:2")
    costs = analytic_for_cluster(model_spec("toy"), cluster)
    return Outlook(steps=STEPS, first_step=4, cluster=cluster, costs=costs)


@pytest.fixture
def store(tmp_path):
    with PlanStore.open(tmp_path / "plans.db") as store:
        yield store


def companion(outlook, store, folder, told, **fields):
    options = {"replan_above": None, "ahead": True, "database": None, **fields}
    return Companion(
        outlook,
        Limits(time_limit_s=0.3),
        store=store,
        plan_folder=folder,
        tell=told.append,
        **options,
    )


def late(number, ratio):
    """A step whose tasks take ``ratio`` times their plan."""
    tasks = (task("a", ratio, shape=SMALL), task("b", ratio, shape=ODD))
    return replace(step(number, *tasks), name=f"it{number % 4}")


def mail(folder):
    job = epoch_job(2)
    return PlanMail(replace(job, plan_folder=str(folder))), job.iterations


def test_the_plan_of_the_step_after_the_next_is_delivered_once(tmp_path, outlook, store):
    told = []
    with companion(outlook, store, tmp_path, told) as beside:
        beside.on_step(late(4, 1.0))
        inbox, iterations = mail(tmp_path)
        found = inbox.newer(iterations[2])
        assert found.batches == EPOCH[2]
        assert inbox.newer(iterations[1]) is None
        beside.on_step(late(15, 1.0))  # nothing is to come after it
    assert told == []


def test_drift_brings_a_new_version_of_the_costs_and_plans_made_with_it(tmp_path, outlook, store):
    told = []
    with companion(outlook, store, tmp_path, told, replan_above=0.5, ahead=False) as beside:
        for number in range(4, 8):
            assert beside.costs is outlook.costs
            assert not list(tmp_path.glob("*.json"))
            beside.on_step(late(number, 3.0))
        costs = beside.costs
        assert costs.base is outlook.costs
        assert told == [
            f"after step 7 tasks were off by 200 %: planning anew with costs {costs.version}"
        ]
        assert store.cost_model(costs.version)["base"] == outlook.costs.version
        inbox, iterations = mail(tmp_path)
        found = inbox.newer(iterations[1])
        assert found.problem.cost_version == costs.version
        # The new window begins with the new plans: the same error again needs new steps.
        beside.on_step(late(8, 3.0))
        assert len(told) == 1


def test_a_database_that_is_lost_is_told_once_and_plans_still_arrive(tmp_path, outlook):
    told = []
    database = tmp_path / "lost.db"
    folder = tmp_path / "plans"
    folder.mkdir()
    with (
        PlanStore.open(database) as store,
        companion(outlook, store, folder, told, replan_above=0.5) as beside,
    ):
        store.close()
        database.write_bytes(b"no database any more" * 500)
        for number in range(4, 10):
            beside.on_step(late(number, 3.0))
        assert beside.costs is not outlook.costs
    lost = [text for text in told if "the database cannot be used" in text]
    assert len(lost) == 1
    assert "the training goes on" in lost[0]
    inbox, iterations = mail(folder)
    assert [inbox.newer(iteration) is not None for iteration in iterations] == [True] * 4


def test_plans_get_better_while_the_training_runs(tmp_path, outlook, store):
    told = []
    database = str(tmp_path / "plans.db")
    with companion(outlook, store, tmp_path, told, database=database) as beside:
        inbox, iterations = mail(tmp_path)
        beside.on_step(late(4, 1.0))
        assert inbox.newer(iterations[2]).plan_id == ""
        deadline = time.monotonic() + 20
        plan_id, newer = "", None
        while not plan_id and time.monotonic() < deadline:
            time.sleep(0.2)
            beside.on_step(late(8, 1.0))
            newer = inbox.newer(iterations[2])
            plan_id = newer.plan_id if newer else ""
        assert store.get_plan(plan_id).fingerprint == newer.problem.fingerprint()
    assert told == []


def test_a_plan_folder_that_is_gone_is_told(tmp_path, outlook, store):
    told = []
    with companion(outlook, store, tmp_path / "missing", told) as beside:
        beside.on_step(late(4, 1.0))
        beside.on_step(late(4, 1.0))
    assert len(told) == 1
    assert "the training goes on with those it has" in told[0]
