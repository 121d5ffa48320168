"""Times and rates with units."""

import pytest

from arachne_opt.errors import InputError
from arachne_opt.units import parse_flops, parse_time_us


@pytest.mark.parametrize(
    ("text", "time_us"), [("5 us", 5), ("1.5 ms", 1500), ("2s", 2_000_000), ("0.5 us", 1)]
)
def test_times_become_microseconds_rounded_up(text: str, time_us: int) -> None:
    assert parse_time_us(text) == time_us


def test_rates_become_operations_per_second() -> None:
    assert parse_flops("989.4 TFLOP/s") == 989_400_000_000_000
    assert parse_flops("1 PFLOP/s") == 10**15


@pytest.mark.parametrize("text", ["5", "us", "5 min", "-5 us", "5 us us"])
def test_other_times_are_refused_with_the_place(text: str) -> None:
    with pytest.raises(InputError, match="here: "):
        parse_time_us(text, where="here")


def test_other_rates_are_refused() -> None:
    with pytest.raises(InputError, match="unknown rate unit 'TFLOPS'"):
        parse_flops("989 TFLOPS")
