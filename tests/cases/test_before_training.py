"""Ten reports of other trainers' users as tests, part one: what must be found before step 1."""

import pytest

from arachne_opt.buckets import Bucket, BucketTable
from arachne_opt.cli.main import run
from arachne_opt.cluster_file import read_cluster
from arachne_opt.costs.analytic import analytic_for_cluster
from arachne_opt.costs.build import build_problem
from arachne_opt.errors import InfeasibleError
from arachne_opt.frame_rate import at_frame_rate
from arachne_opt.grouping import group_clips
from arachne_opt.models import model_spec
from arachne_opt.solvers.base import Limits
from arachne_opt.solvers.registry import cascade_solver
from arachne_opt.workload import Clip, Iteration, MicroBatch, Shape

WAN = model_spec("wan2.1-14b")


def clip(name: str, frames: int, height: int, width: int, **fields: object) -> Clip:
    return Clip(id=name, shape=Shape(frames=frames, height=height, width=width), **fields)


def trained(workload) -> list[str]:
    return sorted(c.id for it in workload.iterations for b in it.micro_batches for c in b.clips)


def test_sixteen_clips_in_seven_buckets_make_batches_of_all_of_them():
    """Symptom: a bucket sampler gives 0 batches, since no bucket fills one on every rank."""
    lengths = (5, 9, 13, 17, 21, 25, 29)
    buckets = tuple(Bucket(shape=Shape(frames=n, height=256, width=256), batch=8) for n in lengths)
    clips = [clip(f"c{i}", lengths[i % 7], 256, 256) for i in range(16)]
    done = group_clips(clips, iteration_size=8, buckets=BucketTable(name="7", buckets=buckets))
    assert trained(done.workload) == sorted(c.id for c in clips)
    assert len(done.workload.iterations[0].micro_batches) == 7
    assert done.refused == ()


def test_long_clips_are_not_lost_when_more_than_two_batches_accumulate():
    """Symptom: with accumulation over 2, batches of rare 81-frame clips never fill and vanish."""
    clips = [clip(f"short{i}", 17, 480, 832) for i in range(37)]
    clips += [clip(f"long{i}", 81, 480, 832) for i in range(3)]
    for size in (1, 2, 3, 4, 8):
        done = group_clips(clips, iteration_size=size, batch=4, model=WAN)
        assert trained(done.workload) == sorted(c.id for c in clips), size
        frames = [b.shape.frames for it in done.workload.iterations for b in it.micro_batches]
        assert 81 in frames


def test_a_rare_large_clip_is_found_before_the_first_step(tmp_path, capsys):
    """Symptom: out of memory after hours, at the one 4K clip of the data set."""
    manifest = tmp_path / "clips.csv"
    rows = [f"c{i},17,480,832,16,9" for i in range(30)] + ["monster,241,2160,3840,16,9"]
    manifest.write_text("id,num_frames,height,width,fps,text_tokens\n" + "\n".join(rows) + "\n")
    db = ["--db", str(tmp_path / "plans.db")]
    plan = ["--workload", str(manifest), "--cluster", "A100-80:8x4", "--model", "wan2.1-14b"]
    assert run(["workload", "scan", str(manifest)]) == 0
    assert "241x2160x3840" in capsys.readouterr().out
    assert run(["solve", "cascade", *plan, "--time-limit", "0.5", *db]) == 3
    error = capsys.readouterr().err
    assert "monster" in error
    assert "GiB" in error


def test_a_batch_tuned_on_140_gb_is_planned_anew_or_refused_on_80_gb():
    """Symptom: a batch size from H200s is kept on A100s, which die."""
    shape = Shape(frames=81, height=720, width=1280)

    def problem(clips: int, cluster_text: str):
        cluster = read_cluster(cluster_text)
        rows = tuple(Clip(id=f"c{i}", shape=shape, text_tokens=64) for i in range(clips))
        batch = MicroBatch(id="b", shape=shape, clips=rows)
        iteration = Iteration(name="it", micro_batches=(batch,))
        return build_problem(iteration, cluster, analytic_for_cluster(WAN, cluster))

    def narrowest(made) -> int:
        task = made.cascades[0].tasks[-1]
        return min(option.degree for option in made.usable_options(task))

    large, small = problem(2, "H200-141:8x4"), problem(2, "A100-80:8x4")
    assert narrowest(small) > narrowest(large)
    for made in (large, small):
        plan = cascade_solver().solve(made, Limits(time_limit_s=0.3)).plan
        assert plan.placements[-1].degree >= narrowest(made)
    with pytest.raises(InfeasibleError, match="GiB"):
        problem(96, "A100-80:8x4")


def test_101_frames_at_another_rate_are_counted_after_conversion():
    """Symptom: 101 frames at 30 fps are counted as 101 at 16 fps; shapes and costs are wrong."""
    (slow,) = at_frame_rate([clip("c", 101, 480, 832, fps=30.0)], 16)
    # 101 frames at 30 fps last 3.37 s, in which 16 fps give 53 full frames: 4 n + 1 already.
    assert slow.shape.frames in (53, 54)
    done = group_clips([slow], iteration_size=1, model=WAN)
    batch = done.workload.iterations[0].micro_batches[0]
    assert batch.shape.frames == 53
    assert batch.clips[0].fps == 30.0
