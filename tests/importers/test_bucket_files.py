"""Bucket configurations of trainers become bucket tables."""

import json
from pathlib import Path

import pytest

from arachne_opt.buckets import buckets_from_dict, buckets_to_dict
from arachne_opt.errors import InputError
from arachne_opt.importers.bucket_files import BUCKET_FORMATS, recognise_buckets
from arachne_opt.importers.bucket_sizes import ImportedBuckets
from arachne_opt.workload import Shape

OPEN_SORA = """dataset = dict(type="text")
bucket_config = {  # 2s/it
    "_delete_": True,
    "480p": {1: (0.5, 8), 33: ((0.5, 0.5), 2)},
    "256px": {
        1: (1.0, 45),
        129: (0.0, None),
    },
}
"""


def read(folder: Path, name: str, text: str, *, batch: int = 1) -> ImportedBuckets:
    suffix = {"open-sora": "py", "finetrainers": "json"}.get(name, "toml")
    file = folder / f"b.{suffix}"
    file.write_text(text, encoding="utf-8")
    found = BUCKET_FORMATS[name].read(file, batch)
    assert buckets_from_dict(buckets_to_dict(found.table), "there and back") == found.table
    return found


def shapes(found: ImportedBuckets) -> set[str]:
    return {str(bucket.shape) for bucket in found.table.buckets}


def test_open_sora_has_every_aspect_of_an_area(tmp_path: Path):
    found = read(tmp_path, "open-sora", OPEN_SORA)
    assert recognise_buckets(tmp_path / "b.py")[0] == "open-sora"
    assert {"1x480x848", "33x848x480", "1x256x256"} <= shapes(found)
    assert all(b.shape.height * b.shape.width <= 480 * 854 for b in found.table.buckets)
    assert {b.batch for b in found.table.buckets if b.shape.frames == 33} == {2}
    assert any("256px x 129" in note for note in found.notes)
    assert any("2 buckets" in note for note in found.notes)


def test_a_clip_of_exactly_the_label_finds_its_bucket(tmp_path: Path):
    table = read(tmp_path, "open-sora", OPEN_SORA).table
    bucket = table.assign(Shape(frames=40, height=480, width=854))
    assert not isinstance(bucket, str)
    assert str(bucket.shape) == "33x480x848"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("bucket_config = {", r"b.py:1: no valid Python"),
        ("x = 1\n", r"b.py:1: the file sets no bucket_config"),
        ('_base_ = ["a.py"]\n', r"b.py:1: .*try the file that this one inherits from"),
        ('n = 2\nbucket_config = {"480p": {1: (0.5, n)}}', r"b.py:2: 'n' is computed, not"),
        ('bucket_config = {\n"480q": {1: (1.0, 1)}}', r"b.py:2: unknown resolution '480q'"),
        ('bucket_config = {"480p": {\n"x": (1.0, 1)}}', r"b.py:2: 'x' is no number of frames"),
        ('bucket_config = {"480p": {\n1: (1.0,)}}', r"b.py:2: expected \(probability, batch\)"),
        ('bucket_config = {"480p": {\n1: (1.5, 1)}}', r"b.py:2: a probability is at most 1"),
        ('bucket_config = {"480p": {\n1: (1.0, "a")}}', r"b.py:2: .*must be a number, not 'a'"),
        ('bucket_config = {"480p": {\n1: (0, 1)}}', r"b.py:1: no bucket is left"),
    ],
)
def test_an_unusable_open_sora_configuration_is_explained(tmp_path: Path, text: str, message: str):
    with pytest.raises(InputError, match=message):
        read(tmp_path, "open-sora", text)


FINETRAINERS = {
    "datasets": [
        {
            "data_root": "x",
            "video_resolution_buckets": [[49, 480, 720], "81x480x832"],
            "image_resolution_buckets": [[512, 768]],
        }
    ]
}


def test_finetrainers_takes_lists_and_texts(tmp_path: Path):
    found = read(tmp_path, "finetrainers", json.dumps(FINETRAINERS), batch=2)
    assert recognise_buckets(tmp_path / "b.json")[0] == "finetrainers"
    assert shapes(found) == {"49x480x720", "81x480x832", "1x512x768"}
    assert {b.batch for b in found.table.buckets} == {2}


@pytest.mark.parametrize(
    ("buckets", "message"),
    [
        ("[[49, 480]]", r"b.json:2: 2 numbers for frames, height, width"),
        ('["49x480xwide"]', r"b.json:2: '49x480xwide' is no size"),
        ("[[0, 480, 720]]", r"b.json:2: must be at least 1, not 0"),
        ("[[49, 480.5, 720]]", r"b.json:2: must be a whole number, not 480.5"),
        ("5", r"b.json:2: video_resolution_buckets must be a list, not 5"),
        ("[]", r"b.json:1: no bucket is left"),
    ],
)
def test_an_unusable_finetrainers_bucket_is_explained(tmp_path: Path, buckets: str, message: str):
    text = f'{{"datasets": [{{"data_root": "x",\n"video_resolution_buckets": {buckets}}}]}}'
    with pytest.raises(InputError, match=message):
        read(tmp_path, "finetrainers", text)


