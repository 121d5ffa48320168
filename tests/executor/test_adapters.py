"""Real diffusers models, random or from a folder, and what their sizes must agree with."""

import json
import sys

import pytest
import torch
from safetensors.torch import save_file

from arachne_opt.errors import InputError, MissingDependencyError
from arachne_opt.executor.adapters import build_adapter
from arachne_opt.executor.adapters.base import DenoiseBatch
from arachne_opt.executor.model_config import ModelChoice, ModelConfig
from arachne_opt.models import MODELS
from tests.executor.jobs import ODD

CPU = torch.device("cpu")
TINY = ("tiny-wan", "tiny-wan-i2v", "tiny-cogvideox", "tiny-hunyuan-video")
RUNNABLE = ("toy", *TINY, "demo-wan")


def parameters(module):
    return sum(p.numel() for p in module.parameters())


@pytest.mark.parametrize("name", RUNNABLE)
def test_the_table_of_models_counts_the_parameters_that_are_there(name):
    adapter, spec = build_adapter(ModelChoice(preset=name), CPU), MODELS[name]
    assert parameters(adapter.transformer) == spec.parameters
    if name == "toy":
        assert parameters(adapter.vae) == spec.vae.encoder_parameters
    else:
        quant = getattr(adapter.vae, "quant_conv", None)
        counted = parameters(adapter.vae.encoder) + (parameters(quant) if quant else 0)
        assert counted == spec.vae.encoder_parameters


@pytest.mark.parametrize("name", MODELS)
def test_tokens_and_degrees_agree_with_the_table_of_models(name):
    config, spec = ModelChoice(preset=name).config(), MODELS[name]
    assert config.grid(ODD) == spec.token_grid(ODD)
    assert config.latent_size(ODD) == spec.latent_shape(ODD)
    assert config.legal_degrees(8) == spec.legal_degrees(8)


@pytest.mark.parametrize("name", RUNNABLE)
def test_latents_and_errors_have_the_sizes_of_the_configuration(name):
    adapter = build_adapter(ModelChoice(preset=name), CPU)
    config = adapter.config
    latents = adapter.encode(torch.rand(1, 3, ODD.frames, ODD.height, ODD.width))
    assert latents.shape == (1, config.carried_channels, *config.latent_size(ODD))
    assert not latents.requires_grad
    made = torch.Generator().manual_seed(1)
    tokens = (2, config.token_count(ODD), config.token_features)
    inputs = DenoiseBatch(
        shape=ODD,
        clean=torch.randn(tokens, generator=made),
        noise=torch.randn(tokens, generator=made),
        timesteps=torch.tensor([0.2, 0.9]),
        text=torch.randn(2, config.text_length, config.text_dim, generator=made),
        text_lengths=torch.tensor([3, 9]),
        first_frame=torch.randn(tokens, generator=made) if config.from_image else None,
        extras={k: torch.randn(2, *size, generator=made) for k, size in config.extras.items()},
    )
    assert adapter.denoise_loss(inputs).shape == (2,)


def test_weights_depend_on_the_seed_only():
    def weights(seed):
        adapter = build_adapter(ModelChoice(preset="tiny-wan", seed=seed), CPU)
        return torch.cat([p.flatten() for p in adapter.transformer.parameters()])

    assert torch.equal(weights(1), weights(1))
    assert not torch.equal(weights(1), weights(2))


@pytest.mark.parametrize("name", TINY)
def test_a_checkpoint_folder_brings_back_weights_and_sizes(tmp_path, name):
    made = build_adapter(ModelChoice(preset=name, seed=5), CPU)
    made.vae.save_pretrained(tmp_path / "vae")
    made.transformer.save_pretrained(tmp_path / "transformer")
    choice = ModelChoice(checkpoint=str(tmp_path))
    loaded = build_adapter(choice, CPU)
    # Neither tiles nor the number of text or image tokens are among a model's own sizes.
    free = ("tile", "tile_stride", "text_length", "image_tokens")
    sizes = [k for k in ModelConfig.__dataclass_fields__ if k not in free]
    assert [getattr(choice.config(), k) for k in sizes] == [getattr(made.config, k) for k in sizes]
    assert loaded.config.token_count(ODD) == made.config.token_count(ODD)
    for kept, back in (
        (made.vae, loaded.vae),
        (made.transformer, loaded.transformer),
    ):
        state = back.state_dict()
        assert all(torch.equal(value, state[name]) for name, value in kept.state_dict().items())


def test_a_broken_or_partial_checkpoint_is_named(tmp_path):
    made = build_adapter(ModelChoice(preset="tiny-wan", seed=5), CPU)
    made.vae.save_pretrained(tmp_path / "vae")
    made.transformer.save_pretrained(tmp_path / "transformer")
    weights = next((tmp_path / "transformer").glob("*.safetensors"))
    state = dict(made.transformer.state_dict())
    for damage, message in (
        (lambda: save_file({"proj_out.bias": state["proj_out.bias"]}, weights), "lacks .* tensors"),
        (lambda: weights.write_bytes(b"no weights"), "cannot load the checkpoint"),
        (weights.unlink, "no .safetensors file"),
    ):
        damage()
        with pytest.raises(InputError, match=message) as caught:
            build_adapter(ModelChoice(checkpoint=str(tmp_path)), CPU)
        assert caught.value.where == str(tmp_path / "transformer")


@pytest.mark.parametrize(
    ("name", "key", "value"),
    [
        ("tiny-cogvideox", "patch_size_t", 2),
        ("tiny-cogvideox", "use_learned_positional_embeddings", True),
        ("tiny-hunyuan-video", "image_condition_type", "latent_concat"),
        ("tiny-wan", "_class_name", "MochiTransformer3DModel"),
    ],
)
def test_kinds_of_models_that_no_adapter_knows_are_refused(tmp_path, name, key, value):
    made = build_adapter(ModelChoice(preset=name), CPU)
    made.vae.save_pretrained(tmp_path / "vae")
    made.transformer.save_pretrained(tmp_path / "transformer")
    file = tmp_path / "transformer" / "config.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), key: value}))
    with pytest.raises(InputError, match=r"does not know|not known|cannot run"):
        ModelChoice(checkpoint=str(tmp_path)).config()


def test_a_folder_that_is_no_checkpoint_is_named(tmp_path):
    with pytest.raises(InputError, match="the checkpoint has no such file") as caught:
        ModelChoice(checkpoint=str(tmp_path)).config()
    assert "transformer" in caught.value.where


def test_without_diffusers_the_extra_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "diffusers", None)
    with pytest.raises(MissingDependencyError, match=r"arachne-opt\[video\]") as caught:
        build_adapter(ModelChoice(preset="tiny-wan"), CPU)
    assert caught.value.exit_code == 7
