"""Public language models by name.

Sources: OPT: Zhang et al., 2022, table 1, and the released config.json files. GPT-Neo: EleutherAI,
config.json of gpt-neo-2.7B. Llama 3: Dubey et al., 2024, table 3. Mixtral: Jiang et al., 2024,
table 1. DeepSeekMoE: Dai et al., 2024, table 5 (64 routed experts of width 1408, two shared ones, a
first layer without).
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from arachne_opt.errors import InputError
from arachne_opt.pipeline.architecture import Architecture, ExpertLayers
from arachne_opt.suggest import did_you_mean

_ALL = (
    Architecture(
        name="OPT-350M",
        family="opt",
        layers=24,
        hidden=1024,
        heads=16,
        kv_heads=16,
        ffn=4096,
        vocabulary=50272,
        sequence_length=2048,
        positions=2050,
        embedding_width=512,
        source="Zhang et al. 2022; facebook/opt-350m",
    ),
    Architecture(
        name="GPT-Neo-2.7B",
        family="gpt_neo",
        layers=32,
        hidden=2560,
        heads=20,
        kv_heads=20,
        ffn=10240,
        vocabulary=50257,
        sequence_length=2048,
        positions=2048,
        source="EleutherAI/gpt-neo-2.7B",
    ),
    Architecture(
        name="OPT-30B",
        family="opt",
        layers=48,
        hidden=7168,
        heads=56,
        kv_heads=56,
        ffn=28672,
        vocabulary=50272,
        sequence_length=2048,
        positions=2050,
        source="Zhang et al. 2022; facebook/opt-30b",
    ),
    Architecture(
        name="Llama-7B",
        family="llama",
        layers=32,
        hidden=4096,
        heads=32,
        kv_heads=32,
        ffn=11008,
        vocabulary=32000,
        sequence_length=2048,
        gated=True,
        biases=False,
        tied=False,
        source="Touvron et al. 2023, table 2",
    ),
    Architecture(
        name="Llama-3-8B",
        family="llama",
        layers=32,
        hidden=4096,
        heads=32,
        kv_heads=8,
        ffn=14336,
        vocabulary=128256,
        sequence_length=8192,
        gated=True,
        biases=False,
        tied=False,
        source="Dubey et al. 2024, table 3",
    ),
    Architecture(
        name="Llama-3-70B",
        family="llama",
        layers=80,
        hidden=8192,
        heads=64,
        kv_heads=8,
        ffn=28672,
        vocabulary=128256,
        sequence_length=8192,
        gated=True,
        biases=False,
        tied=False,
        source="Dubey et al. 2024, table 3",
    ),
    Architecture(
        name="Mixtral-8x7B",
        family="mixtral",
        layers=32,
        hidden=4096,
        heads=32,
        kv_heads=8,
        ffn=14336,
        vocabulary=32000,
        sequence_length=4096,
        gated=True,
        biases=False,
        tied=False,
        experts=ExpertLayers(count=8, top_k=2, width=14336),
        source="Jiang et al. 2024, table 1",
    ),
    Architecture(
        name="DeepSeekMoE-16B",
        family="deepseek",
        layers=28,
        hidden=2048,
        heads=16,
        kv_heads=16,
        ffn=10944,
        vocabulary=102400,
        sequence_length=4096,
        gated=True,
        biases=False,
        tied=False,
        experts=ExpertLayers(count=64, top_k=6, width=1408, shared=2, dense_layers=1),
        source="Dai et al. 2024, table 5; deepseek-ai/deepseek-moe-16b-base",
    ),
)

ARCHITECTURES: Mapping[str, Architecture] = MappingProxyType({a.name: a for a in _ALL})


def architecture(name: str) -> Architecture:
    """A public model.

    Raises:
        InputError: no such model; the message offers the nearest name.
    """
    if name not in ARCHITECTURES:
        what = f"unknown model {name!r}{did_you_mean(name, ARCHITECTURES)}"
        raise InputError(what, hint=f"one of {', '.join(ARCHITECTURES)}, or a config.json")
    return ARCHITECTURES[name]
