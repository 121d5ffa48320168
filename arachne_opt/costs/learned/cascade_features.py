"""What decides the time and memory of a cascade's task, as features.

Times: operations over the device's peak, bytes over its memory or link bandwidth, and launches.
Operations of the transformer are linear in tokens and quadratic through attention; those of the
encoder are linear in pixels, and the overlaps of its parts do not shrink with the degree; it runs
chunk by chunk of frames, each of which is launched. Formulas and their sources:
``arachne_opt.costs.analytic``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from arachne_opt.cluster import DeviceType
from arachne_opt.costs.analytic import default_network
from arachne_opt.costs.learned.samples import Floats, Samples
from arachne_opt.models import ModelSpec, TextUse
from arachne_opt.workload import Shape

TASKS = ("encode", "denoise")

_VALUE_BYTES = 2
_LAUNCH_S = 1e-3


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskPoint:
    """One micro-batch shape at one degree on one device type."""

    clips: int
    shape: Shape
    text_tokens: int
    degree: int
    device_type: DeviceType


def task_samples(
    model: ModelSpec, task: str, points: Sequence[TaskPoint], degrees: Sequence[int]
) -> Samples:
    """Features of the time of a task.

    Args:
        model: the video model.
        task: ``encode`` or ``denoise``.
        points: what was measured or is asked.
        degrees: measured degrees, which get an input of their own.
    """
    work = _encode_terms if task == "encode" else _denoise_terms
    return _samples(model, task, points, degrees, [work(model, p) for p in points])


def memory_samples(
    model: ModelSpec, task: str, points: Sequence[TaskPoint], degrees: Sequence[int]
) -> Samples:
    """Features of the memory of a task: what always lies there, and what grows with the work."""
    rows = []
    for p in points:
        tokens, pixels = _tokens(model, p) * p.clips, _pixels(p) * p.clips
        states = float(model.parameters + model.vae.encoder_parameters)
        latents = float(model.latent_bytes(p.shape) * p.clips)
        if task == "encode":
            feature = _VALUE_BYTES * model.vae.base_channels
            rows.append([states, feature * pixels / p.degree, float(feature * _pixels(p)), latents])
        else:
            wide = _VALUE_BYTES * tokens * model.hidden
            rows.append([states, wide * model.layers / p.degree, float(wide), latents])
    return _samples(model, task, points, degrees, rows)


def _samples(
    model: ModelSpec,
    task: str,
    points: Sequence[TaskPoint],
    degrees: Sequence[int],
    rows: Sequence[Sequence[float]],
) -> Samples:
    terms = np.array(rows, dtype=np.float64)
    size = [_pixels(p) if task == "encode" else _tokens(model, p) for p in points]
    rising = np.log([[s, p.clips] for s, p in zip(size, points, strict=True)])
    labels = [f"{p.device_type.name} x{p.degree}" for p in points]
    return Samples(
        terms=terms,
        scales=np.array([[label] * terms.shape[1] for label in labels]),
        rising=rising,
        free=_free(points, degrees),
        cells=tuple(labels),
        unseen={"type": tuple(p.device_type.name for p in points)},
    )


def _free(points: Sequence[TaskPoint], degrees: Sequence[int]) -> Floats:
    """Degree, as a number and one by one, and the data sheet."""
    rows = []
    for p in points:
        kind = p.device_type
        sheet = (kind.peak_flops_per_s, kind.memory_bandwidth_bytes_per_s, kind.memory_bytes)
        rows.append(
            [
                np.log(p.degree),
                *(float(p.degree == k) for k in degrees),
                *np.log([max(1.0, float(x)) for x in sheet]),
            ]
        )
    return np.array(rows, dtype=np.float64)


def _encode_terms(model: ModelSpec, p: TaskPoint) -> list[float]:
    seconds = model.vae.encode_flops_per_pixel * _pixels(p) / p.device_type.peak_flops_per_s
    rest = 1 - 1 / p.degree
    return [
        p.clips * seconds / p.degree,
        p.clips * seconds * rest,
        seconds / p.degree,
        p.clips * model.latent_shape(p.shape)[0] * _LAUNCH_S,
        p.clips * _LAUNCH_S,
        _LAUNCH_S,
    ]


def _denoise_terms(model: ModelSpec, p: TaskPoint) -> list[float]:
    tokens, hidden, kind = _tokens(model, p), model.hidden, p.device_type
    block = 8 * hidden**2 + 4 * hidden * model.ffn
    share = p.clips * model.layers / p.degree / kind.peak_flops_per_s
    moved = _VALUE_BYTES * p.clips * tokens * hidden * model.layers / p.degree
    link = default_network(kind).intra.bandwidth_bytes_per_s
    return [
        share * block * tokens,
        share * 4 * hidden * float(tokens) ** 2,
        moved / max(1, kind.memory_bandwidth_bytes_per_s),
        moved * (1 - 1 / p.degree) / link,
        p.clips * _LAUNCH_S,
        _LAUNCH_S,
    ]


def _tokens(model: ModelSpec, p: TaskPoint) -> int:
    """Tokens of one clip that the layers carry along."""
    joint = model.used_text_tokens(p.text_tokens) if model.text_use is TextUse.JOINT else 0
    return model.tokens(p.shape) + joint


def _pixels(p: TaskPoint) -> int:
    return p.shape.frames * p.shape.height * p.shape.width
