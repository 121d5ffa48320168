"""Configurations of video models, as diffusers and Wan's authors write them."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from arachne_opt.errors import InputError
from arachne_opt.importers.video_models import is_video_config, read_video_model
from arachne_opt.models import MODELS

# The numbers of the released files; what is left out is the default of diffusers.
CONFIGS = {
    "wan2.1-14b": {
        "_class_name": "WanTransformer3DModel",
        "attention_head_dim": 128,
        "cross_attn_norm": True,
        "ffn_dim": 13824,
        "freq_dim": 256,
        "image_dim": None,
        "in_channels": 16,
        "num_attention_heads": 40,
        "num_layers": 40,
        "out_channels": 16,
        "patch_size": [1, 2, 2],
        "text_dim": 4096,
    },
    "wan2.1-1.3b": {
        "_class_name": "WanTransformer3DModel",
        "num_attention_heads": 12,
        "num_layers": 30,
        "ffn_dim": 8960,
    },
    "wan2.1-i2v-14b": {
        "_class_name": "WanTransformer3DModel",
        "in_channels": 36,
        "image_dim": 1280,
        "added_kv_proj_dim": 5120,
    },
    "cogvideox-2b": {"_class_name": "CogVideoXTransformer3DModel", "num_layers": 30},
    "cogvideox-5b": {
        "_class_name": "CogVideoXTransformer3DModel",
        "num_attention_heads": 48,
        "num_layers": 42,
        "use_rotary_positional_embeddings": True,
        "patch_size_t": None,
    },
    "hunyuanvideo-13b": {"_class_name": "HunyuanVideoTransformer3DModel", "mlp_ratio": 4.0},
}
AUTHORS = {
    "_class_name": "WanModel",
    "dim": 5120,
    "ffn_dim": 13824,
    "freq_dim": 256,
    "in_dim": 16,
    "model_type": "t2v",
    "num_heads": 40,
    "num_layers": 40,
    "out_dim": 16,
    "text_len": 512,
}


def put(folder: Path, config: object, *parts: str) -> Path:
    place = folder.joinpath(*parts)
    place.mkdir(parents=True, exist_ok=True)
    text = config if isinstance(config, str) else json.dumps(config, indent=1)
    (place / "config.json").write_text(text)
    return place / "config.json"


@pytest.mark.parametrize("name", CONFIGS)
def test_a_released_configuration_is_our_preset(tmp_path: Path, name: str):
    file = put(tmp_path, CONFIGS[name], "mine")
    assert is_video_config(file)
    found = read_video_model(file)
    preset = MODELS[name]
    assert found == replace(preset, name="mine", source=found.source)


def test_the_form_of_wans_authors_is_read_too(tmp_path: Path):
    found = read_video_model(put(tmp_path, AUTHORS))
    assert found.parameters == MODELS["wan2.1-14b"].parameters
    from_image = AUTHORS | {"model_type": "i2v", "in_dim": 36}
    found = read_video_model(put(tmp_path, from_image))
    assert found.parameters == MODELS["wan2.1-i2v-14b"].parameters
    assert found.image_tokens == 257


def test_a_folder_of_diffusers_is_named_after_itself(tmp_path: Path):
    put(tmp_path, CONFIGS["wan2.1-1.3b"], "Wan-mine", "transformer")
    put(tmp_path, {"_class_name": "AutoencoderKLWan", "z_dim": 16}, "Wan-mine", "vae")
    assert read_video_model(tmp_path / "Wan-mine").name == "Wan-mine"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"_class_name": "FluxTransformer2DModel"}, r"config.json:2: unknown class 'Flux"),
        ({"_class_name": "WanTransformer3D"}, r"did you mean 'WanTransformer3DModel'"),
        ({"_class_name": 3}, r"config.json:2: _class_name must be a text, not 3"),
        ({"num_layers": "many"}, r"config.json:10: num_layers must be a number, not 'many'"),
        ({"num_layers": 0}, r"config.json:10: num_layers must be at least 1, not 0"),
        ({"patch_size": [1, 2]}, r"config.json:12: patch_size has 2 numbers"),
        ({"patch_size": 2}, r"config.json:12: patch_size must be a list"),
        ({"out_channels": 48, "in_channels": 48}, r"config.json:11: .* latents of 48 channels"),
        ({"cross_attn_norm": "yes"}, r"config.json:4: cross_attn_norm must be true or false"),
    ],
)
def test_a_wrong_configuration_is_explained(tmp_path: Path, change: dict, message: str):
    with pytest.raises(InputError, match=message):
        read_video_model(put(tmp_path, CONFIGS["wan2.1-14b"] | change))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{"a": 1,', r"config.json:1: no valid JSON"),
        ('{"a": 1}', r"config.json:1: '_class_name' is missing"),
        (json.dumps(AUTHORS | {"num_heads": 7}), r"config.json:1: 7 heads do not divide width"),
    ],
)
def test_a_broken_file_is_explained(tmp_path: Path, text: str, message: str):
    with pytest.raises(InputError, match=message):
        read_video_model(put(tmp_path, text))


def test_another_vae_beside_it_is_refused(tmp_path: Path):
    put(tmp_path, CONFIGS["wan2.1-1.3b"], "m", "transformer")
    file = put(tmp_path, {"z_dim": 48}, "m", "vae")
    with pytest.raises(InputError, match=rf"{file}:2: z_dim is 48"):
        read_video_model(tmp_path / "m")


ODD = [
    (
        "WanTransformer3DModel",
        {"pos_embed_seq_len": 514, "image_dim": 64, "cross_attn_norm": False},
    ),
    ("CogVideoXTransformer3DModel", {"patch_size_t": 2, "patch_bias": False, "ofs_embed_dim": 64}),
    ("CogVideoXTransformer3DModel", {"attention_bias": False, "time_embed_dim": 64}),
    ("HunyuanVideoTransformer3DModel", {"guidance_embeds": False, "mlp_ratio": 3.0}),
    ("HunyuanVideoTransformer3DModel", {"num_single_layers": 5, "num_refiner_layers": 1}),
]


@pytest.mark.slow
@pytest.mark.parametrize(("name", "change"), ODD)
def test_parameters_are_those_of_diffusers(tmp_path: Path, name: str, change: dict):
    diffusers = pytest.importorskip("diffusers", reason="the extra video is not installed")
    import torch

    with torch.device("meta"):
        model = getattr(diffusers, name)(num_layers=2, **change)
    model.save_config(tmp_path)
    counted = sum(parameter.numel() for parameter in model.parameters())
    assert read_video_model(tmp_path).parameters == counted
