"""What a decoder computes: sizes, and the choices in which families differ; knows no torch."""

from __future__ import annotations

from dataclasses import dataclass, field

from arachne_opt.errors import InputError
from arachne_opt.pipeline.architecture import ExpertLayers

NORMS = ("rms", "layer")
ACTIVATIONS = ("silu", "gelu", "gelu_tanh", "relu")
ROPE_KINDS = ("default", "linear", "llama3")


@dataclass(frozen=True, slots=True, kw_only=True)
class Rotary:
    """How positions turn queries and keys.

    Args:
        base: of the frequencies.
        share: leading part of a head that is turned.
        kind: how frequencies are stretched for contexts longer than those of the pre-training.
        factor: of the stretch.
        low, high: bounds of the smooth part (llama3), in turns per ``original`` positions.
    """

    base: float = 10_000.0
    share: float = 1.0
    kind: str = "default"
    factor: float = 1.0
    low: float = 1.0
    high: float = 4.0
    original: int = 8192

    def __post_init__(self) -> None:
        if self.kind not in ROPE_KINDS:
            what = f"rotary positions of the kind {self.kind!r} are not known"
            raise InputError(what, hint=f"one of {', '.join(ROPE_KINDS)}")


@dataclass(frozen=True, slots=True, kw_only=True)
class DecoderSpec:
    """A decoder-only transformer, row by row: row 0 embeds, a row per layer, the last is the head.

    Args:
        family: names the form of its checkpoints.
        kv_heads: heads of keys and values, each shared by ``heads / kv_heads`` queries.
        ffn: inner width of the dense feed-forward part.
        positions: learned position embeddings; 0 with rotary ones.
        first_position: number of the first token's position embedding.
        embedding_width: width of word embeddings.
        gated: three matrices (gate, up, down) instead of two (up, down).
        norm_after: norms follow the parts of a block instead of preceding them.
        last_norm: the head begins with a norm.
        parallel: attention and feed-forward part read the same input.
        input_bias, output_bias, ffn_bias: of queries, keys and values; of attention's output; of
            the feed-forward part.
        attention_scale: of scores; None for the root of a head's width.
        windows: of each layer, how many tokens back it looks; 0 for all. Empty for all layers all.
        tied: head and embedding share their weights.
        share_weights: a token's shares of its experts are scaled to add up to 1.
    """

    name: str
    family: str
    layers: int
    hidden: int
    heads: int
    kv_heads: int
    head_width: int
    ffn: int
    vocabulary: int
    embedding_width: int
    positions: int = 0
    first_position: int = 0
    rotary: Rotary = field(default_factory=Rotary)
    norm: str = "rms"
    norm_epsilon: float = 1e-5
    activation: str = "silu"
    gated: bool = True
    norm_after: bool = False
    last_norm: bool = True
    parallel: bool = False
    input_bias: bool = False
    output_bias: bool = False
    ffn_bias: bool = False
    attention_scale: float | None = None
    windows: tuple[int, ...] = ()
    tied: bool = False
    experts: ExpertLayers | None = None
    share_weights: bool = True

    def __post_init__(self) -> None:
        where = f"model {self.name}"
        sizes = (self.layers, self.hidden, self.heads, self.kv_heads, self.head_width, self.ffn)
        if min(*sizes, self.vocabulary, self.embedding_width) < 1:
            raise InputError("layers, widths and heads must be positive", where=where)
        if self.heads % self.kv_heads:
            what = f"{self.heads} heads cannot share {self.kv_heads} key-value heads"
            raise InputError(what, where=where)
        if self.windows and len(self.windows) != self.layers:
            what = f"{len(self.windows)} attention windows for {self.layers} layers"
            raise InputError(what, where=where)
        for word, known in ((self.norm, NORMS), (self.activation, ACTIVATIONS)):
            if word not in known:
                what = f"the runtime does not know {word!r}"
                raise InputError(what, where=where, hint=f"one of {', '.join(known)}")

    @property
    def row_count(self) -> int:
        """Embedding, layers and head."""
        return self.layers + 2

    @property
    def head_row(self) -> int:
        """Number of the last row."""
        return self.layers + 1

    def is_sparse(self, row: int) -> bool:
        """Whether a row is a layer with routed experts."""
        dense = self.experts.dense_layers if self.experts else self.layers
        return dense < row <= self.layers

    def window(self, row: int) -> int:
        """How many tokens back a layer looks, itself included; 0 for all."""
        return self.windows[row - 1] if self.windows else 0

    def why_illegal(self, tp: int) -> str | None:
        """Why a tensor-parallel degree cannot be used; None for a legal one."""
        if self.heads % tp:
            return f"tp {tp} does not divide the {self.heads} heads of {self.name}"
        if self.kv_heads % tp and tp % self.kv_heads:
            return f"tp {tp} and the {self.kv_heads} key-value heads of {self.name} do not divide"
        widths = [] if self.experts and self.experts.dense_layers == 0 else [self.ffn]
        if self.experts is not None:
            widths += [self.experts.width]
        if any(width % tp for width in widths):
            return f"tp {tp} does not divide the feed-forward width of {self.name}"
        return None
