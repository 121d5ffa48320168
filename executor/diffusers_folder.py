"""Sizes of a model from the configuration files of a folder in diffusers' layout; no torch."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from arachne_opt.errors import InputError
from arachne_opt.executor.model_config import ModelConfig

_TILE: dict[str, Any] = {"tile": 256, "tile_stride": 192}


def folder_config(folder: Path) -> ModelConfig:
    """The sizes of the model in a folder.

    Raises:
        InputError: files or keys are missing, or the runtime has no adapter for its classes.
    """
    dit = _read_config(folder / "transformer" / "config.json")
    vae = _read_config(folder / "vae" / "config.json")
    kind = str(dit.get("_class_name", "WanTransformer3DModel"))
    if kind not in _READERS:
        what = f"the runtime cannot run a {kind}"
        raise InputError(what, where=str(folder), hint=f"one of {', '.join(_READERS)}")
    try:
        return _READERS[kind](dit, vae)
    except KeyError as error:
        raise InputError(f"the configuration lacks {error}", where=str(folder)) from error
    except InputError as error:
        raise InputError(error.what, where=str(folder), hint=error.hint) from error


def _wan(dit: Mapping[str, Any], vae: Mapping[str, Any]) -> ModelConfig:
    image = dit.get("image_dim") or 0
    return ModelConfig(
        family="wan",
        heads=dit["num_attention_heads"],
        head_dim=dit["attention_head_dim"],
        layers=dit["num_layers"],
        ffn_dim=dit["ffn_dim"],
        vae_dim=vae["base_dim"],
        vae_multipliers=tuple(vae["dim_mult"]),
        vae_blocks=vae["num_res_blocks"],
        latent_channels=vae["z_dim"],
        text_dim=dit["text_dim"],
        text_length=512,
        patch=tuple(dit["patch_size"]),
        temporal_factor=vae.get("scale_factor_temporal", 4),
        spatial_factor=vae.get("scale_factor_spatial", 8),
        from_image=dit["in_channels"] > dit["out_channels"],
        image_tokens=257 if image else 0,
        image_width=image,
        **_TILE,
    )


def _cogvideox(dit: Mapping[str, Any], vae: Mapping[str, Any]) -> ModelConfig:
    for key, release in (("patch_size_t", "1.5"), ("ofs_embed_dim", "1.5 from images")):
        if dit.get(key):
            raise InputError(f"CogVideoX {release} has {key}, which the adapter does not know")
    if dit.get("use_learned_positional_embeddings") or dit["in_channels"] > dit["out_channels"]:
        raise InputError("CogVideoX from images is not known to the adapter")
    return ModelConfig(
        family="cogvideox",
        heads=dit["num_attention_heads"],
        head_dim=dit["attention_head_dim"],
        layers=dit["num_layers"],
        ffn_dim=4 * dit["num_attention_heads"] * dit["attention_head_dim"],
        latent_channels=vae["latent_channels"],
        text_dim=dit["text_embed_dim"],
        text_length=dit["max_text_seq_length"],
        patch=(1, dit["patch_size"], dit["patch_size"]),
        joint_text=True,
        rotary=dit["use_rotary_positional_embeddings"],
        **_kl_vae(vae, int(vae["temporal_compression_ratio"])),
    )


def _hunyuan_video(dit: Mapping[str, Any], vae: Mapping[str, Any]) -> ModelConfig:
    if dit.get("image_condition_type"):
        raise InputError("HunyuanVideo from images is not known to the adapter")
    width = dit["num_attention_heads"] * dit["attention_head_dim"]
    return ModelConfig(
        family="hunyuan_video",
        heads=dit["num_attention_heads"],
        head_dim=dit["attention_head_dim"],
        layers=dit["num_layers"] + dit["num_single_layers"],
        single_layers=dit["num_single_layers"],
        ffn_dim=int(width * dit["mlp_ratio"]),
        latent_channels=vae["latent_channels"],
        text_dim=dit["text_embed_dim"],
        text_length=256,
        pooled_width=dit["pooled_projection_dim"],
        patch=(dit["patch_size_t"], dit["patch_size"], dit["patch_size"]),
        joint_text=True,
        **_kl_vae(vae, int(vae["temporal_compression_ratio"])),
    )


def _kl_vae(vae: Mapping[str, Any], temporal: int) -> dict[str, Any]:
    channels = vae["block_out_channels"]
    return {
        "vae_dim": channels[0],
        "vae_multipliers": tuple(c // channels[0] for c in channels),
        "vae_blocks": vae["layers_per_block"],
        "temporal_factor": temporal,
        "spatial_factor": 2 ** (len(channels) - 1),
        **_TILE,
    }


_READERS: dict[str, Callable[[Mapping[str, Any], Mapping[str, Any]], ModelConfig]] = {
    "WanTransformer3DModel": _wan,
    "CogVideoXTransformer3DModel": _cogvideox,
    "HunyuanVideoTransformer3DModel": _hunyuan_video,
}


def _read_config(path: Path) -> dict[str, Any]:
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        hint = "a folder in diffusers' layout, with transformer/ and vae/"
        raise InputError("the checkpoint has no such file", where=str(path), hint=hint) from error
    except (OSError, ValueError) as error:
        raise InputError(f"cannot read the configuration: {error}", where=str(path)) from error
    if not isinstance(value, dict):
        raise InputError("expected a table of keys", where=str(path))
    return value
