"""Policy files are read whole or refused by name."""

import logging

import numpy as np
import pytest

from arachne_opt.errors import InputError
from arachne_opt.solvers.seeds import policy_file
from arachne_opt.solvers.seeds.policy_file import (
    CASCADES,
    FEATURES,
    LARGEST_BYTES,
    TEMPLATES,
    pack_policy,
    read_policy,
    unpack_policy,
)
from arachne_opt.solvers.seeds.shipped import policy_or_none, shipped_path

WEIGHTS = {
    "cells.0.weight": np.arange(12, dtype=np.float32).reshape(3, 4) / 7,
    "cells.0.bias": np.array([1.5, -2, 0], dtype=np.float32),
}


def packed(report=None) -> bytes:
    return pack_policy(TEMPLATES, report or {"command": "arachne learn"}, WEIGHTS)


def test_a_policy_comes_back_as_it_was_written(tmp_path):
    path = tmp_path / "p.safetensors"
    path.write_bytes(packed())
    found = read_policy(path, TEMPLATES)
    assert found.report == {"command": "arachne learn"}
    assert found.tensors.keys() == WEIGHTS.keys()
    for name, values in WEIGHTS.items():
        assert (found.tensors[name] == values).all()


def test_equal_weights_have_one_version_whatever_the_report_says():
    one, other = (unpack_policy(packed({"n": n}), TEMPLATES, where="x") for n in (1, 2))
    assert one.version == other.version
    changed = WEIGHTS | {"cells.0.bias": np.zeros(3, dtype=np.float32)}
    third = unpack_policy(pack_policy(TEMPLATES, {}, changed), TEMPLATES, where="x")
    assert third.version != one.version


def test_the_files_are_safetensors(tmp_path):
    numpy_reader = pytest.importorskip("safetensors.numpy")
    found = numpy_reader.load(packed())
    assert (found["cells.0.weight"] == WEIGHTS["cells.0.weight"]).all()


@pytest.mark.parametrize("place", ["length", "header", "weights", "end"])
def test_a_damaged_file_is_refused_by_name(tmp_path, place):
    data = bytearray(packed())
    if place == "end":
        data = data[:-3]
    else:
        at = {"length": 1, "header": 30, "weights": len(data) - 5}[place]
        data[at] ^= 0x55
    path = tmp_path / "broken.safetensors"
    path.write_bytes(data)
    with pytest.raises(InputError, match=r"broken\.safetensors.*damaged"):
        read_policy(path, TEMPLATES)


@pytest.mark.parametrize(("shift", "word"), [(-1, "older"), (1, "newer")])
def test_a_policy_for_other_features_is_refused_by_name(monkeypatch, shift, word):
    monkeypatch.setitem(policy_file.FEATURES, TEMPLATES, FEATURES[TEMPLATES] + shift)
    data = packed()
    monkeypatch.undo()
    with pytest.raises(InputError, match=f"policy x.*{word} version of its features"):
        unpack_policy(data, TEMPLATES, where="policy x")


def test_a_policy_for_something_else_is_refused():
    with pytest.raises(InputError, match="for templates, not for cascades"):
        unpack_policy(packed(), CASCADES, where="x")


def test_a_policy_that_is_too_large_to_ship_is_not_written():
    much = {"w": np.zeros(LARGEST_BYTES // 4, dtype=np.float32)}
    with pytest.raises(InputError, match="larger than"):
        pack_policy(TEMPLATES, {}, much)


def test_searches_do_without_a_file_that_cannot_be_used(tmp_path, caplog):
    path = tmp_path / "none.safetensors"
    with caplog.at_level(logging.WARNING):
        assert policy_or_none(path, TEMPLATES) is None
    assert str(path) in caplog.text


@pytest.mark.parametrize("name", [CASCADES, TEMPLATES])
def test_the_shipped_policies_are_sound_and_say_how_they_were_made(name):
    path = shipped_path(name)
    assert path.stat().st_size < LARGEST_BYTES
    found = read_policy(path, name)
    assert found.report["command"].startswith(f"arachne learn {name} --count")
    assert found.report["held_out"] > 0
