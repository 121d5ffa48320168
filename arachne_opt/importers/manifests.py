"""All formats of manifests by name, and which one a file is in."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

from arachne_opt.importers import diffusion_pipe, fastvideo, finetrainers, musubi, open_sora
from arachne_opt.importers.media import Imported, ImportOptions
from arachne_opt.importers.sniff import recognised


@dataclass(frozen=True, slots=True, kw_only=True)
class ManifestFormat:
    """A format of manifests.

    Args:
        about: what a user has of it.
        recognise: why a file or folder looks like it, empty where it does not.
    """

    about: str
    recognise: Callable[[Path], str]
    read: Callable[[Path, ImportOptions], Imported]


MANIFEST_FORMATS: Mapping[str, ManifestFormat] = MappingProxyType(
    {
        "open-sora": ManifestFormat(
            about="CSV or Parquet with path and text",
            recognise=open_sora.recognise,
            read=open_sora.read,
        ),
        "diffusion-pipe": ManifestFormat(
            about="TOML with [[directory]], or a folder with captions.json",
            recognise=diffusion_pipe.recognise,
            read=diffusion_pipe.read,
        ),
        "musubi": ManifestFormat(
            about="TOML with [[datasets]], or JSON lines with video_path",
            recognise=musubi.recognise,
            read=musubi.read,
        ),
        "fastvideo": ManifestFormat(
            about="Parquet with latents, or videos2caption.json",
            recognise=fastvideo.recognise,
            read=fastvideo.read,
        ),
        "finetrainers": ManifestFormat(
            about="JSON with datasets, metadata.csv, .jsonl or .json, or a folder of clips",
            recognise=finetrainers.recognise,
            read=finetrainers.read,
        ),
    }
)


def recognise_manifest(source: Path) -> tuple[str, str]:
    """Name of the format of a manifest, and what it was recognised by.

    Raises:
        InputError: it is in no known format, or cannot be read.
    """
    tests = {name: (entry.recognise, entry.about) for name, entry in MANIFEST_FORMATS.items()}
    return recognised(source, tests)
