"""Bucket tables and the rule that assigns clips."""

import json
from pathlib import Path

import pytest

from arachne_opt.buckets import (
    Bucket,
    BucketTable,
    buckets_from_dict,
    buckets_to_dict,
    label_shape,
    read_buckets,
)
from arachne_opt.errors import InputError
from arachne_opt.workload import Shape
from arachne_opt.workload_generator import bucket_table

EXAMPLES = Path(__file__).parent.parent / "examples"


def shape(frames: int, height: int, width: int) -> Shape:
    return Shape(frames=frames, height=height, width=width)


def table(*rows: tuple[int, int, int, int]) -> BucketTable:
    buckets = [Bucket(shape=shape(f, h, w), batch=b) for f, h, w, b in rows]
    return BucketTable(name="t", buckets=tuple(buckets))


TABLE = table(
    (1, 512, 512, 16),
    (17, 360, 640, 8),
    (65, 360, 640, 4),
    (17, 720, 1280, 2),
    (65, 720, 1280, 1),
    (17, 1280, 720, 2),
)


@pytest.mark.parametrize(
    ("clip", "expected"),
    [
        (shape(65, 720, 1280), shape(65, 720, 1280)),
        (shape(300, 2160, 3840), shape(65, 720, 1280)),
        (shape(64, 720, 1280), shape(17, 720, 1280)),
        (shape(20, 719, 1280), shape(17, 360, 640)),
        (shape(20, 1920, 1080), shape(17, 1280, 720)),
        (shape(70, 480, 640), shape(65, 360, 640)),
        (shape(20, 704, 1312), shape(17, 720, 1280)),
        (shape(1, 2000, 1000), shape(1, 512, 512)),
    ],
)
def test_a_clip_goes_to_the_nearest_bucket_below_it(clip: Shape, expected: Shape) -> None:
    found = TABLE.assign(clip)
    assert isinstance(found, Bucket)
    assert found.shape == expected


@pytest.mark.parametrize(
    ("clip", "reason"),
    [
        (shape(16, 720, 1280), "16 frames, the shortest bucket has 17"),
        (shape(17, 100, 100), "100 x 100 is smaller than 360 x 640"),
        (shape(1, 500, 500), "500 x 500 is smaller than 512 x 512"),
    ],
)
def test_a_clip_that_fits_nowhere_gets_a_reason(clip: Shape, reason: str) -> None:
    assert TABLE.assign(clip) == reason


def test_images_and_videos_do_not_mix() -> None:
    assert table((17, 64, 64, 1)).assign(shape(1, 640, 640)) == (
        "the table has no bucket for images"
    )
    assert table((1, 64, 64, 1)).assign(shape(99, 640, 640)) == (
        "the table has no bucket for videos"
    )


def test_no_clip_is_ever_enlarged() -> None:
    for frames in (1, 5, 17, 40, 129):
        for height, width in ((96, 64), (360, 640), (641, 363), (800, 800), (1080, 1920)):
            clip = shape(frames, height, width)
            found = bucket_table("mixed").assign(clip)
            if isinstance(found, Bucket):
                assert found.shape.frames <= frames
                assert found.shape.height * found.shape.width <= height * width


def test_tables_come_back_from_json() -> None:
    again = buckets_from_dict(json.loads(json.dumps(buckets_to_dict(TABLE))), "x")
    assert again == TABLE
    assert read_buckets(EXAMPLES / "buckets-tiny.json") == bucket_table("tiny")
    assert read_buckets(EXAMPLES / "buckets-mixed.json") == bucket_table("mixed")


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({"frames": 0}, "bucket 1: frames: must be at least 1"),
        ({"batch": 0}, "bucket 1: batch: must be at least 1"),
        ({"height": "64"}, "bucket 1: height: expected a whole number"),
        ({"batch_size": 3}, "did you mean 'batch'?"),
    ],
)
def test_a_bad_table_names_the_bucket(change: dict[str, object], expected: str) -> None:
    value = buckets_to_dict(table((17, 64, 64, 1)))
    value["buckets"][0] |= change
    with pytest.raises(InputError) as caught:
        buckets_from_dict(value, "b.json")
    assert expected in str(caught.value)
    assert "b.json" in str(caught.value)


def test_empty_double_and_unreadable_tables_are_refused(tmp_path: Path) -> None:
    head = {"format": "arachne.buckets/1", "name": "x"}
    with pytest.raises(InputError, match="needs a bucket"):
        buckets_from_dict({**head, "buckets": []}, "b.json")
    row = {"frames": 1, "height": 2, "width": 3, "batch": 4}
    with pytest.raises(InputError, match="two buckets of shape 1x2x3"):
        buckets_from_dict({**head, "buckets": [row, row]}, "b.json")
    (tmp_path / "b.json").write_text("{", encoding="utf-8")
    with pytest.raises(InputError, match="cannot read the bucket table"):
        read_buckets(tmp_path / "b.json")


@pytest.mark.parametrize(
    ("label", "size"), [("960px", (720, 1280)), ("1440px", (1072, 1936)), ("480px", (352, 656))]
)
def test_labels_give_the_sizes_of_the_public_logs(label: str, size: tuple[int, int]) -> None:
    assert label_shape(label, 9) == shape(9, *size)


@pytest.mark.parametrize("label", ["960", "px", "-5px", "abcpx", "4px"])
def test_a_bad_label_is_refused(label: str) -> None:
    with pytest.raises(InputError, match="cannot read the bucket label"):
        label_shape(label, 9)
