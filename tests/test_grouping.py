"""Grouping of clips into micro-batches and iterations."""

from collections import Counter
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from arachne_opt.buckets import Bucket, BucketTable
from arachne_opt.errors import InputError
from arachne_opt.grouping import group_clips
from arachne_opt.models import model_spec
from arachne_opt.workload import Clip, Shape, Workload
from arachne_opt.workload_generator import bucket_table, generate_clips

TINY = model_spec("tiny-wan")


def clips(*shapes: tuple[int, int, int]) -> list[Clip]:
    return [
        Clip(id=f"c{i}", shape=Shape(frames=f, height=h, width=w))
        for i, (f, h, w) in enumerate(shapes)
    ]


def ids(workload: Workload) -> list[str]:
    return [c.id for it in workload.iterations for b in it.micro_batches for c in b.clips]


@settings(max_examples=40, deadline=None)
@given(
    st.lists(
        st.tuples(
            st.integers(1, 40), st.sampled_from((8, 32, 64, 100)), st.sampled_from((16, 48, 96))
        ),
        min_size=1,
        max_size=60,
    ),
    st.integers(0, 5),
    st.sampled_from(("table", "tokens", "exact", "batch")),
)
def test_every_clip_is_either_trained_once_or_refused(rows, seed, rule) -> None:
    made = clips(*rows, (33, 64, 96))
    rules = {
        "table": {"buckets": bucket_table("tiny")},
        "tokens": {"max_tokens": 216},
        "exact": {},
        "batch": {"batch": 3},
    }
    done = group_clips(made, iteration_size=3, model=TINY, seed=seed, **rules[rule])
    refused = [r.clip_id for r in done.refused]
    assert Counter(ids(done.workload) + refused) == Counter(c.id for c in made)
    assert all(r.reason for r in done.refused)
    sizes = [len(it.micro_batches) for it in done.workload.iterations]
    assert set(sizes[:-1]) <= {3}


def test_equal_seeds_give_equal_workloads_and_others_do_not() -> None:
    made = generate_clips("tiny", count=60, seed=1)
    table = bucket_table("tiny")
    first, again, other = (
        group_clips(made, iteration_size=4, buckets=table, seed=seed) for seed in (7, 7, 8)
    )
    assert first == again
    assert ids(first.workload) != ids(other.workload)


def test_without_a_seed_the_order_of_the_manifest_stays() -> None:
    made = clips(*[(5, 32, 48)] * 7)
    done = group_clips(made, iteration_size=2, batch=2, seed=None)
    assert ids(done.workload) == [c.id for c in made]


def test_smaller_last_micro_batches_and_iterations_are_kept() -> None:
    done = group_clips(clips(*[(5, 32, 48)] * 7), iteration_size=3, batch=2, seed=None)
    sizes = [[b.size for b in it.micro_batches] for it in done.workload.iterations]
    assert sizes == [[2, 2, 2], [1]]


def test_clips_with_cached_latents_stay_among_themselves() -> None:
    made = clips(*[(5, 32, 48)] * 9)
    mixed = [replace(c, latents="z.safetensors") if i % 3 else c for i, c in enumerate(made)]
    done = group_clips(mixed, iteration_size=9, batch=4)
    batches = done.workload.iterations[0].micro_batches
    assert sorted((b.size, b.cached) for b in batches) == [(2, True), (3, False), (4, True)]
    assert all(len({bool(c.latents) for c in b.clips}) == 1 for b in batches)


def test_a_micro_batch_holds_what_its_bucket_says() -> None:
    made = generate_clips("tiny", count=200, seed=2)
    table = bucket_table("tiny")
    size_of = {b.shape: b.batch for b in table.buckets}
    done = group_clips(made, iteration_size=4, buckets=table)
    batches = [b for it in done.workload.iterations for b in it.micro_batches]
    assert all(b.size <= size_of[b.shape] for b in batches)
    smaller = Counter(b.shape for b in batches if b.size < size_of[b.shape])
    assert set(smaller.values()) <= {1}


