"""Clips at the frame rate of the training."""

import pytest

from arachne_opt.errors import InputError
from arachne_opt.executor.video_files import frame_numbers
from arachne_opt.frame_rate import at_frame_rate, frame_lines
from arachne_opt.grouping import group_clips
from arachne_opt.models import model_spec
from arachne_opt.workload import Clip, Shape


def clip(frames: int, fps: float, **fields: str) -> Clip:
    shape = Shape(frames=frames, height=64, width=96)
    return Clip(id=f"{frames}@{fps}", shape=shape, fps=fps, **fields)


@pytest.mark.parametrize("frames", [2, 3, 24, 100, 129, 301])
@pytest.mark.parametrize(("fps", "asked"), [(24.0, 8.0), (30.0, 16.0), (29.97, 16.0), (60.0, 7.5)])
def test_all_frames_at_the_new_rate_lie_in_the_file(frames: int, fps: float, asked: float) -> None:
    (found,) = at_frame_rate([clip(frames, fps)], asked)
    numbers = frame_numbers(found.shape.frames + 1, fps, asked)
    assert numbers[-2] < frames <= numbers[-1]
    assert found.train_fps == asked


def test_images_slow_clips_and_latents_keep_their_frames() -> None:
    kept = (clip(1, 0.0), clip(50, 8.0), clip(50, 24.0, latents="z.safetensors"))
    assert at_frame_rate(kept, 16.0) == kept


def test_an_unknown_rate_is_named() -> None:
    with pytest.raises(InputError, match=r"1 clips have no fps, among them 9@0\.0"):
        at_frame_rate([clip(9, 0.0), clip(9, 8.0)], 4.0)
    with pytest.raises(InputError, match="must be positive"):
        at_frame_rate([], 0.0)


def test_what_becomes_of_the_frames_is_said_by_kind() -> None:
    clips = [clip(100, 24.0), clip(1, 0.0), clip(17, 8.0), clip(9, 8.0, latents="z.safetensors")]
    grouped = group_clips(
        at_frame_rate(clips, 8.0), iteration_size=8, model=model_spec("tiny-wan"), batch=1
    )
    assert set(frame_lines(clips, grouped.workload)) == {
        "1 clips: 100 frames at 24 fps -> 34 at 8 fps -> 33 trained",
        "1 clips: 1 frames",
        "1 clips: 17 frames at 8 fps",
        "1 clips: cached latents of 9 frames",
    }
