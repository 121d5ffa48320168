"""Models that the user names: a preset, a ``config.json``, or a record of the user's own."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from arachne_opt.errors import InputError
from arachne_opt.models import ModelSpec, model_spec

if TYPE_CHECKING:
    from arachne_opt.pipeline.architecture import Architecture


def video_model(text: str) -> ModelSpec:
    """A video model: a preset, ``module:NAME``, or the path of a ``config.json`` or its folder."""
    if not is_path(text):
        return model_spec(text)
    from arachne_opt.importers.video_models import read_video_model

    return read_video_model(text)


def language_model(text: str, sequence_length: int | None = None) -> Architecture:
    """A language model: a public one by name, or the path of a ``config.json`` or its folder.

    Args:
        text: name or path.
        sequence_length: tokens of a sample; by default those of the model.
    """
    from dataclasses import replace

    from arachne_opt.importers.hugging_face import read_config
    from arachne_opt.pipeline.presets import architecture

    if is_path(text):
        return read_config(text, sequence_length=sequence_length)
    found = architecture(text)
    return replace(found, sequence_length=sequence_length) if sequence_length else found


def any_model(text: str) -> ModelSpec | Architecture:
    """A model of either kind.

    Raises:
        InputError: there is none of that name, or the file is none.
    """
    if is_path(text):
        from arachne_opt.importers.video_models import is_video_config

        return video_model(text) if is_video_config(text) else language_model(text)
    from arachne_opt.models import MODELS
    from arachne_opt.pipeline.presets import ARCHITECTURES
    from arachne_opt.suggest import did_you_mean

    if text in ARCHITECTURES:
        return ARCHITECTURES[text]
    if text in MODELS or ":" in text:
        return model_spec(text)
    known = [*MODELS, *ARCHITECTURES]
    what = f"unknown model {text!r}{did_you_mean(text, known)}"
    raise InputError(what, hint="arachne models list, or the path of a config.json")


def is_path(text: str) -> bool:
    """Whether a name is meant as a path: it is there, or it looks like one."""
    return text.endswith(".json") or "/" in text or Path(text).is_dir()
