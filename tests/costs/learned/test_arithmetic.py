"""Peak rates by arithmetic."""

import pytest

from arachne_opt.costs.learned.arithmetic import (
    Arithmetic,
    peak_flops_per_s,
    stated_arithmetic,
    usual_arithmetic,
)
from arachne_opt.device_types import DEVICE_TYPES
from arachne_opt.errors import InputError

A100, V100 = DEVICE_TYPES["A100-40"], DEVICE_TYPES["V100-16"]


def test_tf32_is_usual_where_the_cores_have_it() -> None:
    assert usual_arithmetic(A100) is Arithmetic.TF32
    assert usual_arithmetic(V100) is Arithmetic.SINGLE
    assert usual_arithmetic(DEVICE_TYPES["CPU"]) is Arithmetic.SINGLE


def test_peaks_are_those_of_the_sheets() -> None:
    peaks = [peak_flops_per_s(A100, kind) / 1e12 for kind in Arithmetic]
    assert peaks == [19.5, 156, 312]


def test_statements_are_read_and_nonsense_is_refused() -> None:
    found = stated_arithmetic(["OPT-30:A100-40=single"])
    assert found("OPT-30", A100) is Arithmetic.SINGLE
    assert found("OPT-350", A100) is Arithmetic.TF32
    for wrong in ("OPT-30=single", "OPT-30:A100-40", "OPT-30:A100-40=double"):
        with pytest.raises(InputError, match="cannot read"):
            stated_arithmetic([wrong])
