"""The one place where floats become integers: times round up, capacities round down."""

from __future__ import annotations

import math
import re

from arachne_opt.errors import InputError

US_PER_S = 1_000_000
PPM = 1_000_000

# A decimal such as 12.802 is no binary float: without this slack it would gain a microsecond.
_ROUNDING_SLACK = 1e-4

_SIZE = {"B": 1, "kB": 10**3, "KB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12}
_SIZE |= {"KiB": 2**10, "MiB": 2**20, "GiB": 2**30, "TiB": 2**40}
_BITS = {"bit": 1, "kbit": 10**3, "Mbit": 10**6, "Gbit": 10**9, "Tbit": 10**12}
_TIME_US = {"us": 1, "ms": 10**3, "s": 10**6}
_FLOPS = {"GFLOP/s": 10**9, "TFLOP/s": 10**12, "PFLOP/s": 10**15}
_QUANTITY = re.compile(r"\s*([0-9]+(?:\.[0-9]+)?)\s*([A-Za-z/]+)\s*")


def us_from_seconds(seconds: float) -> int:
    """Microseconds that surely hold ``seconds``, rounded up."""
    if not math.isfinite(seconds):
        raise InputError(f"a time must be finite, not {seconds}")
    return math.ceil(seconds * US_PER_S - _ROUNDING_SLACK)


def seconds_from_us(duration_us: int) -> float:
    """Seconds as a float, exact to the microsecond for every time below 100 years."""
    return duration_us / US_PER_S


def scale_up(duration_us: int, factor_ppm: int) -> int:
    """``duration_us`` times ``factor_ppm`` millionths, rounded up, in integers only."""
    return -(-duration_us * factor_ppm // PPM)


def parse_bytes(text: str, *, where: str | None = None) -> int:
    """Bytes of a size such as ``"80 GiB"`` or ``"512 MB"``, rounded down."""
    value, unit = _split(text, where)
    if unit not in _SIZE:
        raise InputError(f"unknown size unit {unit!r}", where=where, hint='"80 GiB" or "80 GB"')
    return math.floor(value * _SIZE[unit])


def parse_bandwidth(text: str, *, where: str | None = None) -> int:
    """Bytes per second of a rate such as ``"450 GB/s"`` or ``"400 Gbit/s"``, rounded down."""
    value, unit = _split(text, where)
    head, _, per = unit.partition("/")
    if per == "s" and head in _SIZE:
        return math.floor(value * _SIZE[head])
    if per == "s" and head in _BITS:
        return math.floor(value * _BITS[head] / 8)
    hint = '"450 GB/s" or "400 Gbit/s"'
    raise InputError(f"unknown bandwidth unit {unit!r}", where=where, hint=hint)


def parse_time_us(text: str, *, where: str | None = None) -> int:
    """Microseconds of a time such as ``"5 us"`` or ``"1.5 ms"``, rounded up."""
    value, unit = _split(text, where)
    if unit not in _TIME_US:
        raise InputError(f"unknown time unit {unit!r}", where=where, hint='"5 us" or "1 ms"')
    return us_from_seconds(value * _TIME_US[unit] / US_PER_S)


def parse_flops(text: str, *, where: str | None = None) -> int:
    """Operations per second of a rate such as ``"989 TFLOP/s"``, rounded down."""
    value, unit = _split(text, where)
    if unit not in _FLOPS:
        raise InputError(f"unknown rate unit {unit!r}", where=where, hint='"989 TFLOP/s"')
    return math.floor(value * _FLOPS[unit])


def format_bytes(size: int) -> str:
    """A size for people, such as ``91.2 GiB``."""
    for unit in ("TiB", "GiB", "MiB", "KiB"):
        if size >= _SIZE[unit]:
            return f"{size / _SIZE[unit]:.1f} {unit}"
    return f"{size} B"


def format_seconds(duration_us: int) -> str:
    """A time for people: ``43.699 s``, or milliseconds below one tenth of a second."""
    if duration_us < US_PER_S // 10:
        return f"{duration_us / 1000:.3f} ms"
    return f"{duration_us / US_PER_S:.3f} s"


def _split(text: str, where: str | None) -> tuple[float, str]:
    match = _QUANTITY.fullmatch(text)
    if match is None:
        raise InputError(f"cannot read the quantity {text!r}", where=where, hint='"80 GiB"')
    return float(match[1]), match[2]
