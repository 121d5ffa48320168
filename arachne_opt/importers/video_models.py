"""Reads video diffusion transformers from the ``config.json`` of diffusers, or of Wan's authors.

Parameters are counted as diffusers 0.35 and later builds them; tests hold the counts against it.
The VAE is the published one of each family: its numbers are no part of the file.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from arachne_opt.errors import InputError
from arachne_opt.importers import video_parameters as count
from arachne_opt.importers.json_file import read_json_file
from arachne_opt.importers.node import Node
from arachne_opt.models import MODELS, ModelSpec, TextUse, VaeSpec
from arachne_opt.suggest import did_you_mean

# The published models whose VAE and length of texts the models of a family have.
_LIKE = {
    "wan": MODELS["wan2.1-14b"],
    "cogvideox": MODELS["cogvideox-5b"],
    "hunyuan_video": MODELS["hunyuanvideo-13b"],
}
_IMAGE_TOKENS = 257  # of CLIP, which Wan 2.1 sees of a first frame
_VAE_CHANNELS = ("z_dim", "latent_channels")


def is_video_config(path: str | Path) -> bool:
    """Whether a file or folder holds the configuration of a video model."""
    file = config_file(path)
    return file.is_file() and "_class_name" in file.read_text(encoding="utf-8", errors="replace")


def config_file(path: str | Path) -> Path:
    """The ``config.json`` of a file, of a folder, or of the transformer in a pipeline's folder."""
    place = Path(path)
    if not place.is_dir():
        return place
    inner = place / "transformer" / "config.json"
    return inner if inner.is_file() else place / "config.json"


def read_video_model(path: str | Path) -> ModelSpec:
    """The model of a configuration.

    Raises:
        InputError: no such file, a class that we do not know, or a missing or wrong number.
    """
    file = config_file(path)
    config = read_json_file(file)
    kind = config.get("_class_name")
    if kind.text() not in _READERS:
        what = f"unknown class {kind.text()!r}{did_you_mean(kind.text(), _READERS)}"
        raise kind.error(what, f"one of {', '.join(sorted(_READERS))}")
    sizes = _READERS[kind.text()](config)
    like = _LIKE[sizes.family]
    _check_channels(config, sizes, like.vae)
    _check_vae(file, like.vae)
    try:
        return _spec(_name(file, kind), sizes, like)
    except InputError as error:
        raise config.error(error.what, error.hint) from error


@dataclass(frozen=True, slots=True, kw_only=True)
class _Sizes:
    """What a configuration says."""

    family: str
    layers: int
    heads: int
    head_dim: int
    ffn: int
    parameters: int
    patch: tuple[int, int, int]
    in_channels: int
    out_channels: int
    text_width: int
    text_length: int | None = None
    single_layers: int = 0
    rotary: bool = True
    pooled_width: int = 0
    image_width: int = 0


def _spec(name: str, sizes: _Sizes, like: ModelSpec) -> ModelSpec:
    return ModelSpec(
        name=name,
        family=sizes.family,
        layers=sizes.layers,
        heads=sizes.heads,
        head_dim=sizes.head_dim,
        ffn=sizes.ffn,
        parameters=sizes.parameters,
        patch=sizes.patch,
        in_channels=sizes.in_channels,
        out_channels=sizes.out_channels,
        text_use=TextUse.CROSS if sizes.family == "wan" else TextUse.JOINT,
        text_length=sizes.text_length or like.text_length,
        text_width=sizes.text_width,
        vae=like.vae,
        source=f"config.json; VAE of {like.name}",
        single_layers=sizes.single_layers,
        rotary=sizes.rotary,
        pooled_width=sizes.pooled_width,
        image_tokens=_IMAGE_TOKENS if sizes.image_width else 0,
        image_width=sizes.image_width,
    )


def _name(file: Path, kind: Node) -> str:
    """The folder of the model, above that of its transformer."""
    folder = file.resolve().parent
    folder = folder.parent if folder.name == "transformer" else folder
    return folder.name or kind.text()


