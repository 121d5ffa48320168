"""The parameters of every row and how tp and ep cut them; knows no torch.

A tensor-parallel rank holds ``part(...)`` of each parameter; tests hold this description against
the modules. What is not cut lies whole on every rank and has the same gradient there.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from arachne_opt.executor.pipeline.models.spec import DecoderSpec


@dataclass(frozen=True, slots=True, kw_only=True)
class RowParameter:
    """One parameter of a row.

    Args:
        name: in the module of the row.
        shape: of the whole parameter.
        tp_axis: cut among the ranks of a tensor-parallel group; None for whole on each.
        units: pieces along ``tp_axis`` that are never cut: heads, or single entries. Where tp is a
            multiple of them, ``copies(tp)`` neighbouring ranks hold the same unit, and its gradient
            is the sum of theirs.
        ep_axis: cut among the replicas of an expert-parallel group; None for whole on each.
        decays: whether weight decay applies.
    """

    name: str
    shape: tuple[int, ...]
    tp_axis: int | None = None
    units: int = 1
    ep_axis: int | None = None
    decays: bool = True

    def copies(self, tp: int) -> int:
        """How many neighbouring ranks of a tensor-parallel group hold the same part.

        Where the parameter is cut, the gradient of a part is the sum over its copies; where it is
        whole, every copy has all of it.
        """
        if self.tp_axis is None:
            return tp
        return tp // self.units if self.units < tp else 1

    def part(
        self, tp: int = 1, tp_rank: int = 0, ep: int = 1, ep_rank: int = 0
    ) -> tuple[slice, ...]:
        """Where the part of one rank lies in the whole parameter, axis by axis.

        Parts are as even as ceilings make them, the last ones smaller or empty.
        """
        bounds = [slice(0, size) for size in self.shape]
        if self.tp_axis is not None:
            parts = tp // self.copies(tp)
            size = self.shape[self.tp_axis]
            bounds[self.tp_axis] = _chunk(size, self.units, parts, tp_rank // self.copies(tp))
        if self.ep_axis is not None:
            size = self.shape[self.ep_axis]
            bounds[self.ep_axis] = _chunk(size, size, ep, ep_rank)
        return tuple(bounds)


def row_parameters(spec: DecoderSpec, row: int) -> tuple[RowParameter, ...]:
    """All parameters of a row."""
    if row == 0:
        return tuple(_embedding(spec))
    if row == spec.head_row:
        return tuple(_head(spec))
    parts = [*_norm(spec, "attention_norm"), *_attention(spec), *_norm(spec, "ffn_norm")]
    if not spec.is_sparse(row):
        return (*parts, *_ffn(spec, "ffn.", spec.ffn))
    return (*parts, *_experts(spec))


def tied_parameters(spec: DecoderSpec) -> tuple[tuple[int, str], ...]:
    """The copies (row, name) of one parameter, whose gradients are added; empty for none."""
    return ((0, WORDS), (spec.head_row, WORDS)) if spec.tied else ()


WORDS = "words.weight"


def _chunk(size: int, units: int, parts: int, index: int) -> slice:
    """Part number ``index`` of whole units; torch's chunks for single entries."""
    wide = -(-units // parts) * (size // units)
    return slice(min(size, index * wide), min(size, (index + 1) * wide))


def _embedding(spec: DecoderSpec) -> Iterator[RowParameter]:
    yield RowParameter(
        name=WORDS, shape=(spec.vocabulary, spec.embedding_width), tp_axis=0, units=spec.vocabulary
    )
    if spec.positions:
        yield RowParameter(name="positions.weight", shape=(spec.positions, spec.hidden))
    if spec.embedding_width != spec.hidden:
        yield RowParameter(name="project.weight", shape=(spec.hidden, spec.embedding_width))


def _head(spec: DecoderSpec) -> Iterator[RowParameter]:
    if spec.last_norm:
        yield from _norm(spec, "norm")
    if spec.embedding_width != spec.hidden:
        yield RowParameter(name="project.weight", shape=(spec.embedding_width, spec.hidden))
    yield RowParameter(
        name=WORDS, shape=(spec.vocabulary, spec.embedding_width), tp_axis=0, units=spec.vocabulary
    )


def _norm(spec: DecoderSpec, name: str) -> Iterator[RowParameter]:
    yield RowParameter(name=f"{name}.weight", shape=(spec.hidden,), decays=False)
    if spec.norm == "layer":
        yield RowParameter(name=f"{name}.bias", shape=(spec.hidden,), decays=False)


def _attention(spec: DecoderSpec) -> Iterator[RowParameter]:
    for name, heads in (("query", spec.heads), ("key", spec.kv_heads), ("value", spec.kv_heads)):
        width = heads * spec.head_width
        shape = width, spec.hidden
        yield RowParameter(name=f"attention.{name}.weight", shape=shape, tp_axis=0, units=heads)
        if spec.input_bias:
            name = f"attention.{name}.bias"
            yield RowParameter(name=name, shape=(width,), tp_axis=0, units=heads, decays=False)
    shape = spec.hidden, spec.heads * spec.head_width
    name = "attention.output.weight"
    yield RowParameter(name=name, shape=shape, tp_axis=1, units=spec.heads)
    if spec.output_bias:
        yield RowParameter(name="attention.output_bias", shape=(spec.hidden,), decays=False)


def _ffn(spec: DecoderSpec, prefix: str, width: int) -> Iterator[RowParameter]:
    for name in ("gate", "up") if spec.gated else ("up",):
        name = f"{prefix}{name}"
        shape = width, spec.hidden
        yield RowParameter(name=f"{name}.weight", shape=shape, tp_axis=0, units=width)
        if spec.ffn_bias:
            name = f"{name}.bias"
            yield RowParameter(name=name, shape=(width,), tp_axis=0, units=width, decays=False)
    shape = spec.hidden, width
    yield RowParameter(name=f"{prefix}down.weight", shape=shape, tp_axis=1, units=width)
    if spec.ffn_bias:
        yield RowParameter(name=f"{prefix}down_bias", shape=(spec.hidden,), decays=False)


def _experts(spec: DecoderSpec) -> Iterator[RowParameter]:
    experts = spec.experts
    assert experts is not None  # the row is sparse
    count, width = experts.count, experts.width
    yield RowParameter(name="ffn.router.weight", shape=(count, spec.hidden))
    for name in ("gate", "up") if spec.gated else ("up",):
        yield RowParameter(
            name=f"ffn.experts.{name}",
            shape=(count, width, spec.hidden),
            tp_axis=1,
            units=width,
            ep_axis=0,
        )
    shape = count, spec.hidden, width
    yield RowParameter(name="ffn.experts.down", shape=shape, tp_axis=2, units=width, ep_axis=0)
    if experts.shared:
        yield from _ffn(spec, "ffn.shared.", experts.shared * width)
