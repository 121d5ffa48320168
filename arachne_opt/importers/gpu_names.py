"""Device types by the names that drivers, schedulers and clouds give them.

Where a name leaves the memory open (``a100``), the smaller card is taken, so that plans surely fit.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace

from arachne_opt.cluster import DeviceType
from arachne_opt.device_types import DEVICE_TYPES, device_type
from arachne_opt.errors import InputError
from arachne_opt.suggest import did_you_mean

_GIB = 2**30
# Cards of one family by memory in GiB; the smallest first.
_FAMILIES: Mapping[str, tuple[str, ...]] = {
    "A100": ("A100-40", "A100-80"),
    "V100": ("V100-16", "V100-32"),
    "H100": ("H100-80",),
    "H200": ("H200-141",),
    "H800": ("H800",),
    "A800": ("A800",),
    "B200": ("B200",),
    "GH200": ("GH-96",),
    "T4": ("T4",),
    "L4": ("L4",),
    "L40S": ("L40S",),
    "A10G": ("A10G",),
    "RTX3090": ("RTX-3090",),
    "RTX4090": ("RTX-4090",),
    "TITANRTX": ("Titan-RTX",),
    "RTX2080TI": ("RTX-2080",),
    "MI300X": ("MI300X",),
}
_MAKERS = ("NVIDIA", "AMD", "TESLA", "GEFORCE", "INSTINCT")
_MEMORY = re.compile(r"(?<![A-Z0-9.])(\d{1,3})\s?-?GI?B?(?![A-Z0-9])")
# A card with another amount of memory than its data sheet by more than this is another card.
_SLACK = 0.12


def gpu_type(
    name: str,
    *,
    memory_bytes: int | None = None,
    chosen: Mapping[str, DeviceType] | None = None,
) -> tuple[DeviceType, str]:
    """The device type of a name, and what was assumed; empty where nothing was.

    Args:
        name: such as ``NVIDIA A100-SXM4-80GB``, ``a100`` or ``accelerator_type:A100-80G``.
        memory_bytes: memory that the device reports.
        chosen: what the user says about names, in lower case; goes before all else.

    Raises:
        InputError: no such type is known.
    """
    if chosen and name.lower() in chosen:
        return chosen[name.lower()], ""
    if name in DEVICE_TYPES:
        return device_type(name), ""
    family = _family(name)
    if family is None:
        near = did_you_mean(name, [*DEVICE_TYPES, *_FAMILIES])
        hint = f"--type '{name}=TYPE' with one of {', '.join(DEVICE_TYPES)}"
        raise InputError(f"no device type is known as {name!r}{near}", hint=hint)
    cards = [DEVICE_TYPES[card] for card in _FAMILIES[family]]
    # GH200 480GB tells the memory of its processor.
    told = memory_bytes or (_memory_in(name) if len(cards) > 1 else None)
    if told is None and len(cards) == 1:
        return cards[0], ""
    if told is None:
        other = ", ".join(card.name for card in cards[1:])
        text = f"{name} is taken as {cards[0].name}, the smaller card; --type '{name}={other}'"
        return cards[0], text
    card = min(cards, key=lambda c: abs(c.memory_bytes - told))
    if abs(card.memory_bytes - told) <= _SLACK * card.memory_bytes:
        return card, ""
    own = replace(card, name=f"{family}-{round(told / _GIB)}", memory_bytes=told)
    return own, f"{name} has {told / _GIB:.0f} GiB; else it is taken as {card.name}"


def _family(name: str) -> str | None:
    """The family that the first words of a name, without the maker's, are the name of."""
    words = [w for w in re.findall(r"[A-Z0-9]+", name.upper()) if w not in _MAKERS]
    for count in (3, 2, 1):
        joined = "".join(words[:count])
        if joined in _FAMILIES:
            return joined
    return None


def _memory_in(name: str) -> int | None:
    """Memory that a name tells, such as 80GB or 80G."""
    match = _MEMORY.search(re.sub(r"[_:]", "-", name.upper()).replace("-", " "))
    return int(match[1]) * _GIB if match else None
