"""Videos and images decode to the frames that they were made of; damage is never concealed."""

import importlib.util
from dataclasses import replace

import numpy as np
import pytest
import torch

from arachne_opt.errors import InputError, MissingDependencyError
from arachne_opt.executor.file_scan import scan_files
from arachne_opt.executor.pixels import load_pixels, read_frames
from arachne_opt.executor.video_files import decode_frames, file_facts, frame_numbers
from arachne_opt.workload import Clip, Shape
from tests.executor.videos import damage, frames_of, write_video

pytest.importorskip("av", reason="needs the extra decode")

SHAPE = Shape(frames=5, height=32, width=48)


def clip(path, **fields):
    return Clip(id="c", shape=fields.pop("shape", SHAPE), path=str(path), **fields)


def test_a_lossless_video_gives_back_its_frames(tmp_path):
    frames = frames_of(9, 32, 48)
    write_video(tmp_path / "v.mkv", frames)
    found = read_frames(clip(tmp_path / "v.mkv"), SHAPE).numpy()
    assert (found == frames[:5]).all()


@pytest.mark.parametrize("suffix", [".mp4", ".avi"])
def test_lossy_videos_come_close(tmp_path, suffix):
    frames = frames_of(9, 32, 48)
    write_video(tmp_path / f"v{suffix}", frames)
    found = read_frames(clip(tmp_path / f"v{suffix}"), SHAPE).numpy().astype(int)
    assert abs(found - frames[:5]).mean() < 4


@pytest.mark.parametrize("suffix", [".png", ".jpg"])
def test_an_image_is_a_clip_of_one_frame(tmp_path, suffix):
    image = frames_of(2, 32, 48)[1:]
    write_video(tmp_path / f"i{suffix}", image)
    shape = replace(SHAPE, frames=1)
    found = load_pixels(clip(tmp_path / f"i{suffix}", shape=shape), shape)
    assert found.shape == (3, 1, 32, 48)
    wanted = torch.from_numpy(image[0]).permute(2, 0, 1) / 127.5 - 1
    assert (found[:, 0] - wanted).abs().mean() < 0.03


def test_frames_are_picked_at_the_rate_of_the_training(tmp_path):
    frames = frames_of(24, 32, 48)
    write_video(tmp_path / "v.mkv", frames, fps=24)
    slow = clip(tmp_path / "v.mkv", fps=24.0, train_fps=10.0)
    found = read_frames(slow, SHAPE).numpy()
    # Tenths of a second are at frames 0, 2.4, 4.8, 7.2 and 9.6.
    assert (found == frames[[0, 2, 5, 7, 10]]).all()
    assert frame_numbers(3, 30.0, 20.0) == (0, 2, 3)
    assert frame_numbers(3, 24.0, 0.0) == (0, 1, 2)
    more = replace(SHAPE, frames=13)
    with pytest.raises(InputError, match=r"has 10 frames at 10 per second, .* needs 13"):
        read_frames(slow, more)


def test_frames_are_scaled_to_cover_the_shape_and_cut_evenly(tmp_path):
    frames = frames_of(5, 64, 160)
    write_video(tmp_path / "v.mkv", frames)
    found = read_frames(clip(tmp_path / "v.mkv"), SHAPE).numpy().astype(int)
    assert found.shape == (5, 32, 48, 3)
    # Scaled by a half to 32 x 80; of its columns 16 to 63 stay, the bright half ends at 40.
    assert (found[2, :, :22] == 120).all()
    assert (found[2, :, 26:] == 20).all()


@pytest.mark.parametrize("suffix", [".mp4", ".mkv", ".avi"])
def test_a_damaged_video_is_named(tmp_path, suffix):
    path = tmp_path / f"v{suffix}"
    noise = np.random.default_rng(0).integers(0, 256, (9, 32, 48, 3), dtype=np.uint8)
    write_video(path, noise)
    damage(path)
    with pytest.raises(InputError) as caught:
        read_frames(clip(path), replace(SHAPE, frames=9))
    assert str(path) in caught.value.what
    assert caught.value.where == "clip c"


@pytest.mark.parametrize("content", [b"", b"no video at all"])
def test_what_is_no_video_is_named(tmp_path, content):
    path = tmp_path / "v.mp4"
    path.write_bytes(content)
    for read in (
        lambda: list(decode_frames(str(path), (0,), "here")),
        lambda: file_facts(str(path), "here"),
    ):
        with pytest.raises(InputError, match="cannot decode") as caught:
            read()
        assert caught.value.where == "here"


def test_a_scan_finds_what_is_damaged_or_not_as_the_manifest_says(tmp_path):
    good, short, broken, other = (
        tmp_path / f"{n}.mkv" for n in ("good", "short", "broken", "size")
    )
    noise = np.random.default_rng(0).integers(0, 256, (5, 32, 48, 3), dtype=np.uint8)
    for path in (good, broken):
        write_video(path, noise)
    write_video(short, noise[:4])
    write_video(other, frames_of(5, 32, 64))
    damage(broken)
    seen = []
    clips = [replace(clip(p), id=p.stem) for p in (good, short, broken, other)]
    found = {
        e.id: e.reason for e in scan_files([*clips, Clip(id="none", shape=SHAPE)], seen.append)
    }
    assert found.keys() == {"short", "broken", "size"}
    assert found["short"].endswith("has 4 frames, the manifest says 5")
    assert found["size"].endswith("is 32x64, the manifest says 32x48")
    assert seen == [1, 2, 3, 4, 5]


def test_without_a_decoder_the_extra_is_named(tmp_path, monkeypatch):
    write_video(tmp_path / "v.mkv", frames_of(5, 32, 48))
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(MissingDependencyError, match=r"arachne-opt\[decode\]"):
        read_frames(clip(tmp_path / "v.mkv"), SHAPE)
