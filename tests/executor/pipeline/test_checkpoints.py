"""Hugging Face checkpoints: the same logits as transformers, read whole or sharded, and back."""

import json
from dataclasses import replace

import pytest
import torch

from arachne_opt.errors import InputError
from arachne_opt.executor.pipeline.models.checkpoints import (
    INDEX_FILE,
    CheckpointReader,
    CheckpointWriter,
)
from arachne_opt.executor.pipeline.models.config_json import config_of_spec
from arachne_opt.executor.pipeline.models.configs import spec_of_config
from arachne_opt.executor.pipeline.models.rows import build_row
from tests.executor.pipeline.models import GPT, LLAMA, MIXTRAL

pytest.importorskip("safetensors", reason="the extra hf is not installed")

TOKENS = 20
LIMIT = 1e-5
SIZES = {
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "vocab_size": 99,
    "max_position_embeddings": 32,
}
GROUPED = {**SIZES, "num_key_value_heads": 2}
OPT = {**SIZES, "ffn_dim": 48, "word_embed_proj_dim": 32}
NEO = {
    "hidden_size": 32,
    "num_layers": 4,
    "num_heads": 4,
    "vocab_size": 99,
    "max_position_embeddings": 32,
}
STRETCHED = {
    "rope_type": "llama3",
    "rope_theta": 500.0,
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 16,
}
CONFIGS = {
    "llama": ("LlamaConfig", GROUPED),
    "llama stretched, biased, tied": (
        "LlamaConfig",
        {
            **GROUPED,
            "head_dim": 12,
            "attention_bias": True,
            "mlp_bias": True,
            "tie_word_embeddings": True,
            "rope_parameters": STRETCHED,
        },
    ),
    "mistral with a window": ("MistralConfig", {**GROUPED, "sliding_window": 5}),
    "mixtral": ("MixtralConfig", {**GROUPED, "num_local_experts": 4}),
    "qwen2": ("Qwen2Config", GROUPED),
    "opt": ("OPTConfig", OPT),
    "opt with late norms and narrow words": (
        "OPTConfig",
        {**OPT, "word_embed_proj_dim": 16, "do_layer_norm_before": False},
    ),
    "gpt2": ("GPT2Config", {"n_embd": 32, "n_layer": 3, "n_head": 4, "vocab_size": 99}),
    "gpt_neo": (
        "GPTNeoConfig",
        {**NEO, "attention_types": [[["global", "local"], 2]], "window_size": 5},
    ),
    "gpt_neox": ("GPTNeoXConfig", SIZES),
}


def logits(rows, ids):
    with torch.no_grad():
        for row in rows:
            ids = row(ids)
    return ids


def read(folder):
    spec = spec_of_config(folder)
    with CheckpointReader(folder, spec) as reader:
        rows = [build_row(spec, row, weights=reader.row(row)) for row in range(spec.row_count)]
    return spec, rows


@pytest.fixture(scope="module")
def transformers():
    module = pytest.importorskip("transformers", reason="transformers is not installed")
    module.logging.set_verbosity_error()
    module.logging.disable_progress_bar()
    return module


@pytest.mark.parametrize("name", CONFIGS)
def test_a_checkpoint_gives_the_logits_of_transformers_and_comes_back(name, transformers, tmp_path):
    kind, fields = CONFIGS[name]
    torch.manual_seed(0)
    config = getattr(transformers, kind)(**fields, bos_token_id=0, eos_token_id=1)
    theirs = transformers.AutoModelForCausalLM.from_config(config).eval()
    ids = torch.randint(0, 99, (3, TOKENS))
    with torch.no_grad():
        for parameter in theirs.parameters():
            parameter.normal_(0, 0.2)
        wanted = theirs(ids).logits
    theirs.save_pretrained(tmp_path / "in", max_shard_size="20KB")
    assert (tmp_path / "in" / INDEX_FILE).is_file()
    spec, rows = read(tmp_path / "in")
    assert (logits(rows, ids) - wanted).abs().max() < LIMIT

    writer = CheckpointWriter(tmp_path / "out", spec)
    for row, module in enumerate(rows):
        writer.write_row(row, dict(module.named_parameters()))
    writer.finish(config_of_spec(spec, sequence_length=1024))
    assert replace(spec_of_config(tmp_path / "out"), name=spec.name) == spec
    back = transformers.AutoModelForCausalLM.from_pretrained(tmp_path / "out").eval()
    for key, value in theirs.state_dict().items():
        assert torch.equal(back.state_dict()[key], value), key


def test_one_file_without_the_prefix_of_the_whole_model_is_read(tmp_path):
    from safetensors.torch import save_file

    writer = CheckpointWriter(tmp_path, LLAMA)
    rows = [build_row(LLAMA, row, seed=5) for row in range(LLAMA.row_count)]
    for row, module in enumerate(rows):
        writer.write_row(row, dict(module.named_parameters()))
    writer.finish(config_of_spec(LLAMA, sequence_length=64))
    from safetensors.torch import load_file

    whole = {}
    for file in sorted(tmp_path.glob("*.safetensors")):
        whole |= {name.removeprefix("model."): value for name, value in load_file(file).items()}
        file.unlink()
    (tmp_path / INDEX_FILE).unlink()
    save_file(whole, tmp_path / "model.safetensors")
    _, again = read(tmp_path)
    ids = torch.arange(12).view(2, 6)
    assert torch.equal(logits(again, ids), logits(rows, ids))


@pytest.mark.parametrize("spec", [GPT, MIXTRAL], ids=lambda spec: spec.name)
def test_what_is_missing_or_misshapen_is_named(spec, tmp_path):
    with pytest.raises(InputError, match=r"neither model\.safetensors nor"):
        CheckpointReader(tmp_path, spec)
    writer = CheckpointWriter(tmp_path, spec)
    for row in range(spec.row_count):
        weights = dict(build_row(spec, row).named_parameters())
        writer.write_row(row, weights)
    writer.finish(config_of_spec(spec, sequence_length=64))
    wider = replace(spec, ffn=2 * spec.ffn, experts=None)
    with CheckpointReader(tmp_path, spec) as reader:
        weights = reader.row(1)
    with pytest.raises(InputError, match=r"small-.*, row 1: .*ffn"):
        build_row(wider, 1, weights=weights)
    index = json.loads((tmp_path / INDEX_FILE).read_text())
    lost = next(name for name in index["weight_map"] if ".0." in name)
    del index["weight_map"][lost]
    (tmp_path / INDEX_FILE).write_text(json.dumps(index))
    with (
        CheckpointReader(tmp_path, spec) as reader,
        pytest.raises(InputError, match=f"lacks the tensor {lost}"),
    ):
        reader.row(1)


def test_a_model_that_the_runtime_cannot_compute_is_refused(tmp_path):
    config = config_of_spec(LLAMA, sequence_length=64)
    for change, words in (
        ({"model_type": "llma"}, "did you mean 'llama'"),
        ({"hidden_act": "mish"}, "'mish' is not known"),
        ({"rope_parameters": {"rope_type": "yarn"}}, "kind 'yarn'"),
        ({"hidden_size": None}, "'hidden_size' is missing"),
    ):
        (tmp_path / "config.json").write_text(json.dumps(config | change))
        with pytest.raises(InputError, match=words):
            spec_of_config(tmp_path)
