"""Public data sheets of accelerators.

Memory is the size as sold (GiB), the peak is the dense half-precision tensor rate with 32-bit
accumulation, links count one direction. Sources, each the vendor's own paper:

- V100: NVIDIA V100 data sheet (SXM2: 125 TFLOP/s, 900 GB/s, NVLink 300 GB/s both ways).
- T4: NVIDIA T4 data sheet. L4, L40S: NVIDIA L4 and L40S data sheets.
- A10G: NVIDIA A10G data sheet (70 TFLOP/s; the A10 is another card).
- A100: NVIDIA A100 data sheet (SXM, 40 and 80 GB). A800: the same with NVLink at 400 GB/s.
- H100, H800: NVIDIA H100 data sheet (SXM; half of the figures with sparsity), H800 with NVLink at
  400 GB/s. H200: NVIDIA H200 data sheet. GH-96: GH200 data sheet, HBM3 version.
- B200: NVIDIA DGX B200 data sheet, an eighth of the system (1,440 GB, 36 PFLOP/s with sparsity).
- RTX-3090, RTX-4090: NVIDIA GA102 and Ada white papers, appendix tables.
- Titan-RTX, RTX-2080: NVIDIA Turing white paper, appendix tables. RTX-2080 is the 2080 Ti of 11 GB,
  which the public pipeline profiles call so.
- MI300X: AMD Instinct MI300X data sheet.
- CPU: no vendor's figures; one process of a test machine.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from arachne_opt.cluster import DeviceType, Link
from arachne_opt.errors import InputError
from arachne_opt.suggest import did_you_mean

_GIB, _G, _T = 2**30, 10**9, 10**12

# name: memory GiB, peak TFLOP/s, memory GB/s, link inside a node GB/s, network per device Gbit/s
_SHEETS: dict[str, tuple[float, float, float, float, float]] = {
    "V100-16": (16, 125, 900, 150, 100),
    "V100-32": (32, 125, 900, 150, 100),
    "T4": (16, 65, 320, 16, 25),
    "L4": (24, 121, 300, 32, 100),
    "L40S": (48, 362, 864, 32, 100),
    "A10G": (24, 70, 600, 32, 100),
    "A100-40": (40, 312, 1555, 300, 200),
    "A100-80": (80, 312, 2039, 300, 200),
    "A800": (80, 312, 2039, 200, 200),
    "H100-80": (80, 989.4, 3350, 450, 400),
    "H800": (80, 989.4, 3350, 200, 400),
    "H200-141": (141, 989.4, 4800, 450, 400),
    "GH-96": (96, 989.4, 4000, 450, 200),
    "B200": (180, 2250, 8000, 900, 400),
    "RTX-3090": (24, 71, 936, 32, 100),
    "RTX-4090": (24, 165.2, 1008, 32, 100),
    "Titan-RTX": (24, 130.5, 672, 16, 25),
    "RTX-2080": (11, 56.9, 616, 16, 25),
    "MI300X": (192, 1307.4, 5300, 448, 400),
    "CPU": (8, 0.05, 10, 5, 10),
}

_LINK_LATENCY_US = {"T4": 10, "L4": 10, "L40S": 10, "A10G": 10, "RTX-3090": 10, "RTX-4090": 10}
_LINK_LATENCY_US |= {"Titan-RTX": 10, "RTX-2080": 10}
_LINK_LATENCY_US["CPU"] = 100
_DEFAULT_LINK_LATENCY_US = 5
_NETWORK_LATENCY_US = 10

DEVICE_TYPES: Mapping[str, DeviceType] = MappingProxyType(
    {
        name: DeviceType(
            name=name,
            memory_bytes=int(memory * _GIB),
            peak_flops_per_s=round(peak * _T),
            memory_bandwidth_bytes_per_s=round(rate * _G),
        )
        for name, (memory, peak, rate, _, _) in _SHEETS.items()
    }
)


def device_type(name: str, *, where: str | None = None) -> DeviceType:
    """The public data sheet of a device type.

    Raises:
        InputError: no such type; the message offers the nearest name.
    """
    if name not in DEVICE_TYPES:
        what = f"unknown device type {name!r}{did_you_mean(name, DEVICE_TYPES)}"
        hint = f"one of {', '.join(DEVICE_TYPES)}, or describe your own in [[device_type]]"
        raise InputError(what, where=where, hint=hint)
    return DEVICE_TYPES[name]


def default_intra_link(name: str) -> Link | None:
    """NVLink, Infinity Fabric or PCIe of a node of this type; None for a type we do not know."""
    if name not in _SHEETS:
        return None
    latency_us = _LINK_LATENCY_US.get(name, _DEFAULT_LINK_LATENCY_US)
    return Link(bandwidth_bytes_per_s=round(_SHEETS[name][3] * _G), latency_us=latency_us)


def default_inter_link(names: Mapping[str, object]) -> Link:
    """The network usual for the slowest of some device types; 100 Gbit/s for unknown ones."""
    gbit = min(_SHEETS[name][4] if name in _SHEETS else 100.0 for name in names)
    return Link(bandwidth_bytes_per_s=round(gbit * _G / 8), latency_us=_NETWORK_LATENCY_US)
