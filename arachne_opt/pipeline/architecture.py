"""Decoder-only transformers as public numbers, and the rows that follow from them."""

from __future__ import annotations

from dataclasses import dataclass

from arachne_opt.errors import InputError
from arachne_opt.pipeline.rows import Experts, RowModel, RowSizes


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpertLayers:
    """The mixture of experts of a model.

    Args:
        count: routed experts of a layer.
        top_k: experts that a token visits.
        width: inner width of one expert.
        shared: experts of that width that every token visits.
        dense_layers: leading layers with one dense feed-forward part instead.
    """

    count: int
    top_k: int
    width: int
    shared: int = 0
    dense_layers: int = 0

    def __post_init__(self) -> None:
        if not 1 <= self.top_k <= self.count:
            raise InputError(f"a token visits {self.top_k} of {self.count} experts")
        if self.width < 1 or self.shared < 0 or self.dense_layers < 0:
            raise InputError(f"widths and counts of experts must be positive, not {self}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Architecture:
    """A decoder-only transformer.

    Args:
        kv_heads: heads of keys and values; fewer than ``heads`` under grouped-query attention.
        ffn: inner width of the dense feed-forward part.
        gated: three matrices (gate, up, down) instead of two.
        biases: linear layers and norms have biases.
        positions: learned position embeddings.
        embedding_width: width of word embeddings where it differs from ``hidden``.
        tied: head and embedding share weights; a pipeline keeps a copy at either end.
        source: where the numbers come from.
    """

    name: str
    family: str
    layers: int
    hidden: int
    heads: int
    kv_heads: int
    ffn: int
    vocabulary: int
    sequence_length: int
    gated: bool = False
    biases: bool = True
    positions: int = 0
    embedding_width: int | None = None
    head_width: int | None = None
    tied: bool = True
    experts: ExpertLayers | None = None
    source: str = ""

    def __post_init__(self) -> None:
        where = f"model {self.name}"
        numbers = (self.layers, self.hidden, self.heads, self.kv_heads, self.ffn, self.vocabulary)
        if min(*numbers, self.sequence_length) < 1:
            raise InputError("layers, widths and heads must be positive", where=where)
        if self.heads % self.kv_heads:
            what = f"{self.heads} heads cannot share {self.kv_heads} key-value heads"
            raise InputError(what, where=where)
        if self.head_width is None and self.hidden % self.heads:
            raise InputError(f"{self.heads} heads do not divide width {self.hidden}", where=where)

    @property
    def matrices(self) -> int:
        """Matrices of a feed-forward part."""
        return 3 if self.gated else 2

    @property
    def query_width(self) -> int:
        """Width of all queries."""
        return self.heads * (self.head_width or self.hidden // self.heads)

    @property
    def key_width(self) -> int:
        """Width of all keys, and of all values."""
        return self.query_width * self.kv_heads // self.heads

    def is_sparse(self, layer: int) -> bool:
        """Whether a layer (from 0) has routed experts."""
        return self.experts is not None and layer >= self.experts.dense_layers

    def shared_width(self, layer: int) -> int:
        """Inner width of the feed-forward part that every token takes."""
        if self.experts is not None and self.is_sparse(layer):
            return self.experts.shared * self.experts.width
        return self.ffn

    def attention_parameters(self) -> int:
        """Projections of queries, keys, values and output."""
        weights = 2 * self.hidden * (self.query_width + self.key_width)
        biases = self.query_width + 2 * self.key_width + self.hidden
        return weights + (biases if self.biases else 0)

    def ffn_parameters(self, width: int) -> int:
        """A feed-forward part of some inner width."""
        biases = width + self.hidden if self.biases and width else 0
        return self.matrices * self.hidden * width + biases

    def norm_parameters(self) -> int:
        """One norm."""
        return self.hidden * (2 if self.biases else 1)

    def embedding_parameters(self) -> int:
        """Word and position embeddings, with the projection between two widths."""
        width = self.embedding_width or self.hidden
        words = self.vocabulary * width + self.positions * self.hidden
        return words + (width * self.hidden if width != self.hidden else 0)

    def head_parameters(self) -> int:
        """Last norm and output matrix."""
        width = self.embedding_width or self.hidden
        projection = width * self.hidden if width != self.hidden else 0
        return self.norm_parameters() + self.vocabulary * width + projection

    def block_parameters(self, layer: int) -> tuple[int, int]:
        """Parameters of a layer outside its routed experts, and those of all experts."""
        dense = self.attention_parameters() + 2 * self.norm_parameters()
        dense += self.ffn_parameters(self.shared_width(layer))
        if self.experts is None or not self.is_sparse(layer):
            return dense, 0
        router = self.hidden * self.experts.count
        return dense + router, self.experts.count * self.ffn_parameters(self.experts.width)

    def total_parameters(self) -> int:
        """All parameters, tied ones once."""
        blocks = sum(sum(self.block_parameters(i)) for i in range(self.layers))
        head = self.norm_parameters() if self.tied else self.head_parameters()
        return self.embedding_parameters() + blocks + head


def rows_of(
    model: Architecture,
    *,
    dtype_bytes: int = 2,
    gradient_bytes: int | None = None,
    degrees: tuple[int, ...] = (1, 2, 4, 8),
    imbalance: float = 1.0,
    keeps_scores: bool = False,
) -> RowModel:
    """The rows of a model: embedding, one per layer, head.

    Args:
        model: the architecture.
        dtype_bytes: bytes of a parameter in compute and of an activation value.
        gradient_bytes: bytes of a gradient in the exchange; by default as wide.
        degrees: tensor-parallel degrees to describe.
        imbalance: work of the fullest device over the mean when experts are spread.
        keeps_scores: attention scores are kept for the backward (no fused attention kernel).
    """
    wide = gradient_bytes or dtype_bytes
    blocks = [model.block_parameters(i) for i in range(model.layers)]
    dense = (model.embedding_parameters(), *(d for d, _ in blocks), model.head_parameters())
    of_experts = (0, *(e for _, e in blocks), 0)
    tokens = model.sequence_length
    output = tokens * model.hidden * dtype_bytes
    head_output = tokens * model.vocabulary * dtype_bytes
    sizes = tuple(
        RowSizes(
            tp=tp,
            parameters=tuple(-(-n // tp) for n in dense),
            kept=_kept(model, tp, keeps_scores),
            expert_parameters=tuple(-(-n // tp) for n in of_experts) if model.experts else (),
        )
        for tp in degrees
        if model.heads % tp == 0
    )
    return RowModel(
        name=model.name,
        sequence_length=tokens,
        dtype_bytes=dtype_bytes,
        parameter_bytes=tuple(n * wide for n in dense),
        output_bytes=(*[output] * (model.layers + 1), head_output),
        sizes=sizes,
        experts=_experts(model, imbalance, output, tuple(n * wide for n in of_experts)),
    )


def _experts(
    model: Architecture, imbalance: float, output_bytes: int, parameter_bytes: tuple[int, ...]
) -> Experts | None:
    if model.experts is None:
        return None
    exchanged = output_bytes * model.experts.top_k
    return Experts(
        count=model.experts.count,
        top_k=model.experts.top_k,
        imbalance=imbalance,
        parameter_bytes=parameter_bytes,
        exchange_bytes=tuple(exchanged if n else 0 for n in parameter_bytes),
    )


def _kept(model: Architecture, tp: int, keeps_scores: bool) -> tuple[int, ...]:
    """Activation values kept per sample and device, counted from the operations.

    Inputs of norms and linear layers are whole on every device of the group; projections, their
    products and the inner feed-forward values are split by tp (Korthikanti et al., Reducing
    Activation Recomputation in Large Transformer Models, 2022, section 4).
    """
    tokens, hidden = model.sequence_length, model.hidden
    rows = [tokens * hidden]
    for layer in range(model.layers):
        width = model.shared_width(layer)
        if model.experts is not None and model.is_sparse(layer):
            width += model.experts.top_k * model.experts.width
        split = 2 * model.query_width + 2 * model.key_width + model.matrices * width
        scores = 2 * model.heads * tokens if keeps_scores else 0
        rows.append(tokens * (4 * hidden + -(-(split + scores) // tp)))
    rows.append(tokens * (2 * hidden + -(-2 * model.vocabulary // tp)))
    return tuple(rows)
