"""A Hugging Face ``config.json`` for a spec that did not come from one; knows no torch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from arachne_opt.errors import InputError
from arachne_opt.executor.pipeline.models.spec import DecoderSpec

_CLASSES = {
    "llama": "LlamaForCausalLM",
    "mistral": "MistralForCausalLM",
    "mixtral": "MixtralForCausalLM",
    "qwen2": "Qwen2ForCausalLM",
    "opt": "OPTForCausalLM",
    "gpt2": "GPT2LMHeadModel",
    "gpt_neo": "GPTNeoForCausalLM",
    "gpt_neox": "GPTNeoXForCausalLM",
}
_ACTIVATIONS = {"silu": "silu", "gelu": "gelu", "gelu_tanh": "gelu_new", "relu": "relu"}


def config_of_spec(spec: DecoderSpec, *, sequence_length: int) -> dict[str, Any]:
    """What ``config.json`` says of a model.

    Args:
        spec: the model.
        sequence_length: tokens of a sample, for families that do not count positions.

    Raises:
        InputError: a family without a known form of checkpoints.
    """
    if spec.family not in _CLASSES:
        what = f"checkpoints of the family {spec.family!r} are not known"
        raise InputError(what, where=spec.name, hint=f"one of {', '.join(_CLASSES)}")
    return {
        "architectures": [_CLASSES[spec.family]],
        "model_type": spec.family,
        "vocab_size": spec.vocabulary,
        "tie_word_embeddings": spec.tied,
        **_WRITERS.get(spec.family, _llama)(spec, sequence_length),
    }


def _llama(spec: DecoderSpec, sequence_length: int) -> dict[str, Any]:
    value = {
        **_sizes(spec, sequence_length),
        "num_key_value_heads": spec.kv_heads,
        "head_dim": spec.head_width,
        "intermediate_size": spec.experts.width if spec.experts else spec.ffn,
        "rms_norm_eps": spec.norm_epsilon,
        "hidden_act": _ACTIVATIONS[spec.activation],
        "rope_parameters": _rotary(spec),
    }
    if spec.family == "llama":
        value |= {"attention_bias": spec.output_bias, "mlp_bias": spec.ffn_bias}
    if spec.family in ("mistral", "mixtral"):
        value["sliding_window"] = spec.windows[0] if spec.windows else None
    if spec.family == "qwen2":
        kinds = {False: "full_attention", True: "sliding_attention"}
        value |= {
            "use_sliding_window": bool(spec.windows),
            "sliding_window": max(spec.windows, default=0) or None,
            "layer_types": [kinds[spec.window(r) > 0] for r in range(1, spec.layers + 1)],
        }
    if spec.experts is not None:
        value |= {
            "num_local_experts": spec.experts.count,
            "num_experts_per_tok": spec.experts.top_k,
        }
    return value


def _opt(spec: DecoderSpec, _: int) -> dict[str, Any]:
    return {
        **_sizes(spec, spec.positions - spec.first_position),
        "ffn_dim": spec.ffn,
        "word_embed_proj_dim": spec.embedding_width,
        "activation_function": _ACTIVATIONS[spec.activation],
        "enable_bias": spec.ffn_bias,
        "do_layer_norm_before": not spec.norm_after,
        "_remove_final_layer_norm": not spec.norm_after and not spec.last_norm,
    }


def _gpt2(spec: DecoderSpec, _: int) -> dict[str, Any]:
    return {
        "n_layer": spec.layers,
        "n_embd": spec.hidden,
        "n_head": spec.heads,
        "n_inner": spec.ffn,
        "n_positions": spec.positions,
        "layer_norm_epsilon": spec.norm_epsilon,
        "activation_function": _ACTIVATIONS[spec.activation],
    }


def _gpt_neo(spec: DecoderSpec, _: int) -> dict[str, Any]:
    kinds = ["local" if window else "global" for window in spec.windows or (0,) * spec.layers]
    return {
        "num_layers": spec.layers,
        "hidden_size": spec.hidden,
        "num_heads": spec.heads,
        "intermediate_size": spec.ffn,
        "max_position_embeddings": spec.positions,
        "layer_norm_epsilon": spec.norm_epsilon,
        "activation_function": _ACTIVATIONS[spec.activation],
        "window_size": max(spec.windows, default=0) or 256,
        "attention_layers": kinds,
        "attention_types": [[[kind], 1] for kind in kinds],
    }


def _gpt_neox(spec: DecoderSpec, sequence_length: int) -> dict[str, Any]:
    return {
        **_sizes(spec, sequence_length),
        "intermediate_size": spec.ffn,
        "layer_norm_eps": spec.norm_epsilon,
        "hidden_act": _ACTIVATIONS[spec.activation],
        "use_parallel_residual": spec.parallel,
        "attention_bias": spec.output_bias,
        "rope_parameters": _rotary(spec),
    }


def _sizes(spec: DecoderSpec, positions: int) -> dict[str, Any]:
    return {
        "hidden_size": spec.hidden,
        "num_hidden_layers": spec.layers,
        "num_attention_heads": spec.heads,
        "max_position_embeddings": positions,
    }


def _rotary(spec: DecoderSpec) -> dict[str, Any]:
    rotary = spec.rotary
    value: dict[str, Any] = {
        "rope_type": rotary.kind,
        "rope_theta": rotary.base,
        "partial_rotary_factor": rotary.share,
    }
    if rotary.kind != "default":
        value["factor"] = rotary.factor
    if rotary.kind == "llama3":
        value |= {
            "low_freq_factor": rotary.low,
            "high_freq_factor": rotary.high,
            "original_max_position_embeddings": rotary.original,
        }
    return value


_WRITERS: dict[str, Callable[[DecoderSpec, int], dict[str, Any]]] = {
    "opt": _opt,
    "gpt2": _gpt2,
    "gpt_neo": _gpt_neo,
    "gpt_neox": _gpt_neox,
}
