"""Tables of actions: they end, whatever the plan, and broken ones are found out."""

import random
from dataclasses import replace

import pytest

from arachne_opt.errors import DisagreementError
from arachne_opt.executor.pipeline.prove import prove
from arachne_opt.executor.pipeline.schedule import Action, Kind, make_tables
from arachne_opt.pipeline.layout import Layout
from arachne_opt.pipeline.plan import Pipeline
from arachne_opt.pipeline.problem import Schedule
from tests.executor.pipeline.random_plans import plan_of, random_plan, stage


@pytest.mark.parametrize("schedule", [Schedule.ONE_F_ONE_B, Schedule.GPIPE])
def test_tables_of_random_plans_end(schedule):
    rng = random.Random(11)
    for _ in range(150):
        plan = random_plan(
            rng,
            rows=9,
            devices=rng.choice((4, 8, 24)),
            degrees=(1, 2, 4),
            expert_degrees=(1, 2),
            uneven=rng.random() < 0.5,
        )
        layout = Layout(plan)
        tables = make_tables(layout, schedule)
        assert prove(layout, tables) == sum(len(t.actions) for t in tables)


def two_stages() -> Layout:
    stages = (stage(0, 2, 1), stage(2, 4, 1, 2))
    return Layout(plan_of(Pipeline(microbatch=2, microbatches=3, stages=stages)))


def test_one_forward_one_backward_after_the_warm_up():
    actions = make_tables(two_stages())[0].actions
    order = "".join("FB"[not a.forward] + str(a.microbatch) for a in actions if a.kind == "compute")
    assert order == "F0F1B0F2B1B2"


def test_a_wider_replica_receives_once_and_shares():
    tables = make_tables(two_stages())
    own = [a.kind for a in tables[2].actions if a.forward and a.microbatch == 0]
    assert own == [Kind.RECEIVE, Kind.SHARE, Kind.COMPUTE]
    assert [a.kind for a in tables[3].actions if a.forward and a.microbatch == 0] == own[1:]
    sent = [a for a in tables[0].actions if a.kind is Kind.SEND and a.microbatch == 0]
    assert [(a.peer, list(a.part)) for a in sent] == [(1, [0]), (2, [1])]


def swapped(actions: tuple[Action, ...], a: int, b: int) -> tuple[Action, ...]:
    changed = list(actions)
    changed[a], changed[b] = changed[b], changed[a]
    return tuple(changed)


def place(actions: tuple[Action, ...], kind: Kind, forward: bool, microbatch: int) -> int:
    return next(i for i, a in enumerate(actions) if a[:3] == (kind, forward, microbatch))


def test_members_of_one_group_in_another_order_are_found():
    layout = two_stages()
    tables = list(make_tables(layout))
    actions = tables[3].actions
    late = place(actions, Kind.COMPUTE, False, 0), place(actions, Kind.COMPUTE, True, 1)
    tables[3] = replace(tables[3], actions=swapped(actions, *late))
    with pytest.raises(DisagreementError, match="hang: rank 0 waits at: compute backward 0"):
        prove(layout, tables)


def test_messages_in_another_order_at_either_end_are_found():
    layout = two_stages()
    tables = list(make_tables(layout))
    actions = tables[1].actions
    ends = place(actions, Kind.RECEIVE, True, 0), place(actions, Kind.RECEIVE, True, 1)
    tables[1] = replace(tables[1], actions=swapped(actions, *ends))
    with pytest.raises(DisagreementError, match=r"rank \d would (send|receive)"):
        prove(layout, tables)


def test_a_message_that_is_left_out_is_found():
    layout = two_stages()
    tables = list(make_tables(layout))
    gone = place(tables[0].actions, Kind.SEND, True, 2)
    kept = tuple(a for i, a in enumerate(tables[0].actions) if i != gone)
    tables[0] = replace(tables[0], actions=kept)
    with pytest.raises(DisagreementError, match="hang"):
        prove(layout, tables)


def test_a_rank_that_gets_too_few_samples_is_found():
    layout = two_stages()
    tables = list(make_tables(layout))
    at = place(tables[1].actions, Kind.RECEIVE, True, 0)
    kept = tuple(a for i, a in enumerate(tables[1].actions) if i != at)
    tables[1] = replace(tables[1], actions=kept)
    with pytest.raises(DisagreementError, match="micro-batch 0 gets the samples"):
        prove(layout, tables)
