"""All formats of bucket configurations by name, and which one a file is in."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

from arachne_opt.importers import (
    diffusion_pipe,
    fastvideo,
    finetrainers,
    musubi,
    open_sora_buckets,
    trainer_buckets,
)
from arachne_opt.importers.bucket_sizes import ImportedBuckets
from arachne_opt.importers.sniff import recognised


@dataclass(frozen=True, slots=True, kw_only=True)
class BucketFormat:
    """A format of bucket configurations.

    Args:
        about: what a user has of it.
        recognise: why a file looks like it, empty where it does not.
        read: the table of a file; takes the clips of a batch where the file does not say.
    """

    about: str
    recognise: Callable[[Path], str]
    read: Callable[[Path, int], ImportedBuckets]


BUCKET_FORMATS: Mapping[str, BucketFormat] = MappingProxyType(
    {
        "open-sora": BucketFormat(
            about="Python with bucket_config",
            recognise=open_sora_buckets.recognise,
            read=open_sora_buckets.read,
        ),
        "diffusion-pipe": BucketFormat(
            about="TOML with [[directory]]",
            recognise=diffusion_pipe.recognise,
            read=trainer_buckets.diffusion_pipe_buckets,
        ),
        "musubi": BucketFormat(
            about="TOML with [[datasets]]",
            recognise=musubi.recognise,
            read=trainer_buckets.musubi_buckets,
        ),
        "fastvideo": BucketFormat(
            about="Parquet with latents",
            recognise=fastvideo.recognise,
            read=trainer_buckets.fastvideo_buckets,
        ),
        "finetrainers": BucketFormat(
            about="JSON with datasets",
            recognise=finetrainers.recognise,
            read=trainer_buckets.finetrainers_buckets,
        ),
    }
)


def recognise_buckets(source: Path) -> tuple[str, str]:
    """Name of the format of a bucket configuration, and what it was recognised by.

    Raises:
        InputError: it is in no known format, or cannot be read.
    """
    tests = {name: (entry.recognise, entry.about) for name, entry in BUCKET_FORMATS.items()}
    return recognised(source, tests)
