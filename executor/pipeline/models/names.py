"""What the parameters of a row are called in Hugging Face checkpoints; knows no torch."""

from __future__ import annotations

import enum
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from arachne_opt.errors import InputError
from arachne_opt.executor.pipeline.models.parameters import WORDS, row_parameters
from arachne_opt.executor.pipeline.models.spec import DecoderSpec


class Form(enum.StrEnum):
    """How a stored tensor holds ours."""

    PLAIN = "plain"
    TRANSPOSED = "transposed"
    COLUMNS = "columns"  # queries, keys and values side by side, transposed (GPT-2)
    HEADS = "heads"  # queries, keys and values in turn, head by head (GPT-NeoX)


class Stored(NamedTuple):
    """One tensor of a checkpoint.

    Args:
        ours: the parameters that it holds; three where it is fused.
        expert: it is this one of our parameter's experts.
    """

    name: str
    ours: tuple[str, ...]
    form: Form = Form.PLAIN
    expert: int | None = None


class _Names(NamedTuple):
    """The names of a family.

    Args:
        prefix: of all but the head; checkpoints of bare models lack it.
        modules: stored module of each of ours; "{}" stands for the number of the layer.
        head: stored name of an untied head.
        turned: modules of ours that are stored transposed.
        fused: stored module and form of queries, keys and values together.
        experts: stored name of each expert's matrix, "{}" for layer and expert.
    """

    prefix: str
    modules: Mapping[str, str]
    head: str = "lm_head.weight"
    turned: frozenset[str] = frozenset()
    fused: tuple[str, Form] | None = None
    experts: Mapping[str, str] = {}


_LLAMA = {
    "words": "embed_tokens",
    "norm": "norm",
    "attention_norm": "layers.{}.input_layernorm",
    "attention.query": "layers.{}.self_attn.q_proj",
    "attention.key": "layers.{}.self_attn.k_proj",
    "attention.value": "layers.{}.self_attn.v_proj",
    "attention.output": "layers.{}.self_attn.o_proj",
    "ffn_norm": "layers.{}.post_attention_layernorm",
    "ffn.gate": "layers.{}.mlp.gate_proj",
    "ffn.up": "layers.{}.mlp.up_proj",
    "ffn.down": "layers.{}.mlp.down_proj",
}
_GPT2 = {
    "words": "wte",
    "positions": "wpe",
    "norm": "ln_f",
    "attention_norm": "h.{}.ln_1",
    "ffn_norm": "h.{}.ln_2",
    "ffn.up": "h.{}.mlp.c_fc",
    "ffn.down": "h.{}.mlp.c_proj",
}
_QKV = ("query", "key", "value")
_FAMILIES: dict[str, _Names] = {
    "llama": _Names("model.", _LLAMA),
    "mistral": _Names("model.", _LLAMA),
    "qwen2": _Names("model.", _LLAMA),
    "mixtral": _Names(
        "model.",
        {**_LLAMA, "ffn.router": "layers.{}.block_sparse_moe.gate"},
        experts={
            f"ffn.experts.{ours}": "layers.{}.block_sparse_moe.experts.{}." + theirs
            for ours, theirs in (("gate", "w1.weight"), ("down", "w2.weight"), ("up", "w3.weight"))
        },
    ),
    "opt": _Names(
        "model.decoder.",
        {
            "words": "embed_tokens",
            "positions": "embed_positions",
            "norm": "final_layer_norm",
            "attention_norm": "layers.{}.self_attn_layer_norm",
            **{f"attention.{p}": f"layers.{{}}.self_attn.{p[0]}_proj" for p in _QKV},
            "attention.output": "layers.{}.self_attn.out_proj",
            "ffn_norm": "layers.{}.final_layer_norm",
            "ffn.up": "layers.{}.fc1",
            "ffn.down": "layers.{}.fc2",
        },
    ),
    "gpt2": _Names(
        "transformer.",
        {**_GPT2, "attention.output": "h.{}.attn.c_proj"},
        turned=frozenset({"attention.output", "ffn.up", "ffn.down"}),
        fused=("h.{}.attn.c_attn", Form.COLUMNS),
    ),
    "gpt_neo": _Names(
        "transformer.",
        {
            **_GPT2,
            **{f"attention.{p}": f"h.{{}}.attn.attention.{p[0]}_proj" for p in _QKV},
            "attention.output": "h.{}.attn.attention.out_proj",
        },
    ),
    "gpt_neox": _Names(
        "gpt_neox.",
        {
            "words": "embed_in",
            "norm": "final_layer_norm",
            "attention_norm": "layers.{}.input_layernorm",
            "attention.output": "layers.{}.attention.dense",
            "ffn_norm": "layers.{}.post_attention_layernorm",
            "ffn.up": "layers.{}.mlp.dense_h_to_4h",
            "ffn.down": "layers.{}.mlp.dense_4h_to_h",
        },
        head="embed_out.weight",
        fused=("layers.{}.attention.query_key_value", Form.HEADS),
    ),
}


def stored_tensors(spec: DecoderSpec, row: int) -> tuple[Stored, ...]:
    """The tensors of a checkpoint that hold a row; tied copies name the same tensor.

    Raises:
        InputError: a family without a known form of checkpoints.
    """
    if spec.family not in _FAMILIES:
        what = f"checkpoints of the family {spec.family!r} are not known"
        raise InputError(what, where=spec.name, hint=f"one of {', '.join(_FAMILIES)}")
    return tuple(_tensors(_FAMILIES[spec.family], spec, row))


def prefix_of(spec: DecoderSpec) -> str:
    """What the names of a bare model lack."""
    return _FAMILIES[spec.family].prefix


def _tensors(names: _Names, spec: DecoderSpec, row: int) -> Iterator[Stored]:
    for parameter in row_parameters(spec, row):
        name = parameter.name
        if row == spec.head_row and name == WORDS and not spec.tied:
            yield Stored(names.head, (name,))
        elif name in names.experts:
            for expert in range(parameter.shape[0]):
                stored = names.prefix + names.experts[name].format(row - 1, expert)
                yield Stored(stored, (name,), expert=expert)
        elif name.startswith("project."):
            end = "in" if row == 0 else "out"
            yield Stored(f"{names.prefix}project_{end}.weight", (name,))
        elif names.fused is None or name.split(".")[1] not in _QKV:
            yield _plain(names, name, row)
        elif name.startswith("attention.query."):
            stored, form = names.fused
            kind = name.rpartition(".")[2]
            ours = tuple(f"attention.{part}.{kind}" for part in _QKV)
            yield Stored(f"{names.prefix}{stored.format(row - 1)}.{kind}", ours, form)


def _plain(names: _Names, name: str, row: int) -> Stored:
    if name.endswith("_bias"):  # stands beside the module, behind a seam
        module, kind = name.removesuffix("_bias"), "bias"
    else:
        module, _, kind = name.rpartition(".")
    stored = f"{names.prefix}{names.modules[module].format(row - 1)}.{kind}"
    turned = module in names.turned and kind == "weight"
    return Stored(stored, (name,), Form.TRANSPOSED if turned else Form.PLAIN)
