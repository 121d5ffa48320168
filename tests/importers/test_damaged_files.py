"""Files that were damaged on the way: importers answer with an error of ours or with a result."""

import json
import random
from collections.abc import Callable
from pathlib import Path

import pytest

from arachne_opt.errors import ArachneError
from arachne_opt.importers.bucket_files import BUCKET_FORMATS
from arachne_opt.importers.cluster_facts import ClusterOptions
from arachne_opt.importers.cluster_sources import CLUSTER_FORMATS
from arachne_opt.importers.hugging_face import read_config
from arachne_opt.importers.manifests import MANIFEST_FORMATS
from arachne_opt.importers.media import ImportOptions
from arachne_opt.importers.nvidia_topology import read_topology
from arachne_opt.importers.rank_yaml import read_rank_plan
from arachne_opt.importers.video_models import read_video_model
from tests.importers import samples

TRIES = 20
OPTIONS = ImportOptions(probe=None, fps=16.0)

Reader = Callable[[Path], object]


def manifest(name: str) -> Reader:
    return lambda file: MANIFEST_FORMATS[name].read(file, OPTIONS)


def buckets(name: str) -> Reader:
    return lambda file: BUCKET_FORMATS[name].read(file, 1)


def cluster(name: str) -> Reader:
    return lambda file: CLUSTER_FORMATS[name].read(file, ClusterOptions())


CASES: dict[str, tuple[str, str, Reader]] = {
    "open-sora": ("csv", samples.OPEN_SORA, manifest("open-sora")),
    "finetrainers": ("json", samples.FINETRAINERS, manifest("finetrainers")),
    "diffusion-pipe": ("toml", samples.DIFFUSION_PIPE, manifest("diffusion-pipe")),
    "musubi": ("toml", samples.MUSUBI, manifest("musubi")),
    "musubi lines": ("jsonl", samples.MUSUBI_LINES, manifest("musubi")),
    "fastvideo": ("json", samples.FASTVIDEO, manifest("fastvideo")),
    "open-sora buckets": ("py", samples.OPEN_SORA_BUCKETS, buckets("open-sora")),
    "finetrainers buckets": ("json", samples.FINETRAINERS, buckets("finetrainers")),
    "diffusion-pipe buckets": ("toml", samples.DIFFUSION_PIPE, buckets("diffusion-pipe")),
    "musubi buckets": ("toml", samples.MUSUBI, buckets("musubi")),
    "nvidia-smi": ("csv", samples.NVIDIA_SMI, cluster("nvidia-smi")),
    "nvidia-smi xml": ("xml", samples.NVIDIA_SMI_XML, cluster("nvidia-smi")),
    "topology": ("txt", samples.TOPOLOGY, lambda f: read_topology(f.read_text(), str(f))),
    "slurm": ("txt", samples.SLURM, cluster("slurm")),
    "kubernetes": ("json", samples.KUBERNETES, cluster("kubernetes")),
    "ray": ("json", samples.RAY, cluster("ray")),
    "skypilot": ("yaml", samples.SKYPILOT, cluster("skypilot")),
    "video model": ("json", samples.VIDEO_MODEL, read_video_model),
    "language model": ("json", samples.LANGUAGE_MODEL, read_config),
    "rank plan": ("yaml", samples.RANK_PLAN, read_rank_plan),
}


def damaged(text: str, rng: random.Random) -> str:
    """A text with a piece cut out, doubled, or changed for another."""
    first = rng.randrange(len(text))
    last = min(len(text), first + rng.choice((1, 1, 2, 5, 20)))
    piece = text[first:last]
    other = rng.choice(["", piece * 2, "0", "-1", "[", "}", '"', "\n", ":", "null", "é", "1e999"])
    return text[:first] + other + text[last:]


def swapped(text: str, rng: random.Random) -> str:
    """A JSON text with one value of another kind."""
    value = json.loads(text)
    places = list(_places(value))
    holder, key = rng.choice(places)
    holder[key] = rng.choice([None, [], {}, "", "x", -1, 0, 1.5, True, [[]], {"a": 1}])
    return json.dumps(value)


def _places(value: object):
    items = value.items() if isinstance(value, dict) else enumerate(value)
    for key, below in items:
        yield value, key
        if isinstance(below, dict | list):
            yield from _places(below)


@pytest.mark.parametrize("name", CASES)
def test_a_damaged_file_never_surprises(tmp_path: Path, name: str):
    suffix, text, read = CASES[name]
    if suffix == "yaml":
        pytest.importorskip("yaml", reason="PyYAML is not installed")
    rng = random.Random(name)
    (tmp_path / "clips").mkdir()
    (tmp_path / "clips" / "a.mp4").touch()
    file = tmp_path / f"in.{suffix}"
    noticed = 0
    for number in range(TRIES):
        change = swapped if suffix == "json" and number % 2 else damaged
        file.write_text(change(text, rng), encoding="utf-8")
        noticed += answered(read, file)
    assert noticed, "no damage was noticed"


def answered(read: Reader, file: Path) -> bool:
    """Whether a reader complains about a file, as a whole or row by row."""
    try:
        found = read(file)
    except ArachneError as complaint:
        error = complaint
    else:
        return bool(getattr(found, "skipped", ()))
    assert error.exit_code == 2
    assert str(file) in str(error)
    return True


@pytest.mark.parametrize("name", CASES)
def test_the_undamaged_file_is_read(tmp_path: Path, name: str):
    suffix, text, read = CASES[name]
    if suffix == "yaml":
        pytest.importorskip("yaml", reason="PyYAML is not installed")
    (tmp_path / "clips").mkdir()
    (tmp_path / "clips" / "a.mp4").touch()
    file = tmp_path / f"in.{suffix}"
    file.write_text(text, encoding="utf-8")
    assert read(file)
