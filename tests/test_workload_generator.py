"""Synthetic workloads."""

from collections import Counter
from pathlib import Path

import pytest

from arachne_opt.buckets import Bucket
from arachne_opt.errors import InputError
from arachne_opt.grouping import group_clips
from arachne_opt.importers.buckets import read_bucket_tables
from arachne_opt.manifest import read_manifest
from arachne_opt.models import model_spec
from arachne_opt.workload_generator import (
    PRESETS,
    bucket_table,
    generate_clips,
    generate_workload,
)

EXAMPLES = Path(__file__).parent.parent / "examples"


@pytest.mark.parametrize("preset", list(PRESETS))
def test_every_clip_fits_the_buckets_of_its_mixture_exactly(preset: str) -> None:
    table = bucket_table(preset)
    for clip in generate_clips(preset, count=300, seed=1):
        found = table.assign(clip.shape)
        assert isinstance(found, Bucket)
        assert found.shape == clip.shape


@pytest.mark.parametrize("preset", list(PRESETS))
def test_every_shape_is_legal_for_the_models(preset: str) -> None:
    for name in ("hunyuanvideo-13b", "wan2.1-14b", "tiny-wan", "toy"):
        spec = model_spec(name)
        assert all(spec.fit_shape(b.shape) == b.shape for b in bucket_table(preset).buckets)


def test_equal_seeds_give_equal_clips_and_fewer_are_a_head_of_more() -> None:
    many = generate_clips("mixed", count=50, seed=4)
    assert many[:20] == generate_clips("mixed", count=20, seed=4)
    assert many != generate_clips("mixed", count=50, seed=5)
    assert len({clip.id for clip in many}) == 50


def test_the_mixture_holds_every_kind_of_clip() -> None:
    made = generate_clips("mixed", count=2000, seed=0)
    kinds = Counter("image" if c.shape.frames == 1 else min(c.shape.height, 999) for c in made)
    assert kinds["image"] == pytest.approx(600, rel=0.15)
    assert kinds[720] > 300
    assert kinds[352] > 300
    assert len({c.shape.frames for c in made}) > 25
    assert len({c.text_tokens for c in made}) > 100
    assert max(c.text_tokens for c in made) <= 256


def test_a_workload_has_full_micro_batches_of_the_asked_number() -> None:
    made = generate_workload("mixed", iterations=3, cascades=17, seed=2)
    size_of = {b.shape: b.batch for b in bucket_table("mixed").buckets}
    assert [len(it.micro_batches) for it in made.iterations] == [17] * 3
    batches = [b for it in made.iterations for b in it.micro_batches]
    assert all(b.size == size_of[b.shape] for b in batches)
    clip_ids = [c.id for b in batches for c in b.clips]
    assert len(set(clip_ids)) == len(clip_ids)
    assert made == generate_workload("mixed", iterations=3, cascades=17, seed=2)


def test_shapes_appear_as_often_as_their_clips_fill_micro_batches() -> None:
    made = generate_workload("mixed", iterations=1, cascades=4000, seed=3)
    batches = made.iterations[0].micro_batches
    clips = generate_clips("mixed", count=8000, seed=3)
    share_of_clips = sum(c.shape.frames == 1 for c in clips) / len(clips)
    trained = sum(b.size for b in batches)
    images = sum(b.size for b in batches if b.shape.frames == 1)
    assert images / trained == pytest.approx(share_of_clips, rel=0.15)


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ({"preset": "mixd"}, "did you mean 'mixed'"),
        ({"iterations": 0}, "must be positive"),
        ({"cascades": 0}, "must be positive"),
    ],
)
def test_bad_requests_are_explained(arguments: dict, expected: str) -> None:
    with pytest.raises(InputError, match=expected):
        generate_workload(**({"preset": "tiny", "iterations": 1, "cascades": 1} | arguments))


def test_no_clips_cannot_be_asked_for() -> None:
    with pytest.raises(InputError, match="at least one clip"):
        generate_clips("tiny", count=0)


def test_the_example_manifests_are_what_the_generator_writes() -> None:
    assert read_manifest(EXAMPLES / "clips-tiny.csv") == generate_clips("tiny", count=40, seed=1)
    mixed = read_manifest(EXAMPLES / "clips-mixed.jsonl")
    assert mixed == generate_clips("mixed", count=40, seed=1)
    done = group_clips(mixed, iteration_size=4, buckets=bucket_table("mixed"))
    assert not done.refused


def test_the_bucket_facts_agree_with_the_public_tables(shared_data: Path) -> None:
    public = read_bucket_tables(shared_data / "cascades" / "buckets.json")
    pairs = {"720p": "bucket_config", "1080p": "bucket_config_for_hunyuan_1080p_sp4"}
    for preset, name in pairs.items():
        ours = {b.shape: b.batch for b in bucket_table(preset).buckets}
        for bucket in public[name].buckets:
            assert ours[bucket.shape] == bucket.batch
