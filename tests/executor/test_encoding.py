"""The latents are the same at every degree, and those of diffusers' own tiled encoder."""

import pytest
import torch

from arachne_opt.executor.encoding import share_out, tile_rows
from arachne_opt.executor.model_config import ModelChoice
from arachne_opt.executor.seeds import clip_pixels
from arachne_opt.workload import Shape
from tests.executor import rank_tasks, reference_models
from tests.executor.jobs import ODD, SMALL, TILED, WIDE, batch
from tests.executor.ranks import run_ranks

CHOICE = ModelChoice(preset="tiny-wan", overrides=TILED, seed=3)


IMAGE = Shape(frames=1, height=80, width=112)


def test_every_degree_gives_the_latents_of_one_process_to_the_bit():
    check_degrees([batch("image", IMAGE), batch("small", SMALL, 3)])


@pytest.mark.slow
def test_so_it_is_for_clips_of_several_frames():
    check_degrees([batch("tiled", WIDE), batch("whole", ODD, 2)])


def check_degrees(batches):
    answers = run_ranks(rank_tasks.encode, 4, CHOICE, batches)
    with torch.random.fork_rng():
        encode = reference_models.wan(CHOICE).encode
    for number, micro_batch in enumerate(batches):
        alone = torch.from_numpy(answers[0][number][0])
        for rank, answer in enumerate(answers):
            for degree, found in zip((1, 2, 3, 4), answer[number], strict=True):
                assert (found is None) == (rank >= degree)
                if found is not None:
                    assert torch.equal(torch.from_numpy(found), alone)
        shape = micro_batch.shape
        size = (3, shape.frames, shape.height, shape.width)
        wanted = [encode(clip_pixels(clip.id, size)[None]) for clip in micro_batch.clips]
        torch.testing.assert_close(alone, torch.cat(wanted), rtol=1e-5, atol=1e-6)


def test_tiles_depend_on_the_shape_only_and_overlap():
    config = CHOICE.config()
    rows = tile_rows(config, IMAGE)
    assert [(t.top, t.height) for t, *_ in rows] == [(0, 64), (48, 32)]
    assert [(t.left, t.width) for t in rows[0]] == [(0, 64), (48, 64), (96, 16)]
    assert len(tile_rows(config, Shape(frames=33, height=64, width=64))) == 1


@pytest.mark.parametrize("degree", [1, 2, 3, 4, 8])
def test_whole_clips_and_tiles_are_shared_out_evenly(degree):
    pieces = share_out(CHOICE.config(), IMAGE, 4, degree)
    assert [(p.clip, p.tile) for p in pieces] == [
        (clip, tile)
        for clip in range(4)
        for row in tile_rows(CHOICE.config(), IMAGE)
        for tile in row
    ]
    loads = [sum(p.tile.area for p in pieces if p.owner == rank) for rank in range(degree)]
    assert max(loads) - min(loads) <= max(p.tile.area for p in pieces)
    assert min(loads) > 0