def _check_channels(config: Node, sizes: _Sizes, vae: VaeSpec) -> None:
    """The transformer takes and gives the latents of the VAE whose numbers we have."""
    if sizes.out_channels != vae.latent_channels or sizes.in_channels < vae.latent_channels:
        found = config.find("out_channels", "out_dim") or config
        what = f"the model gives latents of {sizes.out_channels} channels"
        hint = "measured costs (arachne profile cascade), or a ModelSpec of your own"
        raise found.error(f"{what}, only the VAE with {vae.latent_channels} is priced", hint)


def _check_vae(file: Path, vae: VaeSpec) -> None:
    """A VAE beside the transformer has the channels of the published one."""
    beside = file.parent.parent / "vae" / "config.json"
    if file.parent.name != "transformer" or not beside.is_file():
        return
    found = read_json_file(beside).find(*_VAE_CHANNELS)
    if found is not None and found.whole(1) != vae.latent_channels:
        what = f"{found.key} is {found.value}, only the VAE with {vae.latent_channels} is priced"
        raise found.error(what, "measured costs (arachne profile cascade)")


def _whole(config: Node, key: str, default: int) -> int:
    """A size; diffusers leaves out those that are its defaults."""
    found = config.find(key)
    return default if found is None else found.whole(1)


def _optional(config: Node, key: str) -> int:
    found = config.find(key)
    return 0 if found is None else found.whole()


def _flag(config: Node, key: str, default: bool) -> bool:
    found = config.find(key)
    return default if found is None else found.flag()


def _patch(config: Node, default: tuple[int, int, int]) -> tuple[int, int, int]:
    found = config.find("patch_size")
    if found is None:
        return default
    sizes = [item.whole(1) for item in found.items()]
    if len(sizes) != 3:
        raise found.error(f"patch_size has {len(sizes)} numbers", "[1, 2, 2]")
    return sizes[0], sizes[1], sizes[2]


def _wan(config: Node) -> _Sizes:
    heads = _whole(config, "num_attention_heads", 40)
    head_dim = _whole(config, "attention_head_dim", 128)
    image = _optional(config, "image_dim")
    sizes = count.WanSizes(
        layers=_whole(config, "num_layers", 40),
        width=heads * head_dim,
        ffn=_whole(config, "ffn_dim", 13_824),
        patch=_patch(config, (1, 2, 2)),
        in_channels=_whole(config, "in_channels", 16),
        out_channels=_whole(config, "out_channels", 16),
        text_width=_whole(config, "text_dim", 4096),
        frequencies=_whole(config, "freq_dim", 256),
        cross_norm=_flag(config, "cross_attn_norm", True),
        image_width=image,
        added_keys=_optional(config, "added_kv_proj_dim"),
        image_positions=_optional(config, "pos_embed_seq_len"),
    )
    return _of_wan(sizes, heads, head_dim)