def test_without_a_table_each_clip_keeps_its_shape() -> None:
    made = clips((6, 33, 47), (6, 33, 47), (9, 32, 48))
    done = group_clips(made, iteration_size=9)
    shapes = Counter(b.shape for b in done.workload.iterations[0].micro_batches)
    assert shapes == {made[0].shape: 2, made[2].shape: 1}
    assert (done.shortened, done.resized) == (0, 0)


def test_a_model_rounds_shapes_down_and_the_change_is_told() -> None:
    made = clips((6, 33, 48), (9, 32, 48), (8, 32, 48))
    done = group_clips(made, iteration_size=9, model=TINY)
    shapes = {str(b.shape) for b in done.workload.iterations[0].micro_batches}
    assert shapes == {"5x32x48", "9x32x48"}
    assert (done.shortened, done.resized) == (2, 1)


def test_a_bucket_that_the_model_cannot_take_is_rounded_not_lost() -> None:
    table = BucketTable(
        name="hd", buckets=(Bucket(shape=Shape(frames=17, height=1080, width=1920), batch=1),)
    )
    made = clips((17, 1080, 1920))
    done = group_clips(made, iteration_size=1, buckets=table, model=model_spec("wan2.1-14b"))
    assert str(done.workload.iterations[0].micro_batches[0].shape) == "17x1072x1920"


def test_clips_that_fit_nowhere_are_refused_with_a_reason() -> None:
    made = clips((3, 64, 96), (17, 64, 96), (17, 8, 8))
    done = group_clips(made, iteration_size=4, buckets=bucket_table("tiny"))
    reasons = {r.clip_id: r.reason for r in done.refused}
    assert reasons == {
        "c0": "3 frames, the shortest bucket has 5",
        "c2": "8 x 8 is smaller than 32 x 48",
    }


def test_a_token_budget_fills_micro_batches_and_refuses_what_exceeds_it() -> None:
    made = clips(*[(17, 32, 32)] * 5, (33, 64, 96))
    done = group_clips(made, iteration_size=9, max_tokens=45, model=TINY, seed=None)
    batches = done.workload.iterations[0].micro_batches
    assert TINY.tokens(made[0].shape) == 20
    assert [b.size for b in batches] == [2, 2, 1]
    assert "has 216 tokens, the budget of a micro-batch is 45" in done.refused[0].reason


def test_clips_below_one_token_are_refused_by_name() -> None:
    done = group_clips(clips((5, 64, 64), (5, 8, 8)), iteration_size=2, model=TINY)
    assert [r.clip_id for r in done.refused] == ["c1"]
    assert "smaller than one token" in done.refused[0].reason


def test_all_clips_refused_is_an_error_that_names_some() -> None:
    with pytest.raises(InputError, match="all 5 clips are refused: c"):
        group_clips(clips(*[(2, 8, 8)] * 5), iteration_size=2, buckets=bucket_table("tiny"))


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ({"iteration_size": 0}, "must be positive"),
        ({"batch": 0}, "must be positive"),
        ({"max_tokens": 5}, "needs a model"),
        ({"max_tokens": 0, "model": TINY}, "must be positive"),
        ({"max_tokens": 5, "buckets": bucket_table("tiny")}, "exclude each other"),
    ],
)
def test_contradicting_arguments_are_refused(arguments: dict, expected: str) -> None:
    with pytest.raises(InputError, match=expected):
        group_clips(clips((5, 64, 64)), **({"iteration_size": 2} | arguments))


def test_no_clips_and_equal_ids_are_refused() -> None:
    with pytest.raises(InputError, match="no clips"):
        group_clips([], iteration_size=1)
    one = clips((5, 64, 64))
    with pytest.raises(InputError, match="share the id"):
        group_clips(one * 2, iteration_size=1)
