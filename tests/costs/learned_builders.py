"""Measurements of made-up devices, for tests of learned costs."""

from collections.abc import Iterable, Sequence

import numpy as np

from arachne_opt.costs.learned.cascade_features import TaskPoint, task_samples
from arachne_opt.costs.learned.fitting import FitOptions
from arachne_opt.costs.learned.network import Training
from arachne_opt.device_types import DEVICE_TYPES
from arachne_opt.models import model_spec
from arachne_opt.records import Measurement
from arachne_opt.workload import Shape

QUICK = FitOptions(
    members=2, decays=(1e-3,), folds=3, training=Training(hidden=8, steps=120, rate=0.03)
)
FRAMES = (5, 9, 13, 17, 25, 33, 41, 49)
FACTORS = {"encode": (3.0, 0.4, 0.2, 0.1, 0.05, 0.5), "denoise": (2.0, 2.5, 1.5, 2.0, 0.02, 0.5)}


def made_up(
    *,
    model: str = "wan2.1-1.3b",
    kinds: Sequence[str] = ("H100-80",),
    degrees: Iterable[int] = (1, 2, 4),
    frames: Iterable[int] = FRAMES,
    noise: float = 0.0,
    seed: int = 0,
) -> tuple[Measurement, ...]:
    """Tasks that take what the analytic terms say, with known factors and some noise."""
    spec, draw = model_spec(model), np.random.default_rng(seed)
    found = []
    for kind in kinds:
        for task in ("encode", "denoise"):
            for count in frames:
                for degree in degrees:
                    shape = Shape(frames=count, height=256, width=256)
                    point = TaskPoint(
                        clips=1,
                        shape=shape,
                        text_tokens=0,
                        degree=degree,
                        device_type=DEVICE_TYPES[kind],
                    )
                    terms = task_samples(spec, task, [point], (1, 2, 4)).terms[0]
                    seconds = float(terms @ np.array(FACTORS[task]))
                    seconds *= float(np.exp(noise * draw.normal()))
                    found.append(
                        Measurement(
                            model=model,
                            task=task,
                            device_type=kind,
                            degree=degree,
                            batch=1,
                            frames=count,
                            height=256,
                            width=256,
                            text_tokens=0,
                            duration_us=max(1, round(seconds * 1e6)),
                            memory_bytes=10**9 + count * 10**7 // degree,
                            source="profile",
                        )
                    )
    return tuple(found)
