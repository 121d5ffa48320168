"""Configurations of public models, as their authors write them."""

import json

import pytest

from arachne_opt.errors import InputError
from arachne_opt.importers.hugging_face import read_config
from arachne_opt.pipeline.presets import ARCHITECTURES

# The numbers of the released config.json files; other keys do not matter.
CONFIGS = {
    "OPT-350M": {
        "model_type": "opt",
        "num_hidden_layers": 24,
        "hidden_size": 1024,
        "num_attention_heads": 16,
        "ffn_dim": 4096,
        "vocab_size": 50272,
        "max_position_embeddings": 2048,
        "word_embed_proj_dim": 512,
    },
    "GPT-Neo-2.7B": {
        "model_type": "gpt_neo",
        "num_layers": 32,
        "hidden_size": 2560,
        "num_heads": 20,
        "intermediate_size": None,
        "vocab_size": 50257,
        "max_position_embeddings": 2048,
    },
    "Llama-3-8B": {
        "model_type": "llama",
        "num_hidden_layers": 32,
        "hidden_size": 4096,
        "num_attention_heads": 32,
        "num_key_value_heads": 8,
        "intermediate_size": 14336,
        "vocab_size": 128256,
        "max_position_embeddings": 8192,
        "tie_word_embeddings": False,
    },
    "Mixtral-8x7B": {
        "model_type": "mixtral",
        "num_hidden_layers": 32,
        "hidden_size": 4096,
        "num_attention_heads": 32,
        "num_key_value_heads": 8,
        "intermediate_size": 14336,
        "num_local_experts": 8,
        "num_experts_per_tok": 2,
        "vocab_size": 32000,
        "max_position_embeddings": 32768,
    },
    "DeepSeekMoE-16B": {
        "model_type": "deepseek",
        "num_hidden_layers": 28,
        "hidden_size": 2048,
        "num_attention_heads": 16,
        "num_key_value_heads": 16,
        "intermediate_size": 10944,
        "moe_intermediate_size": 1408,
        "n_routed_experts": 64,
        "n_shared_experts": 2,
        "num_experts_per_tok": 6,
        "first_k_dense_replace": 1,
        "vocab_size": 102400,
        "max_position_embeddings": 4096,
    },
}


@pytest.mark.parametrize("name", CONFIGS)
def test_a_released_configuration_gives_the_preset(tmp_path, name):
    folder = tmp_path / name
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(CONFIGS[name]))
    preset = ARCHITECTURES[name]
    found = read_config(folder, sequence_length=preset.sequence_length)
    assert found.name == name
    assert found.total_parameters() == preset.total_parameters()
    assert found.sequence_length == preset.sequence_length
    assert found.experts == preset.experts
    assert read_config(folder / "config.json", sequence_length=7).sequence_length == 7


def test_gpt2_keys_are_known(tmp_path):
    config = {"model_type": "gpt2", "n_layer": 12, "n_embd": 768, "n_head": 12, "n_inner": None}
    config |= {"vocab_size": 50257, "n_positions": 1024}
    file = tmp_path / "config.json"
    file.write_text(json.dumps(config))
    assert read_config(file).total_parameters() == 124_439_808


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"model_type": "mistrall"}, r":2: unknown model_type 'mistrall' \(did you mean 'mistral'"),
        ({"model_type": "bert"}, r":2: unknown model_type 'bert'"),
        ({"num_hidden_layers": "many"}, r":3: num_hidden_layers must be a number, not 'many'"),
        ({"num_hidden_layers": 0}, r":3: num_hidden_layers must be at least 1, not 0"),
        ({"num_hidden_layers": 8.5}, r":3: num_hidden_layers must be a whole number, not 8.5"),
        ({"hidden_size": None}, r":4: hidden_size is empty"),
        ({"num_key_value_heads": 5}, r":1: 32 heads cannot share 5"),
        ({"tie_word_embeddings": "no"}, r":10: tie_word_embeddings must be true or false"),
    ],
)
def test_wrong_configurations_are_refused_by_line(tmp_path, change, message):
    file = tmp_path / "config.json"
    file.write_text(json.dumps(CONFIGS["Llama-3-8B"] | change, indent=1))
    with pytest.raises(InputError, match="config.json" + message):
        read_config(file)


def test_files_that_are_no_configuration_are_refused(tmp_path):
    with pytest.raises(InputError, match="cannot read"):
        read_config(tmp_path / "nothing.json")
    (tmp_path / "config.json").write_text("{}")
    with pytest.raises(InputError, match="model_type"):
        read_config(tmp_path)
