"""What decides the time of a row of a large model, as features.

A row's forward and backward take: operations over the device's peak for the arithmetic in use;
attention scores and other activations over the memory bandwidth; all-reduces of the tensor-parallel
group over its link; weights over the memory bandwidth; and launches. The update of the optimizer
takes its states over the memory bandwidth. Two all-reduces each way in a block, one in the forward
of a split embedding and in the backward of a split head (Shoeybi et al. 2019, arXiv 1909.08053).
"""

from __future__ import annotations

import enum
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from arachne_opt.cluster import DeviceType
from arachne_opt.costs.analytic import default_network
from arachne_opt.costs.learned.arithmetic import Arithmetic, peak_flops_per_s
from arachne_opt.costs.learned.samples import Floats, Samples
from arachne_opt.pipeline.rows import RowModel

PASSES = ("forward", "backward", "update")
DEGREES = (1, 2, 4, 8)

_LAUNCH_S = 1e-5
_LEAST_S = 1e-6  # a row that does nothing in a pass still takes this, and a file cannot say less
_SHARE_OF_LOGITS = 0.9


class RowKind(enum.StrEnum):
    """What a row is, from its sizes."""

    EMBEDDING = "embedding"
    BLOCK = "block"
    HEAD = "head"
    NORM = "norm"


@dataclass(frozen=True, slots=True, kw_only=True)
class RowPoint:
    """One row at one degree and micro-batch on one device type.

    Args:
        parameters: of the whole row; ``matrix`` those that multiply, a tied matrix included.
        kept_by_tp: values kept for the backward, per token: the part that every device of the
            group keeps, and the part that is split.
        arithmetic: of matrix products.
    """

    model: str
    kind: RowKind
    parameters: float
    matrix: float
    hidden: float
    heads: int
    sequence_length: int
    value_bytes: int
    kept_by_tp: tuple[float, float]
    tp: int
    microbatch: int
    device_type: DeviceType
    arithmetic: Arithmetic

    @property
    def tokens(self) -> int:
        """Tokens of the micro-batch."""
        return self.sequence_length * self.microbatch


def row_kinds(model: RowModel) -> tuple[RowKind, ...]:
    """The kind of each row: ends by place, blocks by weights, heads by the logits they keep."""
    hidden = _hidden(model)
    sizes = min(model.sizes, key=lambda s: s.tp)
    vocabulary = model.parameter_bytes[0] / model.dtype_bytes / hidden
    found = []
    for row in range(model.row_count):
        weights = model.parameter_bytes[row] / model.dtype_bytes
        logits = sizes.kept[row] * sizes.tp / model.sequence_length
        if row == 0:
            found.append(RowKind.EMBEDDING)
        elif row < model.row_count - 1 and weights > 4 * hidden**2:
            found.append(RowKind.BLOCK)
        elif logits > _SHARE_OF_LOGITS * vocabulary:
            found.append(RowKind.HEAD)
        else:
            found.append(RowKind.NORM)
    return tuple(found)


def row_point(
    model: RowModel,
    row: int,
    kind: RowKind,
    *,
    tp: int,
    microbatch: int,
    device_type: DeviceType,
    arithmetic: Arithmetic,
) -> RowPoint:
    """The features' input of a row."""
    weights = model.parameter_bytes[row] / model.dtype_bytes
    matrix = 0.0
    if kind is RowKind.BLOCK:
        matrix = weights
    if kind is RowKind.HEAD:  # tied to the embedding where it has none of its own
        matrix = max(weights, model.parameter_bytes[0] / model.dtype_bytes)
    hidden = _hidden(model)
    return RowPoint(
        model=model.name,
        kind=kind,
        parameters=weights,
        matrix=matrix,
        hidden=hidden,
        heads=_heads(hidden),
        sequence_length=model.sequence_length,
        value_bytes=model.dtype_bytes,
        kept_by_tp=_kept(model, row),
        tp=tp,
        microbatch=microbatch,
        device_type=device_type,
        arithmetic=arithmetic,
    )


def row_samples(points: Sequence[RowPoint], which: str) -> Samples:
    """Features of the time of rows in a pass: ``forward``, ``backward`` or ``update``."""
    terms = _update_terms if which == "update" else _pass_terms
    rows = [terms(p, which) for p in points]
    labels = [_update_labels(p) if which == "update" else _pass_labels(p) for p in points]
    return Samples(
        terms=np.array(rows, dtype=np.float64),
        scales=np.array(labels),
        rising=np.log([[p.tokens] for p in points]),
        free=_free(points),
        cells=tuple(f"{p.model} {p.device_type.name} tp{p.tp} {p.kind}" for p in points),
        unseen={
            "type": tuple(p.device_type.name for p in points),
            "model": tuple(p.model for p in points),
        },
    )


