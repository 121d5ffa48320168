"""Small feed-forward networks in numpy: planning must not load torch."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float32]


# Products of at most so many multiplications: for larger ones BLAS wakes threads, which wait busily
# for more while searches need the processors.
_SMALL = 200_000


def layer_count(tensors: Mapping[str, Array], name: str) -> int:
    """Layers of a network of that name."""
    return sum(key.startswith(f"{name}.") and key.endswith(".weight") for key in tensors)


def forward(tensors: Mapping[str, Array], name: str, x: Array) -> Array:
    """The output of a network: linear layers with SiLU in between.

    Args:
        tensors: ``NAME.0.weight`` (shape [out, in]), ``NAME.0.bias``, ``NAME.1.weight`` and so on.
        name: of the network.
        x: inputs in rows.
    """
    layers = layer_count(tensors, name)
    for i in range(layers):
        x = _product(x, tensors[f"{name}.{i}.weight"].T) + tensors[f"{name}.{i}.bias"]
        if i < layers - 1:
            x = x / (1 + np.exp(-np.clip(x, -30, 30)))
    return x


def _product(x: Array, weight: Array) -> Array:
    """Rows times a matrix, some rows at a time."""
    step = max(1, _SMALL // weight.size)
    parts = [x[at : at + step] @ weight for at in range(0, len(x), step)]
    return np.concatenate(parts) if parts else x @ weight


def scaled(tensors: Mapping[str, Array], x: NDArray[np.float64]) -> Array:
    """Features as the networks want them: around zero, about one wide, without outliers."""
    found: Array = ((x - tensors["mean"]) / tensors["width"]).clip(-6, 6).astype(np.float32)
    return found