DIFFUSION_PIPE = """resolutions = [512, [1280, 720]]
enable_ar_bucket = true
min_ar = 0.5
max_ar = 2.0
num_ar_buckets = 3
frame_buckets = [33]
[[directory]]
path = 'a'
[[directory]]
path = 'b'
size_buckets = [[640, 352, 25]]
"""


def test_diffusion_pipe_multiplies_areas_ratios_and_lengths(tmp_path: Path):
    found = read(tmp_path, "diffusion-pipe", DIFFUSION_PIPE)
    assert recognise_buckets(tmp_path / "b.toml")[0] == "diffusion-pipe"
    sizes = {s.partition("x")[2] for s in shapes(found)}
    assert {"512x512", "736x352", "352x736", "960x960", "352x640"} <= sizes
    assert {b.shape.frames for b in found.table.buckets} == {1, 25, 33}
    assert all(b.shape.width % 32 == 0 for b in found.table.buckets)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("[512, [1280, 720]]", "[512, [1280]]", r"b.toml:1: 1 numbers for width and height"),
        ("resolutions = [512, [1280, 720]]\n", "", r"b.toml:6: neither resolutions nor"),
        ("min_ar = 0.5\n", "", r"b.toml:2: enable_ar_bucket needs min_ar"),
        ("min_ar = 0.5", "min_ar = 3.0", r"b.toml:3: min_ar 3 to max_ar 2 is no range"),
        ("= true", "= 'yes'", r"b.toml:2: enable_ar_bucket must be true or false"),
        ("frame_buckets = [33]", "frame_buckets = [0]", r"b.toml:6: must be at least 1, not 0"),
        ("[[640, 352, 25]]", "[[640, 352]]", r"b.toml:11: 2 numbers; try \[width, height"),
        ("num_ar_buckets = 3", "ar_buckets = [0.0]", r"b.toml:5: an aspect ratio must be positive"),
    ],
)
def test_an_unusable_diffusion_pipe_bucket_is_explained(
    tmp_path: Path, old: str, new: str, message: str
):
    with pytest.raises(InputError, match=message):
        read(tmp_path, "diffusion-pipe", DIFFUSION_PIPE.replace(old, new))


MUSUBI = """[general]
resolution = [960, 544]
batch_size = 2
enable_bucket = true
[[datasets]]
video_directory = "v"
target_frames = [1, 25]
[[datasets]]
image_directory = "i"
resolution = 512
enable_bucket = false
batch_size = 4
"""


def test_musubi_buckets_lie_around_the_area(tmp_path: Path):
    found = read(tmp_path, "musubi", MUSUBI)
    assert recognise_buckets(tmp_path / "b.toml")[0] == "musubi"
    assert {"25x544x960", "25x960x544", "1x512x512"} <= shapes(found)
    videos = [b.shape for b in found.table.buckets if b.shape.frames == 25]
    assert all(s.height % 16 == s.width % 16 == 0 for s in videos)
    assert all(0.9 * 960 * 544 < s.height * s.width <= 1.05 * 960 * 544 for s in videos)
    assert {b.batch for b in found.table.buckets if b.shape.frames == 25} == {2}
    assert {b.batch for b in found.table.buckets if str(b.shape) == "1x512x512"} == {4}


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("[960, 544]", "[960, 544, 3]", r"b.toml:2: 3 numbers for width and height"),
        ("batch_size = 2", "batch_size = 0", r"b.toml:3: batch_size must be at least 1"),
        ("enable_bucket = true", "enable_bucket = 1", r"b.toml:4: enable_bucket must be true or"),
        ("[1, 25]", "[1, 'x']", r"b.toml:7: must be a number, not 'x'"),
        ("[1, 25]", "[]", r"b.toml:7: target_frames is empty"),
        ("resolution = 512", "resolution = 'big'", r"b.toml:10: resolution must be a number"),
    ],
)
def test_an_unusable_musubi_bucket_is_explained(tmp_path: Path, old: str, new: str, message: str):
    with pytest.raises(InputError, match=message):
        read(tmp_path, "musubi", MUSUBI.replace(old, new))


def test_two_batches_for_one_shape_are_said(tmp_path: Path):
    text = MUSUBI.replace("resolution = 512", "resolution = [960, 544]")
    found = read(tmp_path, "musubi", text)
    assert any("two batches for 1x544x960, 2 and 4" in note for note in found.notes)


def test_fastvideo_buckets_are_the_shapes_of_its_latents(tmp_path: Path):
    pytest.importorskip("pyarrow", reason="PyArrow is not installed")
    import pyarrow
    import pyarrow.parquet

    table = pyarrow.table(
        {"vae_latent_shape": [[16, 21, 60, 104]] * 3, "media_type": ["video"] * 3}
    )
    pyarrow.parquet.write_table(table, tmp_path / "a.parquet")
    found = BUCKET_FORMATS["fastvideo"].read(tmp_path, 4)
    assert [(str(b.shape), b.batch) for b in found.table.buckets] == [("81x480x832", 4)]
