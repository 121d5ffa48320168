"""Public data sheets."""

import pytest

from arachne_opt.device_types import (
    DEVICE_TYPES,
    default_inter_link,
    default_intra_link,
    device_type,
)
from arachne_opt.errors import InputError


def test_all_promised_types_are_there() -> None:
    promised = "A100-40 A100-80 H100-80 H200-141 H800 A800 V100-16 V100-32 L4 L40S A10G T4"
    promised += " RTX-3090 RTX-4090 GH-96 B200 MI300X CPU"
    assert set(promised.split()) <= set(DEVICE_TYPES)


@pytest.mark.parametrize("name", list(DEVICE_TYPES))
def test_the_name_tells_the_memory_where_it_holds_a_number(name: str) -> None:
    tail = name.rpartition("-")[2]
    if tail.isdecimal() and not name.startswith("RTX"):
        assert device_type(name).memory_bytes == int(tail) * 2**30


@pytest.mark.parametrize("name", list(DEVICE_TYPES))
def test_memory_is_faster_than_links_and_links_than_nothing(name: str) -> None:
    link = default_intra_link(name)
    assert link is not None
    assert 0 < link.bandwidth_bytes_per_s < DEVICE_TYPES[name].memory_bandwidth_bytes_per_s


@pytest.mark.parametrize(
    ("typed", "meant"), [("H100", "H100-80"), ("h200-141", "H200-141"), ("RTX4090", "RTX-4090")]
)
def test_an_unknown_type_is_guessed(typed: str, meant: str) -> None:
    with pytest.raises(InputError, match=f"did you mean '{meant}'"):
        device_type(typed)


def test_nothing_is_guessed_from_nonsense() -> None:
    with pytest.raises(InputError) as caught:
        device_type("banana")
    assert "did you mean" not in str(caught.value)
    assert "A100-80" in str(caught.value)


def test_the_network_follows_the_slowest_type() -> None:
    both = {name: DEVICE_TYPES[name] for name in ("H100-80", "A100-80")}
    assert default_inter_link(both).bandwidth_bytes_per_s == 25 * 10**9
    assert default_intra_link("own") is None
