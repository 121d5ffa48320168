"""The learned model of layer rows."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from arachne_opt.costs.learned.arithmetic import stated_arithmetic, usual
from arachne_opt.costs.learned.layer_features import RowKind, row_kinds, row_samples
from arachne_opt.costs.learned.layers import (
    LearnedLayers,
    fit_layers,
    layers_from_json,
    samples_of,
)
from arachne_opt.costs.pipeline.profiles import Profiles
from arachne_opt.device_types import DEVICE_TYPES
from arachne_opt.errors import InputError
from arachne_opt.importers.pipeline_profiles import read_profiles
from tests.costs.learned_builders import QUICK

MODEL = "LLAMA-3-8"


@pytest.fixture(scope="module")
def profiles(shared_data: Path) -> Profiles:
    return read_profiles(shared_data / "pipelines" / "sailor", MODEL)


@pytest.fixture(scope="module")
def model(profiles: Profiles) -> LearnedLayers:
    return fit_layers("pool", samples_of([profiles]), 0.07, replace(QUICK, members=1))


def test_rows_are_told_apart_by_their_sizes(profiles: Profiles) -> None:
    kinds = row_kinds(profiles.model)
    assert kinds[0] is RowKind.EMBEDDING
    assert set(kinds[1:33]) == {RowKind.BLOCK}
    assert kinds[33:] == (RowKind.NORM, RowKind.HEAD)


def test_a_sample_stands_for_all_rows_of_a_kind(profiles: Profiles) -> None:
    found = samples_of([profiles])
    assert len(found) == 4 * len(profiles.steps)
    assert sorted(r for s in found[:4] for r in s.rows) == list(range(35))


def test_times_rise_with_the_micro_batch_and_terms_follow_the_sheet(profiles: Profiles) -> None:
    point = next(s.point for s in samples_of([profiles]) if s.point.kind is RowKind.BLOCK)
    faster = replace(point, device_type=DEVICE_TYPES["H100-80"])
    double = replace(point, microbatch=2 * point.microbatch)
    for which in ("forward", "backward"):
        terms = row_samples([point, faster, double], which).terms
        assert terms[1].sum() < terms[0].sum() < terms[2].sum()


def test_missing_types_and_degrees_are_filled_in_and_said(
    profiles: Profiles, model: LearnedLayers
) -> None:
    types = {name: DEVICE_TYPES[name] for name in ("GH-96", "H100-80")}
    filled = model.filled(profiles, types, microbatches=(1, 2, 3), degrees=(1, 2, 4))
    added = [s for s in filled.steps if s.error is not None]
    assert filled.steps[: len(profiles.steps)] == profiles.steps
    # Between measured points of GH-96; all of the type that nobody measured.
    assert {s.key for s in added if s.device_type == "GH-96"} == {("GH-96", 4, 3)}
    assert len([s for s in added if s.device_type == "H100-80"]) == 9
    assert all(len(s.forward_s) == profiles.model.row_count for s in added)
    assert "predicted by pool, mean error 7%" in filled.notes[-1]
    assert "outside its support" in filled.notes[-1]
    assert any(r.source.device_type == "H100-80" for r in filled.routes)


def test_risk_lengthens_predicted_steps_only(profiles: Profiles, model: LearnedLayers) -> None:
    types = {"H100-80": DEVICE_TYPES["H100-80"]}
    middle, cautious = (
        model.filled(profiles, types, microbatches=(1,), degrees=(4,), risk=risk)
        for risk in (None, 0.9)
    )
    assert middle.version != cautious.version
    assert sum(cautious.steps[-1].forward_s) > sum(middle.steps[-1].forward_s)
    assert cautious.steps[:-1] == middle.steps[:-1]


def test_nothing_to_fill_leaves_the_profiles_alone(
    profiles: Profiles, model: LearnedLayers
) -> None:
    types = {"GH-96": DEVICE_TYPES["GH-96"]}
    assert model.filled(profiles, types, microbatches=(1,), degrees=(1,)) is profiles


def test_json_keeps_the_model(profiles: Profiles, model: LearnedLayers) -> None:
    read = layers_from_json(json.loads(json.dumps(model.to_json())), "file")
    assert read.version == model.version
    points = [s.point for s in samples_of([profiles])]
    for which, found in model.passes.items():
        asked = row_samples(points, which)
        assert np.allclose(
            read.passes[which].predict(asked).logs, found.predict(asked).logs, atol=1e-3
        )
    with pytest.raises(InputError, match="damaged"):
        layers_from_json({**model.to_json(), "passes": {}}, "file")
    with pytest.raises(InputError, match="format"):
        layers_from_json({}, "file")


def test_no_rows_are_an_error() -> None:
    with pytest.raises(InputError, match="no measured rows"):
        fit_layers("pool", (), 0.1, QUICK)


def test_the_stated_arithmetic_reaches_the_features(profiles: Profiles) -> None:
    told = samples_of([profiles], stated_arithmetic([f"{MODEL}:A100-40=single"]))
    pairs = zip(told, samples_of([profiles], usual), strict=True)
    changed = {a.point.device_type.name for a, b in pairs if a.point != b.point}
    assert changed == {"A100-40"}
