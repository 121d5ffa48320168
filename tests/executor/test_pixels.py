"""Pixels come from .npy files or from the clip's id; all else is named and refused."""

import numpy as np
import pytest
import torch

from arachne_opt.errors import InputError
from arachne_opt.executor.model_config import ModelChoice
from arachne_opt.executor.pixel_files import check_files
from arachne_opt.executor.pixels import load_pixels
from arachne_opt.workload import Clip, MicroBatch, Shape

SHAPE = Shape(frames=5, height=32, width=48)


def clip(path=""):
    return Clip(id="c7", shape=SHAPE, path=str(path))


def test_frames_are_trimmed_resized_and_scaled(tmp_path):
    frames = np.zeros((9, 64, 96, 3), dtype=np.uint8)
    frames[:5, ..., 0], frames[5:] = 255, 77
    np.save(tmp_path / "v.npy", frames)
    pixels = load_pixels(clip(tmp_path / "v.npy"), SHAPE)
    assert pixels.shape == (3, 5, 32, 48)
    assert torch.allclose(pixels[0], torch.ones(()))
    assert torch.allclose(pixels[1:], -torch.ones(()))


def test_frames_of_the_right_size_are_not_touched(tmp_path):
    frames = np.random.default_rng(0).integers(0, 256, (5, 32, 48, 3), dtype=np.uint8)
    np.save(tmp_path / "v.npy", frames)
    pixels = load_pixels(clip(tmp_path / "v.npy"), SHAPE)
    back = ((pixels + 1) * 127.5).round().to(torch.uint8).permute(1, 2, 3, 0).numpy()
    assert (back == frames).all()


def test_synthetic_pixels_depend_on_the_clip_only():
    first, again = load_pixels(clip(), SHAPE), load_pixels(clip(), SHAPE)
    other = load_pixels(Clip(id="c8", shape=SHAPE), SHAPE)
    assert torch.equal(first, again)
    assert not torch.equal(first, other)


@pytest.mark.parametrize(
    ("frames", "message"),
    [
        (np.zeros((4, 32, 48, 3), dtype=np.uint8), "has 4 frames, its micro-batch needs 5"),
        (np.zeros((5, 32, 48, 3), dtype=np.float32), "float32 of shape"),
        (np.zeros((5, 32, 48), dtype=np.uint8), "uint8 of shape"),
    ],
)
def test_frames_that_do_not_fit_are_named(tmp_path, frames, message):
    np.save(tmp_path / "v.npy", frames)
    with pytest.raises(InputError, match=message) as caught:
        load_pixels(clip(tmp_path / "v.npy"), SHAPE)
    assert caught.value.where == "clip c7"


def test_files_are_checked_before_a_run(tmp_path):
    video, missing, broken = (tmp_path / name for name in ("v.txt", "no.npy", "bad.npy"))
    broken.write_bytes(b"not numpy")
    for path, message in ((video, "cannot read frames from"), (missing, "does not exist")):
        batch = MicroBatch(id="b", shape=SHAPE, clips=(clip(path),))
        with pytest.raises(InputError, match=message) as caught:
            check_files((batch,), ModelChoice(preset="toy").config())
        assert caught.value.where == "clip c7"
        assert str(path) in caught.value.what
    with pytest.raises(InputError, match="cannot read"):
        load_pixels(clip(broken), SHAPE)