def _wan_of_its_authors(config: Node) -> _Sizes:
    heads, width = _whole(config, "num_heads", 16), _whole(config, "dim", 2048)
    if width % heads:
        raise config.error(f"{heads} heads do not divide width {width}")
    kind = config.find("model_type")
    from_image = kind is not None and kind.text() == "i2v"
    sizes = count.WanSizes(
        layers=_whole(config, "num_layers", 32),
        width=width,
        ffn=_whole(config, "ffn_dim", 8192),
        patch=_patch(config, (1, 2, 2)),
        in_channels=_whole(config, "in_dim", 16),
        out_channels=_whole(config, "out_dim", 16),
        text_width=_whole(config, "text_dim", 4096),
        frequencies=_whole(config, "freq_dim", 256),
        cross_norm=_flag(config, "cross_attn_norm", True),
        image_width=1280 if from_image else 0,
        added_keys=width if from_image else 0,
    )
    return _of_wan(sizes, heads, width // heads, text_length=_whole(config, "text_len", 512))


def _of_wan(
    sizes: count.WanSizes, heads: int, head_dim: int, text_length: int | None = None
) -> _Sizes:
    return _Sizes(
        family="wan",
        layers=sizes.layers,
        heads=heads,
        head_dim=head_dim,
        ffn=sizes.ffn,
        parameters=count.wan(sizes),
        patch=sizes.patch,
        in_channels=sizes.in_channels,
        out_channels=sizes.out_channels,
        text_width=sizes.text_width,
        text_length=text_length,
        image_width=sizes.image_width,
    )


def _cogvideox(config: Node) -> _Sizes:
    heads = _whole(config, "num_attention_heads", 30)
    head_dim = _whole(config, "attention_head_dim", 64)
    side, depth = _whole(config, "patch_size", 2), _whole(config, "patch_size_t", 1)
    rotary = _flag(config, "use_rotary_positional_embeddings", False)
    length = _whole(config, "max_text_seq_length", 226)
    sizes = count.CogVideoXSizes(
        layers=_whole(config, "num_layers", 30),
        width=heads * head_dim,
        head_dim=head_dim,
        patch=(depth, side, side),
        in_channels=_whole(config, "in_channels", 16),
        out_channels=_whole(config, "out_channels", 16),
        text_width=_whole(config, "text_embed_dim", 4096),
        time_width=_whole(config, "time_embed_dim", 512),
        ofs_width=_optional(config, "ofs_embed_dim"),
        attention_bias=_flag(config, "attention_bias", True),
        # With patches in time diffusers always has a bias.
        patch_bias=_flag(config, "patch_bias", True) or config.find("patch_size_t") is not None,
    )
    return _Sizes(
        family="cogvideox",
        layers=sizes.layers,
        heads=heads,
        head_dim=head_dim,
        ffn=4 * sizes.width,
        parameters=count.cogvideox(sizes),
        patch=sizes.patch,
        in_channels=sizes.in_channels,
        out_channels=sizes.out_channels,
        text_width=sizes.text_width,
        text_length=length,
        rotary=rotary,
    )


def _hunyuan(config: Node) -> _Sizes:
    heads = _whole(config, "num_attention_heads", 24)
    head_dim = _whole(config, "attention_head_dim", 128)
    ratio = config.find("mlp_ratio")
    width = heads * head_dim
    side, depth = _whole(config, "patch_size", 2), _whole(config, "patch_size_t", 1)
    sizes = count.HunyuanSizes(
        layers=_whole(config, "num_layers", 20),
        single_layers=_whole(config, "num_single_layers", 40),
        refiner_layers=_whole(config, "num_refiner_layers", 2),
        width=width,
        head_dim=head_dim,
        ffn=int(width * (ratio.number() if ratio else 4.0)),
        patch=(depth, side, side),
        in_channels=_whole(config, "in_channels", 16),
        out_channels=_whole(config, "out_channels", 16),
        text_width=_whole(config, "text_embed_dim", 4096),
        pooled_width=_whole(config, "pooled_projection_dim", 768),
        guidance=_flag(config, "guidance_embeds", True),
    )
    return _Sizes(
        family="hunyuan_video",
        layers=sizes.layers + sizes.single_layers,
        single_layers=sizes.single_layers,
        heads=heads,
        head_dim=head_dim,
        ffn=sizes.ffn,
        parameters=count.hunyuan(sizes),
        patch=sizes.patch,
        in_channels=sizes.in_channels,
        out_channels=sizes.out_channels,
        text_width=sizes.text_width,
        pooled_width=sizes.pooled_width,
    )


_READERS: dict[str, Callable[[Node], _Sizes]] = {
    "WanTransformer3DModel": _wan,
    "WanModel": _wan_of_its_authors,
    "CogVideoXTransformer3DModel": _cogvideox,
    "HunyuanVideoTransformer3DModel": _hunyuan,
}
