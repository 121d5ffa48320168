"""Only windows that are not there yet travel, each from one producer."""

import pytest
import torch

from arachne_opt.errors import RunError
from arachne_opt.executor.handoff import HandOff, Route

ROUTE = Route(
    cascade=0,
    producers=(0, 1),
    consumers=(1, 2, 3, 4),
    counts=(12, 11, 11, 11),
    clips=2,
    features=16,
)


def test_missing_windows_come_from_producers_in_turn():
    assert ROUTE.senders() == {2: 0, 3: 1, 4: 0}
    assert [ROUTE.size(rank) for rank in ROUTE.senders()] == [(2, 11, 16)] * 3


def test_where_the_ranks_coincide_nothing_is_sent():
    route = Route(cascade=3, producers=(0,), consumers=(0,), counts=(5,), clips=1, features=4)
    handoff, tokens = HandOff(0, torch.device("cpu")), torch.rand(1, 5, 4)
    handoff.exchange(route, tokens)
    assert torch.equal(handoff.take(3), tokens)
    assert handoff.sent_bytes == {}


def test_latents_that_are_not_the_plans_are_refused_before_anything_is_sent():
    handoff = HandOff(0, torch.device("cpu"))
    with pytest.raises(RunError, match=r"\(2, 44, 16\), the plan says \(2, 45, 16\)"):
        handoff.exchange(ROUTE, torch.zeros(2, 44, 16))