def _pass_terms(p: RowPoint, which: str) -> list[float]:
    kind, tokens = p.device_type, p.tokens
    block = p.kind is RowKind.BLOCK
    idle = p.kind is RowKind.EMBEDDING and which == "backward"  # no gradient of token numbers
    scores = p.heads * p.sequence_length / p.tp if block else 0.0
    whole, split = p.kept_by_tp
    kept = whole + split / p.tp
    other = p.hidden if p.kind is RowKind.EMBEDDING else max(p.hidden, kept - scores)
    operations = 2 * p.matrix * tokens / p.tp
    operations += 4 * tokens * p.sequence_length * p.hidden / p.tp if block else 0.0
    seconds = operations / peak_flops_per_s(kind, p.arithmetic)
    band = float(max(1, kind.memory_bandwidth_bytes_per_s))
    wide = tokens * p.value_bytes
    reduces = _reduces(p, which)
    sent = reduces * wide * p.hidden * 2 * (p.tp - 1) / p.tp
    weights = 0.0 if p.kind is RowKind.EMBEDDING else p.parameters / p.tp * p.value_bytes / band
    tensor = p.arithmetic is not Arithmetic.SINGLE
    return [
        seconds if tensor else 0.0,
        0.0 if tensor else seconds,
        wide * scores / band,
        0.0 if idle else wide * other / band,
        sent / default_network(kind).intra.bandwidth_bytes_per_s,
        reduces * 10 * _LAUNCH_S if p.tp > 1 else 0.0,
        0.0 if idle else _LAUNCH_S,
        _LEAST_S + weights,
    ]


def _pass_labels(p: RowPoint) -> list[str]:
    name = p.device_type.name
    rows = f"{name} {p.kind}"
    return [name, name, name, rows, f"{name} tp{p.tp}", name, rows, str(p.kind)]


def _update_terms(p: RowPoint, which: str) -> list[float]:
    band = float(max(1, p.device_type.memory_bandwidth_bytes_per_s))
    return [p.parameters / p.tp * p.value_bytes / band, _LAUNCH_S, _LEAST_S]


def _update_labels(p: RowPoint) -> list[str]:
    name = p.device_type.name
    return [name, f"{name} {p.kind}", "all"]


def _reduces(p: RowPoint, which: str) -> int:
    if p.kind is RowKind.BLOCK:
        return 2
    return int((p.kind, which) in ((RowKind.EMBEDDING, "forward"), (RowKind.HEAD, "backward")))


def _free(points: Sequence[RowPoint]) -> Floats:
    rows = [
        [
            np.log(p.tp),
            *(float(p.tp == tp) for tp in DEGREES),
            *(float(p.kind is kind) for kind in RowKind),
            np.log(p.hidden),
            np.log(p.sequence_length),
            np.log(p.heads),
            np.log(1 + sum(p.kept_by_tp)),
            np.log(peak_flops_per_s(p.device_type, p.arithmetic)),
            np.log(max(1, p.device_type.memory_bandwidth_bytes_per_s)),
            np.log(default_network(p.device_type).intra.bandwidth_bytes_per_s),
            np.log(p.device_type.memory_bytes),
        ]
        for p in points
    ]
    return np.array(rows, dtype=np.float64)


def _hidden(model: RowModel) -> float:
    """Width of a token: what a block sends on."""
    row = min(1, model.row_count - 1)
    return model.output_bytes[row] / model.sequence_length / model.dtype_bytes


def _heads(hidden: float) -> int:
    """Heads by the usual width of one: 64 in small models, 128 in large ones."""
    return max(1, round(hidden / (64 if hidden < 2048 else 128)))


def _kept(model: RowModel, row: int) -> tuple[float, float]:
    """Kept values per token: whole on every device, and split over the group.

    From the sizes at two degrees; with one, all are taken to be split.
    """
    by_tp = sorted(model.sizes, key=lambda s: s.tp)
    one = by_tp[0]
    first = one.kept[row] / model.sequence_length
    if len(by_tp) < 2:
        return 0.0, first * one.tp
    two = by_tp[1]
    second = two.kept[row] / model.sequence_length
    split = max(0.0, (first - second) / (1 / one.tp - 1 / two.tp))
    return max(0.0, first - split / one.tp), split
