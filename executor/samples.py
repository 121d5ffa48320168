"""Reads what tasks need of a clip: frames, cached latents, or embeddings beside them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from arachne_opt.errors import InputError
from arachne_opt.executor.model_config import ModelConfig
from arachne_opt.executor.parquet_latents import NAMES, is_parquet, read_row
from arachne_opt.executor.pixels import read_frames
from arachne_opt.workload import Clip, Shape

LATENTS = "latents"


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """One thing to read.

    Args:
        kind: ``pixels``, ``latents`` or ``embeddings``.
        first: first latent frame, for latents only ...
        last: ... and the one after the last.
    """

    kind: str
    clip: Clip
    shape: Shape
    first: int = 0
    last: int = 0


class SampleReader:
    """Reads for one model, whose sizes say what a file must hold."""

    def __init__(self, config: ModelConfig) -> None:
        self._config = config

    def read(self, request: Request) -> Any:  # noqa: ANN401 - depends on the kind
        """Frames as uint8 (F, H, W, 3), latents (C, t, H, W), or tensors by name.

        Raises:
            InputError: the file is damaged, or is not for this model or shape.
        """
        if request.kind == "pixels":
            return read_frames(request.clip, request.shape)
        if request.kind == "latents":
            return self._latents(request)
        return self._embeddings(request)

    def _latents(self, request: Request) -> Tensor:
        config = self._config
        wanted = (config.carried_channels, *config.latent_size(request.shape))

        def cut(file: Any) -> Tensor:  # noqa: ANN401 - a class of an optional package
            part = file.get_slice(LATENTS)
            found = tuple(part.get_shape())
            if found != wanted:
                raise InputError(f"the latents are {found}, clips of {request.shape} need {wanted}")
            tensor: Tensor = part[:, request.first : request.last]
            return tensor.float()

        return _finite(_opened(request.clip.latents, request.clip, cut), request.clip)

    def _embeddings(self, request: Request) -> dict[str, Tensor]:
        config = self._config

        def pick(file: Any) -> dict[str, Tensor]:  # noqa: ANN401 - a class of an optional package
            names = [name for name in ("text", *config.extras) if name in file.keys()]  # noqa: SIM118 - no mapping
            return {name: file.get_tensor(name).float() for name in names}

        path = request.clip.embeddings or request.clip.latents
        found: dict[str, Tensor] = _opened(path, request.clip, pick)
        for name, value in found.items():
            size = tuple(value.shape)
            wanted = config.extras.get(name, (len(value), config.text_dim))
            if size != wanted:
                raise InputError(f"{name!r} is {size}, the model takes {wanted}")
            _finite(value, request.clip)
        return found


class _ParquetRow:
    """A clip's row with the methods that a safetensors file has."""

    def __init__(self, path: str, clip: Clip, names: tuple[str, ...]) -> None:
        self._stored = read_row(path, clip.id, names=names)
        self._path = path

    def keys(self) -> tuple[str, ...]:
        """Names of the tensors."""
        return tuple(self._stored)

    def get_tensor(self, name: str) -> Tensor:
        """A tensor by its name."""
        if name not in self._stored:
            raise InputError(f"{self._path} has no tensor {name!r}")
        data, shape, dtype = self._stored[name]
        tensor = torch.frombuffer(bytearray(data), dtype=getattr(torch, dtype))
        return tensor.view(shape)

    def get_slice(self, name: str) -> _Whole:
        """A tensor of which parts may be taken."""
        return _Whole(self.get_tensor(name))


class _Whole:
    """A tensor with the methods of a slice of a safetensors file."""

    def __init__(self, tensor: Tensor) -> None:
        self._tensor = tensor

    def get_shape(self) -> tuple[int, ...]:
        """Its size."""
        return tuple(self._tensor.shape)

    def __getitem__(self, index: Any) -> Tensor:  # noqa: ANN401 - whatever tensors take
        """A part of it."""
        return self._tensor[index]


def _opened(path: str, clip: Clip, use: Callable[[Any], Any]) -> Any:  # noqa: ANN401 - whatever is read
    from safetensors import SafetensorError, safe_open

    if is_parquet(path):
        return use(_ParquetRow(path, clip, NAMES))
    try:
        with safe_open(path, framework="pt") as file:
            return use(file)
    except (OSError, SafetensorError) as error:
        where = f"clip {clip.id}"
        raise InputError(f"cannot read {path}: {error}", where=where) from error


def _finite(value: Tensor, clip: Clip) -> Tensor:
    if not torch.isfinite(value).all():
        raise InputError(f"a file of clip {clip.id} holds numbers that are not finite")
    return value
