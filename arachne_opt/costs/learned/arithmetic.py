"""Arithmetic of matrix products and the peak rates of data sheets for it.

A device type's own peak is that of half precision. Single precision and TF32, dense, in TFLOP/s:
NVIDIA V100, A100, H100, H200, L4, L40S, A10G and GH200 data sheets; GA102, Ada and Turing white
papers (the 2080 is the 2080 Ti). The GA102 cards' TF32 rate equals their single-precision one.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterable

from arachne_opt.cluster import DeviceType
from arachne_opt.errors import InputError

_T = 10**12

# name: single precision, TF32; 0 where the cores cannot do it
_RATES: dict[str, tuple[float, float]] = {
    "V100-16": (15.7, 0),
    "V100-32": (15.7, 0),
    "T4": (8.1, 0),
    "A100-40": (19.5, 156),
    "A100-80": (19.5, 156),
    "A800": (19.5, 156),
    "H100-80": (67, 494.7),
    "H800": (67, 494.7),
    "H200-141": (67, 494.7),
    "GH-96": (67, 494.7),
    "L4": (30.3, 60),
    "L40S": (91.6, 183),
    "A10G": (31.2, 35),
    "RTX-3090": (35.6, 35.6),
    "RTX-4090": (82.6, 82.6),
    "Titan-RTX": (16.3, 0),
    "RTX-2080": (13.4, 0),
}


class Arithmetic(enum.StrEnum):
    """How matrix products are computed."""

    SINGLE = "single"
    TF32 = "tf32"
    HALF = "half"


def peak_flops_per_s(kind: DeviceType, arithmetic: Arithmetic) -> float:
    """Peak of a device type; half of the half-precision one where no sheet is known."""
    if arithmetic is Arithmetic.HALF:
        return float(kind.peak_flops_per_s)
    single, tf32 = _RATES.get(kind.name, (0.0, 0.0))
    wanted = tf32 if arithmetic is Arithmetic.TF32 else single
    return wanted * _T if wanted else kind.peak_flops_per_s / 2


def usual_arithmetic(kind: DeviceType) -> Arithmetic:
    """What 32-bit training uses where nobody says otherwise: TF32 where it is faster."""
    single, tf32 = _RATES.get(kind.name, (0.0, 0.0))
    return Arithmetic.TF32 if tf32 > single else Arithmetic.SINGLE


ArithmeticOf = Callable[[str, DeviceType], Arithmetic]


def usual(model: str, kind: DeviceType) -> Arithmetic:
    """The usual arithmetic of a type, whatever the model."""
    return usual_arithmetic(kind)


def stated_arithmetic(entries: Iterable[str]) -> ArithmeticOf:
    """What entries such as ``OPT-30:A100-40=single`` state, and the usual one elsewhere.

    Raises:
        InputError: an entry cannot be read.
    """
    stated: dict[tuple[str, str], Arithmetic] = {}
    for entry in entries:
        place, equals, name = entry.partition("=")
        model, colon, kind = place.partition(":")
        if not (equals and colon and name in list(Arithmetic)):
            hint = "MODEL:TYPE=single, =tf32 or =half"
            raise InputError(f"cannot read the arithmetic {entry!r}", hint=hint)
        stated[model, kind] = Arithmetic(name)

    def found(model: str, kind: DeviceType) -> Arithmetic:
        return stated.get((model, kind.name)) or usual(model, kind)

    return found
