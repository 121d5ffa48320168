"""How far the memory model is from measured peaks, on tiny models of every family.

    python benchmarks/memory_model.py

Every task runs alone on two ranks at degrees 1 and 2, activations kept and computed again, while
all tensors that live are counted. The peaks hold weights, gradients and the rank's share of the
optimizer's moments, as in a training with ZeRO-1.
"""

from __future__ import annotations

import argparse
import os
import platform
from collections.abc import Sequence

from generated import run

from arachne_opt.costs.runtime_memory import RuntimeMemory
from arachne_opt.executor.measure import MeasureJob, Work, measure_local
from arachne_opt.executor.model_config import ModelChoice
from arachne_opt.models import model_spec
from arachne_opt.records import Measurement
from arachne_opt.workload import Clip, MicroBatch, Shape

RANKS = 2
MODELS = ("toy", "tiny-wan", "tiny-wan-i2v", "tiny-cogvideox", "tiny-hunyuan-video")
# Frames, height, width and clips.
SIZES = ((5, 64, 64, 1), (17, 96, 96, 1), (17, 96, 96, 2), (1, 160, 192, 2), (33, 96, 160, 1))


def main() -> None:
    """Measures every model and prints a row per model, task and way."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--models", nargs="+", default=MODELS)
    options = parser.parse_args()
    print(f"{os.cpu_count()} cores, {platform.machine()}, {RANKS} ranks, fp32, ZeRO-1")
    print(f"{'model':<20}{'task':<22}{'peaks':>6}{'largest':>12}  predicted / measured (mean, all)")
    for name in options.models:
        show(name, *measured(name))


def measured(name: str) -> tuple[tuple[Work, ...], tuple[Measurement, ...]]:
    """What was run, and what it took."""
    batches = []
    for frames, height, width, clips in SIZES:
        shape = Shape(frames=frames, height=height, width=width)
        rows = tuple(Clip(id=f"c{i}", shape=shape) for i in range(clips))
        batches.append(MicroBatch(id=f"{clips}x{shape}", shape=shape, clips=rows))
    job = MeasureJob(
        model=ModelChoice(preset=name),
        batches=tuple(batches),
        degrees=(1, 2),
        warmup=0,
        repeats=1,
        threads_per_rank=1,
        recompute=True,
    )
    return job.work(), measure_local(job, RANKS)


def show(name: str, work: Sequence[Work], rows: Sequence[Measurement]) -> None:
    """Prints the ratios of one model."""
    memory = RuntimeMemory(model=model_spec(name), ranks=RANKS)
    ratios: dict[str, list[tuple[float, int]]] = {}
    for one, row in zip(work, rows, strict=True):
        if one.task == "encode":
            label, predicted = "encode", memory.encode_bytes(one.batch)
        else:
            label = "denoise, recomputed" if one.recompute else "denoise"
            predicted = memory.denoise_bytes(one.batch, one.degree, recompute=one.recompute)
        ratios.setdefault(label, []).append((predicted / row.memory_bytes, row.memory_bytes))
    for label, found in ratios.items():
        values = [ratio for ratio, _ in found]
        mean, largest = sum(values) / len(values), max(size for _, size in found)
        span = f"{mean:.3f}, {min(values):.3f} to {max(values):.3f}"
        print(f"{name:<20}{label:<22}{len(found):>6}{largest / 1e6:>9.1f} MB  {span}", flush=True)


if __name__ == "__main__":
    run(main)
