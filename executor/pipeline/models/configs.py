"""Specs of published architectures and of Hugging Face's ``config.json``; knows no torch."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from arachne_opt.errors import InputError
from arachne_opt.executor.job_json import read_json
from arachne_opt.executor.pipeline.models.spec import DecoderSpec, Rotary
from arachne_opt.fields import Fields
from arachne_opt.pipeline.architecture import Architecture, ExpertLayers
from arachne_opt.suggest import did_you_mean

CONFIG_FILE = "config.json"

_ACTIVATIONS = {
    "silu": "silu",
    "swish": "silu",
    "relu": "relu",
    "gelu": "gelu",
    "gelu_new": "gelu_tanh",
    "gelu_fast": "gelu_tanh",
    "gelu_pytorch_tanh": "gelu_tanh",
}

# What the members of a family have in common.
_GPT: dict[str, Any] = {
    "norm": "layer",
    "gated": False,
    "input_bias": True,
    "output_bias": True,
    "ffn_bias": True,
}
_COMMON: dict[str, dict[str, Any]] = {
    "llama": {},
    "mistral": {},
    "mixtral": {},
    "deepseek": {"share_weights": False},
    "qwen2": {"input_bias": True},
    "opt": {**_GPT, "activation": "relu", "first_position": 2},
    "gpt2": {**_GPT, "activation": "gelu_tanh"},
    "gpt_neo": {
        **_GPT,
        "activation": "gelu_tanh",
        "input_bias": False,
        "attention_scale": 1.0,
    },
    "gpt_neox": {**_GPT, "activation": "gelu"},
}


def spec_of_architecture(model: Architecture) -> DecoderSpec:
    """What a published architecture computes.

    Raises:
        InputError: a family that the runtime does not know.
    """
    common = _COMMON.get(model.family)
    if common is None:
        what = f"the runtime cannot run models of the family {model.family!r}"
        raise InputError(what, where=f"model {model.name}", hint=f"one of {', '.join(_COMMON)}")
    # OPT-350M alone among the published sizes has its norms after the parts.
    after = model.family == "opt" and model.embedding_width not in (None, model.hidden)
    windows: tuple[int, ...] = ()
    if model.family == "gpt_neo":
        windows = tuple(256 * (layer % 2) for layer in range(model.layers))
    return DecoderSpec(
        name=model.name,
        family=model.family,
        layers=model.layers,
        hidden=model.hidden,
        heads=model.heads,
        kv_heads=model.kv_heads,
        head_width=model.head_width or model.hidden // model.heads,
        ffn=model.ffn,
        vocabulary=model.vocabulary,
        embedding_width=model.embedding_width or model.hidden,
        positions=model.positions,
        norm_after=after,
        last_norm=not after,
        windows=windows,
        tied=model.tied,
        experts=model.experts,
        **common,
    )


def spec_of_config(path: str | Path) -> DecoderSpec:
    """The model of a ``config.json``, or of the folder that holds one.

    Raises:
        InputError: no such file, a model type or a choice that the runtime does not know, or a
            missing or wrong value.
    """
    file = Path(path) / CONFIG_FILE if Path(path).is_dir() else Path(path)
    value = read_json(file)
    if not isinstance(value, dict):
        raise InputError("the file holds no JSON object", where=str(file))
    given = {key: entry for key, entry in value.items() if entry is not None}
    fields = Fields(given, str(file), tuple(given))
    kind = fields.text("model_type")
    if kind not in _READERS:
        what = f"unknown model_type {kind!r}{did_you_mean(kind, _READERS)}"
        raise InputError(what, where=str(file), hint=f"one of {', '.join(sorted(_READERS))}")
    name = fields.text("_name_or_path", "") or file.parent.name or kind
    common = {"name": name.rsplit("/", 1)[-1], "family": kind, **_COMMON[kind]}
    try:
        return DecoderSpec(**{**common, **_READERS[kind](fields)})
    except InputError as error:
        raise InputError(error.what, where=str(file), hint=error.hint) from error


def _sizes(n: Fields, layers: str, hidden: str, heads: str) -> dict[str, Any]:
    width, count = n.integer(hidden, minimum=1), n.integer(heads, minimum=1)
    return {
        "layers": n.integer(layers, minimum=1),
        "hidden": width,
        "heads": count,
        "kv_heads": count,
        "head_width": width // count,
        "vocabulary": n.integer("vocab_size", minimum=1),
        "embedding_width": width,
    }


def _llama(n: Fields) -> dict[str, Any]:
    sizes = _sizes(n, "num_hidden_layers", "hidden_size", "num_attention_heads")
    biased = _flag(n, "attention_bias", False)
    return {
        **sizes,
        "kv_heads": n.integer("num_key_value_heads", sizes["heads"], minimum=1),
        "head_width": n.integer("head_dim", sizes["head_width"], minimum=1),
        "ffn": n.integer("intermediate_size", minimum=1),
        "norm_epsilon": n.number("rms_norm_eps", 1e-6),
        "activation": _activation(n, "hidden_act", "silu"),
        "rotary": _rotary(n, 10_000.0),
        "input_bias": biased,
        "output_bias": biased,
        "ffn_bias": _flag(n, "mlp_bias", False),
        "tied": _flag(n, "tie_word_embeddings", False),
    }


def _mistral(n: Fields) -> dict[str, Any]:
    found = _llama(n)
    window = n.integer("sliding_window", 0)
    return {**found, "windows": (window,) * found["layers"] if window else ()}


def _mixtral(n: Fields) -> dict[str, Any]:
    experts = ExpertLayers(
        count=n.integer("num_local_experts", 8, minimum=1),
        top_k=n.integer("num_experts_per_tok", 2, minimum=1),
        width=n.integer("intermediate_size", minimum=1),
    )
    base = 1_000_000.0
    return {**_mistral(n), "norm_epsilon": n.number("rms_norm_eps", 1e-5), "experts": experts} | {
        "rotary": _rotary(n, base)
    }


def _qwen2(n: Fields) -> dict[str, Any]:
    found = _llama(n) | {"input_bias": True, "output_bias": False, "ffn_bias": False}
    if not _flag(n, "use_sliding_window", False):
        return found
    kinds = n.items("layer_types") if "layer_types" in n else ()
    first = n.integer("max_window_layers", found["layers"])
    window = n.integer("sliding_window", 4096)
    cut = [kinds[i] == "sliding_attention" if kinds else i >= first for i in range(found["layers"])]
    return {**found, "windows": tuple(window * c for c in cut)}


def _opt(n: Fields) -> dict[str, Any]:
    if not _flag(n, "layer_norm_elementwise_affine", True):
        raise InputError("norms without weights are not known to the runtime", where=n.where)
    sizes = _sizes(n, "num_hidden_layers", "hidden_size", "num_attention_heads")
    before, biased = _flag(n, "do_layer_norm_before", True), _flag(n, "enable_bias", True)
    return {
        **sizes,
        "ffn": n.integer("ffn_dim", minimum=1),
        "positions": n.integer("max_position_embeddings", minimum=1) + 2,
        "embedding_width": n.integer("word_embed_proj_dim", sizes["hidden"], minimum=1),
        "activation": _activation(n, "activation_function", "relu"),
        "input_bias": biased,
        "output_bias": biased,
        "ffn_bias": biased,
        "norm_after": not before,
        "last_norm": before and not _flag(n, "_remove_final_layer_norm", False),
        "tied": _flag(n, "tie_word_embeddings", True),
    }


def _gpt2(n: Fields) -> dict[str, Any]:
    if _flag(n, "scale_attn_by_inverse_layer_idx", False) or not _flag(
        n, "scale_attn_weights", True
    ):
        raise InputError("this scale of attention is not known to the runtime", where=n.where)
    sizes = _sizes(n, "n_layer", "n_embd", "n_head")
    return {
        **sizes,
        "ffn": n.integer("n_inner", 4 * sizes["hidden"], minimum=1),
        "positions": n.integer("n_positions", minimum=1),
        "norm_epsilon": n.number("layer_norm_epsilon", 1e-5),
        "activation": _activation(n, "activation_function", "gelu_new"),
        "tied": _flag(n, "tie_word_embeddings", True),
    }


def _gpt_neo(n: Fields) -> dict[str, Any]:
    sizes = _sizes(n, "num_layers", "hidden_size", "num_heads")
    kinds, window = n.items("attention_layers"), n.integer("window_size", 256)
    return {
        **sizes,
        "ffn": n.integer("intermediate_size", 4 * sizes["hidden"], minimum=1),
        "positions": n.integer("max_position_embeddings", minimum=1),
        "norm_epsilon": n.number("layer_norm_epsilon", 1e-5),
        "activation": _activation(n, "activation_function", "gelu_new"),
        "windows": tuple(window if kind == "local" else 0 for kind in kinds),
        "tied": _flag(n, "tie_word_embeddings", True),
    }


def _gpt_neox(n: Fields) -> dict[str, Any]:
    biased = _flag(n, "attention_bias", True)
    return {
        **_sizes(n, "num_hidden_layers", "hidden_size", "num_attention_heads"),
        "ffn": n.integer("intermediate_size", minimum=1),
        "norm_epsilon": n.number("layer_norm_eps", 1e-5),
        "activation": _activation(n, "hidden_act", "gelu"),
        "rotary": _rotary(n, n.number("rotary_emb_base", 10_000.0), n.number("rotary_pct", 0.25)),
        "parallel": _flag(n, "use_parallel_residual", True),
        "input_bias": biased,
        "output_bias": biased,
        "tied": _flag(n, "tie_word_embeddings", False),
    }


def _rotary(n: Fields, base: float, share: float = 1.0) -> Rotary:
    """Rotary positions in the older form (``rope_scaling``) or the newer (``rope_parameters``)."""
    key = "rope_parameters" if "rope_parameters" in n else "rope_scaling"
    table = n.raw(key) if key in n else {}
    found = {} if not isinstance(table, dict) else {k: v for k, v in table.items() if v is not None}
    f = Fields(found, n.place(key), tuple(found))
    rotary = Rotary(
        base=f.number("rope_theta", n.number("rope_theta", base)),
        share=f.number("partial_rotary_factor", n.number("partial_rotary_factor", share)),
        kind=f.text("rope_type", f.text("type", "default")),
        factor=f.number("factor", 1.0),
    )
    if rotary.kind != "llama3":
        return rotary
    limit = n.integer("max_position_embeddings", 8192, minimum=1)
    return replace(
        rotary,
        low=f.number("low_freq_factor", 1.0),
        high=f.number("high_freq_factor", 4.0),
        original=f.integer("original_max_position_embeddings", limit, minimum=1),
    )


def _activation(n: Fields, key: str, default: str) -> str:
    name = n.text(key, default)
    if name not in _ACTIVATIONS:
        what = f"the activation {name!r} is not known to the runtime"
        raise InputError(what, where=n.place(key), hint=f"one of {', '.join(_ACTIVATIONS)}")
    return _ACTIVATIONS[name]


def _flag(n: Fields, key: str, default: bool) -> bool:
    value = n.raw(key) if key in n else default
    if not isinstance(value, bool):
        raise InputError(f"must be true or false, not {value!r}", where=n.place(key))
    return value


_READERS: dict[str, Callable[[Fields], dict[str, Any]]] = {
    "llama": _llama,
    "mistral": _mistral,
    "mixtral": _mixtral,
    "qwen2": _qwen2,
    "opt": _opt,
    "gpt2": _gpt2,
    "gpt_neo": _gpt_neo,
    "gpt_neox": _gpt_neox,
}
