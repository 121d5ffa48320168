"""How far off learned costs are on what they have not seen, beside simpler models.

    python benchmarks/learned_costs.py cascades --data DATA/cascades/durations_hunyuan_720p.json
    python benchmarks/learned_costs.py layers --data DATA/pipelines/sailor
    python benchmarks/learned_costs.py here --budget 60

``cascades``: published durations that were read from traces (no inferred, no estimated ones), one
shape held out at a time with all of its degrees. ``layers``: published times of rows; held out are
half of the (tp, micro-batch) points of every pair of model and device type (both halves in turn), a
whole device type, a whole model. ``here``: tasks of a small real model are measured on this
machine, one thread, in rounds of which the lowest median counts, and shapes that were not chosen
for the fit are predicted.

Nothing is fitted or chosen on held-out points: factors of the core, scaling of the inputs, decay,
networks and intervals come from the training points of each split. One thing is told: the public
profiles do not say which arithmetic was in use. Two pairs were measured without TF32 (their rates
lie below the single-precision peak, those of all other A100 and GH-96 rows above it); that one bit
per pair is an input, as whoever profiles knows it. ``--arithmetic usual`` leaves it out.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from generated import run

from arachne_opt import __version__
from arachne_opt.cluster import DeviceType
from arachne_opt.costs.learned.arithmetic import Arithmetic, usual
from arachne_opt.costs.learned.cascade import points_of, targets_of
from arachne_opt.costs.learned.cascade_features import TASKS, task_samples
from arachne_opt.costs.learned.evaluation import LEARNED, HeldOut, held_out
from arachne_opt.costs.learned.fitting import FitOptions
from arachne_opt.costs.learned.layer_features import row_samples
from arachne_opt.costs.learned.layers import LayerSample, layer_targets, samples_of
from arachne_opt.costs.learned.reports import layer_options
from arachne_opt.costs.learned.samples import Flags
from arachne_opt.importers.durations import read_durations
from arachne_opt.importers.pipeline_profiles import profiled_models, read_profiles
from arachne_opt.models import model_spec
from arachne_opt.records import Measurement
from arachne_opt.units import US_PER_S

WITHOUT_TF32 = {("OPT-30", "A100-40"), ("LLAMA-3-8", "A100-40")}


def main() -> None:
    """Prints the tables."""
    options = _options()
    print(f"{os.cpu_count()} cores, seed {options.seed}, {datetime.date.today()},", end=" ")
    print(f"arachne-opt {__version__}")
    {"cascades": cascades, "layers": layers, "here": here}[options.what](options)


def cascades(options: argparse.Namespace) -> None:
    """Published durations of tasks, a shape held out at a time."""
    spec = model_spec("hunyuanvideo-13b")
    for task in (name for name in TASKS if options.only in name):
        rows = [m for m in exact_durations(options.data) if m.task == task]
        targets = targets_of(rows, [m.duration_us / US_PER_S for m in rows])
        groups = np.array(targets.groups)
        samples = task_samples(spec, task, points_of(rows), sorted({m.degree for m in rows}))
        masks = [groups != name for name in sorted(set(targets.groups))]
        found = held_out(samples, targets, masks, FitOptions(seed=options.seed))
        print(f"\n{task}: {len(rows)} durations of {len(masks)} shapes, one shape held out")
        show(found)


def exact_durations(path: Path) -> list[Measurement]:
    """The durations that were read from traces."""
    shapes = json.loads(path.read_text(encoding="utf-8"))["shapes"]
    stage = {"encode": "vae", "denoise": "dit"}

    def is_exact(m: Measurement) -> bool:
        return shapes[f"{m.batch}_{m.frames}"][stage[m.task]][str(m.degree)][1] == "exact"

    return [m for m in read_durations(path) if is_exact(m)]


def layers(options: argparse.Namespace) -> None:
    """Published times of rows, under three kinds of holding out."""
    arithmetic = usual if options.arithmetic == "usual" else told
    profiles = [read_profiles(options.data, name) for name in profiled_models(options.data)]
    samples = samples_of(profiles, arithmetic)
    splits = {
        "half of the points of each pair": halves(samples, options.seed),
        "a whole device type": _without(samples, "type"),
        "a whole model": _without(samples, "model"),
    }
    for name, masks in splits.items():
        if options.only in name:
            _layer_split(name, samples, masks, options.seed)


def told(model: str, kind: DeviceType) -> Arithmetic:
    """The arithmetic in use; see the top of this file."""
    return Arithmetic.SINGLE if (model, kind.name) in WITHOUT_TF32 else usual(model, kind)


def halves(samples: Sequence[LayerSample], seed: int) -> list[Flags]:
    """Two complementary training sets, each with half of the points of every pair."""
    pairs: dict[tuple[str, str], set[str]] = {}
    for s in samples:
        pairs.setdefault((s.point.model, s.point.device_type.name), set()).add(s.step)
    draw, first = np.random.default_rng(seed), set[str]()
    for pair in sorted(pairs):
        steps = sorted(pairs[pair])
        first |= {steps[i] for i in draw.permutation(len(steps))[: len(steps) // 2]}
    mask = np.array([s.step in first for s in samples])
    return [mask, ~mask]


def _without(samples: Sequence[LayerSample], kind: str) -> list[Flags]:
    names = np.array(
        [s.point.device_type.name if kind == "type" else s.point.model for s in samples]
    )
    return [names != name for name in sorted(set(names))]


def _layer_split(
    name: str, samples: Sequence[LayerSample], masks: Sequence[Flags], seed: int
) -> None:
    """Errors of a pass, and of forward and backward together over all rows of all tables."""
    points = [s.point for s in samples]
    order = np.concatenate([np.flatnonzero(~mask) for mask in masks])
    # A new type or model is priced by the core alone: no network is trained for nothing.
    near = "half" in name
    choices = layer_options(seed) if near else FitOptions(members=0, decays=(1e-3,), folds=2)
    found: dict[str, HeldOut] = {}
    for which in ("forward", "backward"):
        targets = layer_targets(samples, which)
        found[which] = held_out(row_samples(points, which), targets, masks, choices)
    print(f"\nrows, held out: {name}")
    for method in found["forward"].predicted:
        work = found["forward"].predicted[method] + found["backward"].predicted[method]
        errors = [_row_errors(samples[i], w) for i, w in zip(order, work, strict=True)]
        print(f"  {method:38} {100 * np.mean(np.concatenate(errors)):6.1f} % of all rows")
        if method == LEARNED:
            _by_label(samples, order, errors)
    for which, held in found.items():
        print(f"  {which}: {100 * held.coverage:.1f} % inside of 90 % intervals")


def _row_errors(sample: LayerSample, work_s: float) -> np.ndarray:
    """Relative errors of forward and backward of each row of a sample."""
    forward, backward = (np.array(sample.seconds[which]) for which in ("forward", "backward"))
    return abs(work_s / (forward + backward) - 1)


def _by_label(
    samples: Sequence[LayerSample], order: np.ndarray, errors: Sequence[np.ndarray]
) -> None:
    for label in ("kind", "type", "model"):
        found: dict[str, list[np.ndarray]] = {}
        for i, error in zip(order, errors, strict=True):
            p = samples[i].point
            name = {"kind": str(p.kind), "type": p.device_type.name, "model": p.model}[label]
            found.setdefault(name, []).append(error)
        shown = (f"{k} {100 * np.mean(np.concatenate(v)):.1f} %" for k, v in sorted(found.items()))
        print(f"    by {label}: {', '.join(shown)}")


def show(found: HeldOut) -> None:
    """Errors of all methods, coverage of the learned one."""
    for method in found.predicted:
        print(f"  {method:38} {100 * found.error(method):6.1f} %")
    print(f"  {100 * found.coverage:.1f} % inside of 90 % intervals;", end=" ")
    print(f"the core alone spoke for {int((~found.near).sum())} of {len(found.measured)}")


def here(options: argparse.Namespace) -> None:
    """Measures a small real model and predicts shapes that the fit has not seen."""
    from arachne_opt.cli.profile_rounds import choose_shapes, in_rounds
    from arachne_opt.executor.measure import MeasureJob, measure_local
    from arachne_opt.executor.model_config import ModelChoice
    from arachne_opt.workload import Clip, MicroBatch, Shape

    spec = model_spec(options.model)
    shapes = [
        Shape(frames=f, height=h, width=w)
        for f in (5, 9, 17, 25)
        for h, w in ((32, 32), (48, 48), (64, 64), (80, 80), (64, 96))
    ]
    batches = tuple(
        MicroBatch(id=str(s), shape=s, clips=(Clip(id=str(s), shape=s),)) for s in shapes
    )
    job = MeasureJob(
        model=ModelChoice(preset=options.model),
        batches=batches,
        degrees=(1,),
        repeats=options.repeats,
        threads_per_rank=1,
    )
    best: dict[tuple[str, int, int, int], Measurement] = {}
    apart: list[float] = []
    for _ in range(options.rounds):
        for m in measure_local(job, 1):
            key = (m.task, m.frames, m.height, m.width)
            apart += [abs(m.duration_us / best[key].duration_us - 1)] if key in best else []
            best[key] = min(best.get(key, m), m, key=lambda row: row.duration_us)
    rows = tuple(best.values())

    def again(chosen: Sequence[int], _: object) -> tuple[Measurement, ...]:
        labels = {(shapes[i].frames, shapes[i].height, shapes[i].width) for i in chosen}
        return tuple(m for m in rows if (m.frames, m.height, m.width) in labels)

    known = in_rounds(options.shapes, np.inf, choose_shapes(spec, batches, (1,), "CPU"), again)
    seen = {(m.frames, m.height, m.width) for m in known}
    print(f"\n{spec.name}: {len(seen)} of {len(shapes)} shapes measured for the fit, one thread,")
    print(f"medians of {options.repeats}, the lowest of {options.rounds} rounds;", end=" ")
    print(f"a later round is {100 * np.mean(apart):.0f} % off the best before" if apart else "")
    for task in TASKS:
        mine = [m for m in rows if m.task == task]
        samples = task_samples(spec, task, points_of(mine), (1,))
        targets = targets_of(mine, [m.duration_us / US_PER_S for m in mine])
        mask = np.array([(m.frames, m.height, m.width) in seen for m in mine])
        print(f"{task}, {int((~mask).sum())} unseen shapes")
        show(held_out(samples, targets, [mask], FitOptions(seed=options.seed)))


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("what", choices=("cascades", "layers", "here"))
    parser.add_argument("--data", type=Path)
    parser.add_argument("--only", default="", help="only tasks or splits with this in their name")
    parser.add_argument("--arithmetic", choices=("told", "usual"), default="told")
    parser.add_argument("--model", default="tiny-wan", help="of `here`")
    parser.add_argument("--shapes", type=int, default=11, help="shapes that `here` learns from")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--rounds", type=int, default=3, help="of measuring, against noise")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    if options.what != "here" and options.data is None:
        parser.error("--data names the public data")
    return options


if __name__ == "__main__":
    run(main)
