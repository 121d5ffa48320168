"""``arachne models``: which models there are, and what a configuration says."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import click

from arachne_opt.cli.named_models import any_model
from arachne_opt.cli.options import format_option
from arachne_opt.cli.output import emit_json, emit_table
from arachne_opt.models import MODELS, ModelSpec
from arachne_opt.pipeline.architecture import Architecture
from arachne_opt.pipeline.presets import ARCHITECTURES

_MOST_DEGREE = 64


@click.group()
def models() -> None:
    """List models, and show what is known of one.

    A model is named, or is the path of a config.json of transformers or diffusers.
    """


@models.command("list")
@format_option
def list_models(form: str) -> None:
    """List the models that are known by name.

    Example: arachne models list
    """
    video = [
        [m.name, "video", m.family, m.layers, _billions(m.parameters)] for m in MODELS.values()
    ]
    language = [
        [a.name, "language", a.family, a.layers, _billions(a.total_parameters())]
        for a in ARCHITECTURES.values()
    ]
    if form == "json":
        keys = ("name", "kind", "family", "layers")
        rows = [dict(zip(keys, row, strict=False)) for row in (*video, *language)]
        emit_json("models", {"models": rows})
        return
    emit_table(["model", "kind", "family", "layers", "parameters"], [*video, *language])


@models.command()
@click.argument("model")
@format_option
def show(model: str, form: str) -> None:
    """Show the sizes of a model, as plans are priced by them.

    Example: arachne models show checkpoints/wan/transformer/config.json
    """
    found = any_model(model)
    if form == "json":
        kind = "video" if isinstance(found, ModelSpec) else "language"
        emit_json("model", {"kind": kind, **asdict(found)})
        return
    for name, value in _lines(found):
        click.echo(f"{name:14s} {value}")


def _lines(found: ModelSpec | Architecture) -> list[tuple[str, Any]]:
    if isinstance(found, ModelSpec):
        step = " x ".join(map(str, found.pixel_step))
        return [
            ("model", f"{found.name}, video, {found.family}"),
            ("parameters", f"{found.parameters:,} ({_billions(found.parameters)})"),
            ("layers", f"{found.layers}, {found.single_layers} of them with one stream"),
            (
                "width",
                f"{found.hidden}: {found.heads} heads of {found.head_dim}; inner {found.ffn}",
            ),
            ("text", f"{found.text_length} tokens, {found.text_use.value} attention"),
            ("token", f"{step} pixels, {found.vae.temporal} frames after the first"),
            ("degrees", ", ".join(map(str, found.legal_degrees(_MOST_DEGREE)))),
            ("source", found.source),
        ]
    total = found.total_parameters()
    lines: list[tuple[str, Any]] = [
        ("model", f"{found.name}, language, {found.family}"),
        ("parameters", f"{total:,} ({_billions(total)})"),
        ("layers", f"{found.layers}: {found.layers + 2} rows with embedding and head"),
        (
            "width",
            f"{found.hidden}: {found.heads} heads, {found.kv_heads} of keys; inner {found.ffn}",
        ),
        ("tokens", f"{found.sequence_length} a sample, {found.vocabulary} different ones"),
    ]
    if found.experts:
        lines.append(("experts", f"{found.experts.count}, {found.experts.top_k} for a token"))
    return [*lines, ("source", found.source)]


def _billions(parameters: int) -> str:
    return f"{parameters / 1e9:.2f} B" if parameters >= 1e7 else f"{parameters / 1e6:.2f} M"
