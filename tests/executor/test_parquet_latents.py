"""Latents and embeddings of many clips in one Parquet file."""

import sys
from dataclasses import replace

import pytest
import torch
from safetensors.torch import save_file

from arachne_opt.errors import InputError, MissingDependencyError
from arachne_opt.executor.file_scan import scan_files
from arachne_opt.executor.model_config import ModelChoice
from arachne_opt.executor.parquet_latents import Stored, read_row, write_rows
from arachne_opt.executor.pixel_files import check_files
from arachne_opt.executor.samples import Request, SampleReader
from arachne_opt.workload import Clip, MicroBatch
from tests.executor.jobs import ODD

pytest.importorskip("pyarrow", reason="needs the extra parquet")
CONFIG = ModelChoice(preset="toy").config()
SIZE = (4, 3, 6, 10)


def stored(tensor):
    kind = str(tensor.dtype).removeprefix("torch.")
    data = bytes(tensor.contiguous().view(torch.uint8).numpy())
    return Stored(data, tuple(tensor.shape), kind)


@pytest.fixture
def tensors():
    torch.manual_seed(0)
    return {
        f"c{i}": {"latents": torch.randn(SIZE), "text": torch.randn(3 + i % 4, CONFIG.text_dim)}
        for i in range(20)
    }


@pytest.fixture
def file(tmp_path, tensors):
    """Twenty clips in three row groups; some without a text, one in half precision."""
    path = tmp_path / "many.parquet"
    del tensors["c7"]["text"]
    tensors["c9"]["latents"] = tensors["c9"]["latents"].bfloat16()
    rows = ((clip, {k: stored(t) for k, t in kept.items()}) for clip, kept in tensors.items())
    write_rows(path, rows)
    return path


def clip_of(name, file):
    return Clip(id=name, shape=ODD, latents=str(file))


def test_every_clip_is_read_as_it_would_be_from_a_file_of_its_own(file, tensors, tmp_path):
    reader = SampleReader(CONFIG)
    for name, kept in tensors.items():
        alone = tmp_path / f"{name}.safetensors"
        save_file(kept, alone)
        one, many = clip_of(name, alone), clip_of(name, file)
        for kind, part in (("latents", {"first": 1, "last": 3}), ("embeddings", {})):
            wanted = reader.read(Request(kind=kind, clip=one, shape=ODD, **part))
            found = reader.read(Request(kind=kind, clip=many, shape=ODD, **part))
            if kind == "latents":
                assert torch.equal(found, wanted)
                continue
            assert found.keys() == wanted.keys()
            assert all(torch.equal(found[key], wanted[key]) for key in wanted)


def test_files_are_checked_before_a_run_and_scanned(file):
    good = clip_of("c3", file)
    check_files((MicroBatch(id="b", shape=ODD, clips=(good,)),), CONFIG)
    other = replace(ODD, width=48)
    with pytest.raises(InputError, match=r"\(4, 3, 6, 10\), clips of 9x48x48 need"):
        check_files((MicroBatch(id="b", shape=other, clips=(good,)),), CONFIG)
    bad = scan_files((good, clip_of("unknown", file), clip_of("c9", file)))
    assert [(entry.id, "no row of the clip" in entry.reason) for entry in bad] == [
        ("unknown", True)
    ]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"data": b"1234"}, "has 4 bytes"),
        ({"dtype": "int8"}, "is of 'int8', not"),
    ],
)
def test_damaged_rows_are_named(tmp_path, change, message):
    broken = stored(torch.randn(SIZE))._replace(**change)
    write_rows(tmp_path / "bad.parquet", [("a", {"latents": broken})])
    with pytest.raises(InputError, match=message):
        read_row(str(tmp_path / "bad.parquet"), "a")
    (tmp_path / "no.parquet").write_bytes(b"no parquet at all")
    with pytest.raises(InputError, match="cannot read"):
        read_row(str(tmp_path / "no.parquet"), "a")


def test_a_file_that_is_written_anew_is_read_anew(tmp_path):
    path = tmp_path / "many.parquet"
    write_rows(path, [("a", {"latents": stored(torch.zeros(SIZE))})])
    assert read_row(str(path), "a")
    write_rows(path, [("b", {"latents": stored(torch.zeros(SIZE))})])
    with pytest.raises(InputError, match="no row of the clip"):
        read_row(str(path), "a")


def test_without_pyarrow_the_extra_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(MissingDependencyError, match="PyArrow") as caught:
        read_row("many.parquet", "a")
    assert "arachne-opt[parquet]" in str(caught.value)
