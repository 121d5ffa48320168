"""Models that the runtime can train: ``build_adapter`` makes the one that a job asks for."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

from arachne_opt.errors import ArachneError, InputError
from arachne_opt.executor.model_config import ModelChoice
from arachne_opt.plugins import is_plugin, load_plugin

if TYPE_CHECKING:
    import torch

    from arachne_opt.executor.adapters.base import VideoAdapter

_PLACES = {
    "toy": "arachne_opt.executor.adapters.toy:ToyAdapter",
    "wan": "arachne_opt.executor.adapters.wan:WanAdapter",
    "cogvideox": "arachne_opt.executor.adapters.cogvideox:CogVideoXAdapter",
    "hunyuan_video": "arachne_opt.executor.adapters.hunyuan_video:HunyuanVideoAdapter",
}


def build_adapter(choice: ModelChoice, device: torch.device) -> VideoAdapter:
    """The model, equal on every rank: its weights come from the seed or the checkpoint.

    Raises:
        InputError: the user's adapter cannot be imported, or is none.
        MissingDependencyError: the model needs an extra that is not installed.
    """
    if choice.emulated:
        from arachne_opt.executor.adapters.emulated import EmulatedAdapter

        return EmulatedAdapter(choice, device)
    family = choice.config().family
    adapter = _class(family)(choice, device)
    if choice.checkpointing:
        adapter.set_checkpointing(True)
    return adapter


def import_code(choice: ModelChoice) -> None:
    """Imports what a built-in model needs; who builds it says what is missing."""
    from arachne_opt.executor.adapters.diffusers_model import DiffusersAdapter

    with suppress(ArachneError):
        family = choice.config().family
        if not (choice.emulated or is_plugin(family)):
            adapter = _class(family)
            if issubclass(adapter, DiffusersAdapter):
                adapter.classes()


def _class(family: str) -> type[VideoAdapter]:
    from arachne_opt.executor.adapters.base import VideoAdapter

    place = family if is_plugin(family) else _PLACES[family]
    found = load_plugin(place)
    if not (isinstance(found, type) and issubclass(found, VideoAdapter)):
        raise InputError(f"{place} is no VideoAdapter", hint="a subclass of adapters.base's")
    return found
