"""Prices as plain data: step times by device type, tp and micro-batch, and network curves.

Seconds stay floats here: the public profiles are measured floats, and a price must equal that of
another reader of the same files to the last digits.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

from arachne_opt.errors import InputError


@dataclass(frozen=True, slots=True, kw_only=True)
class StepTimes:
    """Seconds of each row for one micro-batch on one device type and tensor-parallel degree.

    Args:
        update_s: optimizer update, without experts.
        expert_forward_s: the part of ``forward_s`` that the experts take, which an imbalance
            lengthens; empty for a dense model. The same for the backward.
        expert_update_s: update of all experts of a row; a device does one ep-th.
        error: mean relative error that is known of an estimate; None for a measured entry.
    """

    device_type: str
    tp: int
    microbatch: int
    forward_s: tuple[float, ...]
    backward_s: tuple[float, ...]
    update_s: tuple[float, ...]
    expert_forward_s: tuple[float, ...] = ()
    expert_backward_s: tuple[float, ...] = ()
    expert_update_s: tuple[float, ...] = ()
    error: float | None = None

    def __post_init__(self) -> None:
        where = f"{self.device_type}, tp {self.tp}, micro-batch {self.microbatch}"
        columns = [c for c in self.columns() if c]
        if self.tp < 1 or self.microbatch < 1 or len({len(c) for c in columns}) != 1:
            raise InputError("malformed step times: rows differ or a number below 1", where=where)
        if not all(math.isfinite(x) and x >= 0 for c in columns for x in c):
            raise InputError("step times must be finite and not negative", where=where)

    def columns(self) -> tuple[tuple[float, ...], ...]:
        """All columns, in the order of the fields."""
        dense = (self.forward_s, self.backward_s, self.update_s)
        return (*dense, self.expert_forward_s, self.expert_backward_s, self.expert_update_s)

    @property
    def key(self) -> tuple[str, int, int]:
        """Device type, tensor-parallel degree and micro-batch."""
        return self.device_type, self.tp, self.microbatch


@dataclass(frozen=True, slots=True, kw_only=True)
class Curve:
    """Bandwidth over message size: GB/s = square·x² + slope·x + constant, x = log2(megabytes).

    A link of constant bandwidth has only ``constant``. Source of the form: eth-easl/sailor.
    """

    constant: float
    slope: float = 0.0
    square: float = 0.0
    latency_s: float = 0.0

    def seconds(self, size_bytes: float) -> float:
        """Time to send a message; infinite where the curve gives no bandwidth."""
        if size_bytes <= 0:
            return 0.0
        x = math.log2(size_bytes / 1e6)
        rate = self.square * x * x + self.slope * x + self.constant
        return size_bytes / (rate * 1e9) + self.latency_s if rate > 0 else math.inf

    def canonical(self) -> list[float]:
        """The numbers as JSON values."""
        return [self.square, self.slope, self.constant, self.latency_s]


class Port(NamedTuple):
    """Devices that send together: ``width`` devices of one type in one node of a zone."""

    device_type: str
    zone: str
    width: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Route:
    """The curve between nodes, from one port to another."""

    source: Port
    target: Port
    curve: Curve


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeLink:
    """The curve among ``width`` devices of one node."""

    device_type: str
    width: int
    curve: Curve


@dataclass(frozen=True, kw_only=True)
class PriceTables:
    """All that prices a plan beside the sizes of the model."""

    steps: tuple[StepTimes, ...]
    routes: tuple[Route, ...]
    node_links: tuple[NodeLink, ...] = ()

    def __post_init__(self) -> None:
        if len({s.key for s in self.steps}) < len(self.steps):
            raise InputError("two step tables of one type, tp and micro-batch")
        if len({len(s.forward_s) for s in self.steps}) > 1:
            raise InputError("the step tables differ in their number of rows")

    @cached_property
    def step_by_key(self) -> dict[tuple[str, int, int], StepTimes]:
        """Step times by (device type, tp, micro-batch)."""
        return {s.key: s for s in self.steps}

    @cached_property
    def device_types(self) -> tuple[str, ...]:
        """Types with step times, in order."""
        return tuple(dict.fromkeys(s.device_type for s in self.steps))

    @cached_property
    def _routes(self) -> dict[tuple[Port, Port], Curve]:
        return {(r.source, r.target): r.curve for r in self.routes}

    @cached_property
    def _widest(self) -> dict[tuple[str, str], int]:
        ports = [p for r in self.routes for p in (r.source, r.target)]
        return {
            (p.device_type, p.zone): max(
                q.width for q in ports if (q.device_type, q.zone) == (p.device_type, p.zone)
            )
            for p in ports
        }

    def route(self, source: Port, target: Port) -> Curve | None:
        """The curve from one port to another, None where there is none.

        A group that is wider than all measured ones uses the widest.
        """
        a, b = self._clipped(source), self._clipped(target)
        return self._routes.get((a, b)) if a and b else None

    def node_link(self, device_type: str, width: int) -> Curve | None:
        """The curve among devices of one node: the narrowest as wide, else the widest there is."""
        found = sorted(
            (n.width, n.curve.canonical(), n.curve)
            for n in self.node_links
            if n.device_type == device_type
        )
        wide = [curve for w, _, curve in found if w >= width]
        return wide[0] if wide else (found[-1][2] if found else None)

    def canonical(self) -> dict[str, Any]:
        """JSON values that are equal for equal tables in any order."""
        steps = [[*s.key, *map(list, s.columns())] for s in self.steps]
        routes = [[[*r.source], [*r.target], r.curve.canonical()] for r in self.routes]
        links = [[n.device_type, n.width, n.curve.canonical()] for n in self.node_links]
        return {
            "steps": sorted(steps, key=lambda s: s[:3]),
            "routes": sorted(routes),
            "node_links": sorted(links),
        }

    def _clipped(self, port: Port) -> Port | None:
        widest = self._widest.get((port.device_type, port.zone))
        return None if widest is None else port._replace(width=min(port.width, widest))
