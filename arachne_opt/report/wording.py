"""How reports say numbers."""

from __future__ import annotations

from collections.abc import Iterable

from arachne_opt.units import US_PER_S


def seconds(duration_us: int) -> str:
    """A time in three or more digits: ``43.7 s``, ``812 ms``, ``95 µs``."""
    if duration_us >= 100 * US_PER_S:
        return f"{duration_us / US_PER_S:.0f} s"
    if duration_us >= US_PER_S:
        return f"{duration_us / US_PER_S:.3g} s"
    if duration_us >= 1000:
        return f"{duration_us / 1000:.3g} ms"
    return f"{duration_us} µs"


def device_time(area_us: int) -> str:
    """Devices times time: ``102 device-seconds``."""
    return (
        f"{area_us / US_PER_S:.3g} device-seconds"
        if area_us < 1e9
        else (f"{area_us / US_PER_S:.0f} device-seconds")
    )


def percent(share: float) -> str:
    """A share such as 0.0412 as ``4.1 %``."""
    return f"{100 * share:.1f} %"


def count(number: int, noun: str) -> str:
    """``1 task``, ``2 tasks``."""
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


def spans_of(numbers: Iterable[int]) -> list[int]:
    """Runs of numbers as first and length in turn: 0 1 2 6 is 0 3 6 1."""
    found: list[int] = []
    for number in sorted(numbers):
        if found and found[-2] + found[-1] == number:
            found[-1] += 1
        else:
            found += [number, 1]
    return found
