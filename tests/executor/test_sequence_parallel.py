"""Attention over a group equals attention on one process, forward and backward."""

from contextlib import suppress

import pytest
import torch
from torch.nn.functional import scaled_dot_product_attention

from arachne_opt.executor.sequence_parallel import Window, active, active_window, split_tokens
from tests.executor import rank_tasks
from tests.executor.ranks import run_ranks


@pytest.mark.parametrize(
    ("counts", "ranks", "heads"),
    [((3, 3, 3, 2), (0, 1, 2, 3), 4), ((5, 4, 4), (0, 2, 3), 6), ((1, 6), (1, 3), 2)],
)
def test_uneven_windows_give_the_attention_and_gradients_of_one_process(counts, ranks, heads):
    answers = run_ranks(rank_tasks.attend, 4, counts, ranks, heads)
    q, k, v, out = rank_tasks.attention_inputs(sum(counts), heads)
    whole = [t.requires_grad_() for t in (q, k, v)]
    result = scaled_dot_product_attention(*(t.transpose(1, 2) for t in whole)).transpose(1, 2)
    (result * out).sum().backward()
    wanted = [result.detach(), *(t.grad for t in whole)]
    for place, tensor in enumerate(wanted):
        parts = [torch.from_numpy(answers[rank][place]) for rank in ranks]
        torch.testing.assert_close(torch.cat(parts, dim=1), tensor, rtol=1e-5, atol=1e-6)


def test_tokens_that_are_not_the_plans_are_refused_before_anything_is_sent():
    for complaint in run_ranks(rank_tasks.attend_with_wrong_window, 2):
        assert "4 tokens" in complaint
        assert "the plan says" in complaint


def test_groups_are_made_once_and_dropped_beyond_the_bound():
    # The third preparation drops (1, 2), the fourth makes it again.
    assert run_ranks(rank_tasks.prepare_groups, 3) == [[2, 2, 3, 4]] * 3


def test_a_group_is_made_again_only_where_a_plan_needs_a_longer_time_out():
    assert run_ranks(rank_tasks.prepare_longer, 3) == [[1, 1, 2, 2]] * 3


@pytest.mark.parametrize(("tokens", "degree"), [(45, 2), (45, 4), (6, 4), (8, 1), (3, 3)])
def test_windows_cover_all_tokens_in_order_and_differ_by_one_at_most(tokens, degree):
    counts = split_tokens(tokens, degree)
    windows = [Window(counts=counts, index=i) for i in range(degree)]
    covered = [i for window in windows for i in range(tokens)[window.own]]
    assert covered == list(range(tokens))
    assert max(counts) - min(counts) <= 1


def test_a_window_is_active_inside_its_block_only():
    window, seen = Window(counts=(3,)), []
    with suppress(ValueError), active(window):
        seen.append(active_window())
        raise ValueError("stop")
    assert seen == [window]
    assert active_window() is None
