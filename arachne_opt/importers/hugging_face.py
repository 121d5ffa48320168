"""Reads an architecture from a Hugging Face ``config.json``."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from arachne_opt.errors import InputError
from arachne_opt.importers.json_file import read_json_file
from arachne_opt.importers.node import Node
from arachne_opt.pipeline.architecture import Architecture, ExpertLayers
from arachne_opt.suggest import did_you_mean


def read_config(path: str | Path, *, sequence_length: int | None = None) -> Architecture:
    """The architecture of a ``config.json``, or of the folder that holds one.

    Args:
        path: the file or folder.
        sequence_length: tokens of a training sample; by default as many as the model has positions.

    Raises:
        InputError: no such file, a model type that we do not know, or a missing or wrong number.
    """
    file = Path(path) / "config.json" if Path(path).is_dir() else Path(path)
    config = read_json_file(file)
    kind = config.get("model_type")
    family = kind.text()
    if family not in _READERS:
        what = f"unknown model_type {family!r}{did_you_mean(family, _READERS)}"
        raise kind.error(what, f"one of {', '.join(sorted(_READERS))}")
    given = config.find("_name_or_path")
    name = (given.text() if given else file.parent.name or family).rsplit("/", 1)[-1]
    try:
        sizes = _READERS[family](_Numbers(config))
        if sequence_length is not None:
            sizes["sequence_length"] = sequence_length
        return Architecture(name=name, family=family, source=str(file.name), **sizes)
    except InputError as error:
        if error.where and error.where.startswith(str(file)):
            raise
        raise config.error(error.what, error.hint) from error


class _Numbers:
    """Whole numbers and switches of a configuration; every complaint names the line."""

    def __init__(self, config: Node) -> None:
        self._config = config

    def whole(self, key: str, default: int | None = None) -> int:
        """A positive whole number; ``default`` where it is missing or null."""
        found = self._config.find(key)
        if found is None and default is not None:
            return default
        return (found or self._config.get(key)).whole(1)

    def optional(self, key: str) -> int | None:
        """A positive whole number, or None where it is missing or null."""
        found = self._config.find(key)
        return None if found is None else found.whole(1)

    def count(self, key: str) -> int:
        """A whole number that may be 0 and may be missing."""
        found = self._config.find(key)
        return 0 if found is None else found.whole()

    def switch(self, key: str, default: bool) -> bool:
        """A boolean."""
        found = self._config.find(key)
        return default if found is None else found.flag()


def _opt(n: _Numbers) -> dict[str, Any]:
    hidden, positions = n.whole("hidden_size"), n.whole("max_position_embeddings")
    width = n.whole("word_embed_proj_dim", hidden)
    return {
        "layers": n.whole("num_hidden_layers"),
        "hidden": hidden,
        "heads": n.whole("num_attention_heads"),
        "kv_heads": n.whole("num_attention_heads"),
        "ffn": n.whole("ffn_dim"),
        "vocabulary": n.whole("vocab_size"),
        "sequence_length": positions,
        "positions": positions + 2,  # OPT keeps two positions before the first token
        "embedding_width": width if width != hidden else None,
        "tied": n.switch("tie_word_embeddings", True),
    }


def _gpt_neo(n: _Numbers) -> dict[str, Any]:
    hidden = n.whole("hidden_size")
    return {
        "layers": n.whole("num_layers"),
        "hidden": hidden,
        "heads": n.whole("num_heads"),
        "kv_heads": n.whole("num_heads"),
        "ffn": n.whole("intermediate_size", 4 * hidden),
        "vocabulary": n.whole("vocab_size"),
        "sequence_length": n.whole("max_position_embeddings"),
        "positions": n.whole("max_position_embeddings"),
        "tied": n.switch("tie_word_embeddings", True),
    }


def _gpt2(n: _Numbers) -> dict[str, Any]:
    hidden = n.whole("n_embd")
    return {
        "layers": n.whole("n_layer"),
        "hidden": hidden,
        "heads": n.whole("n_head"),
        "kv_heads": n.whole("n_head"),
        "ffn": n.whole("n_inner", 4 * hidden),
        "vocabulary": n.whole("vocab_size"),
        "sequence_length": n.whole("n_positions"),
        "positions": n.whole("n_positions"),
        "tied": n.switch("tie_word_embeddings", True),
    }


def _llama(n: _Numbers) -> dict[str, Any]:
    heads = n.whole("num_attention_heads")
    return {
        "layers": n.whole("num_hidden_layers"),
        "hidden": n.whole("hidden_size"),
        "heads": heads,
        "kv_heads": n.whole("num_key_value_heads", heads),
        "ffn": n.whole("intermediate_size"),
        "vocabulary": n.whole("vocab_size"),
        "sequence_length": n.whole("max_position_embeddings"),
        "gated": True,
        "biases": False,
        "head_width": n.optional("head_dim"),
        "tied": n.switch("tie_word_embeddings", False),
    }


def _mixtral(n: _Numbers) -> dict[str, Any]:
    experts = ExpertLayers(
        count=n.whole("num_local_experts"),
        top_k=n.whole("num_experts_per_tok"),
        width=n.whole("intermediate_size"),
    )
    return {**_llama(n), "experts": experts}


def _deepseek(n: _Numbers) -> dict[str, Any]:
    experts = ExpertLayers(
        count=n.whole("n_routed_experts"),
        top_k=n.whole("num_experts_per_tok"),
        width=n.whole("moe_intermediate_size"),
        shared=n.count("n_shared_experts"),
        dense_layers=n.count("first_k_dense_replace"),
    )
    return {**_llama(n), "experts": experts}


def _qwen_moe(n: _Numbers) -> dict[str, Any]:
    experts = ExpertLayers(
        count=n.whole("num_experts"),
        top_k=n.whole("num_experts_per_tok"),
        width=n.whole("moe_intermediate_size"),
    )
    return {**_llama(n), "experts": experts}


_READERS: dict[str, Callable[[_Numbers], dict[str, Any]]] = {
    "opt": _opt,
    "gpt_neo": _gpt_neo,
    "gpt2": _gpt2,
    "llama": _llama,
    "mistral": _llama,
    "mixtral": _mixtral,
    "deepseek": _deepseek,
    "qwen3_moe": _qwen_moe,
}
