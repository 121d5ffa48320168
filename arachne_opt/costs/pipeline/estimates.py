"""Step times where nobody measured, each with the error that such estimates have on known points.

- between measured micro-batches: linear in the micro-batch, row by row;
- between measured tensor-parallel degrees: linear in the logarithms of degree and time;
- another device type: the geometric mean over the measured types, each scaled by the square root of
  the ratios of peak and of memory bandwidth.

The stated error is the mean relative error of the same rule on measured points that were left out.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from statistics import fmean

from arachne_opt.cluster import DeviceType
from arachne_opt.costs.pipeline.profiles import Profiles
from arachne_opt.device_types import DEVICE_TYPES
from arachne_opt.errors import InputError
from arachne_opt.pipeline.tables import Port, Route, StepTimes

# Stated where no measured point can be left out to try the rule.
UNKNOWN_ERROR = 0.5


def with_estimates(
    profiles: Profiles,
    types: Mapping[str, DeviceType],
    *,
    microbatches: Sequence[int],
    degrees: Sequence[int],
) -> Profiles:
    """The profiles with estimates for missing types, micro-batches and degrees.

    Only points between measured ones are filled in for a measured type: outside, the measurement
    probably ran out of memory.

    Args:
        profiles: what was measured.
        types: device types that are needed, by name.
        microbatches: micro-batches that should have times.
        degrees: tensor-parallel degrees that should have times.
    """
    if not profiles.steps:
        raise InputError("there is no measured step to estimate from")
    steps = list(profiles.steps)
    missing = [kind for name, kind in types.items() if name not in profiles.device_types]
    for kind in missing:
        steps += _other_type(profiles.steps, kind)
    for name in types:
        steps += _between_microbatches(steps, name, microbatches)
        steps += _between_degrees(steps, name, degrees, set(profiles.model.sizes_by_tp))
    added = [s for s in steps if s.error is not None]
    if not added:
        return profiles
    routes = [*profiles.routes, *routes_like_others(profiles, missing)]
    return replace(
        profiles,
        steps=tuple(steps),
        routes=tuple(routes),
        notes=(*profiles.notes, _note(added)),
        version=f"{profiles.version}+estimates/1",
    )


def _note(added: Sequence[StepTimes]) -> str:
    names = sorted({s.device_type for s in added})
    worst = max(s.error or 0.0 for s in added)
    what = f"{len(added)} step tables of {', '.join(names)} are estimates"
    return f"{what}, mean error up to {worst:.0%}"


def _other_type(steps: Iterable[StepTimes], kind: DeviceType) -> list[StepTimes]:
    """All points of the measured types, scaled to another type."""
    by_point: dict[tuple[int, int], list[StepTimes]] = {}
    for s in steps:
        by_point.setdefault((s.tp, s.microbatch), []).append(s)
    error = _type_error(by_point.values())
    return [
        replace(_scaled_mean(found, kind), error=error)
        for found in by_point.values()
        if any(s.device_type in DEVICE_TYPES for s in found)
    ]


def _type_error(points: Iterable[Sequence[StepTimes]]) -> float:
    """Mean relative error when each measured type is estimated from the others."""
    errors = []
    for found in points:
        known = [s for s in found if s.device_type in DEVICE_TYPES]
        for left_out in known if len(known) > 1 else ():
            others = [s for s in known if s is not left_out]
            guess = _scaled_mean(others, DEVICE_TYPES[left_out.device_type])
            errors.append(abs(_work(guess) / _work(left_out) - 1))
    return fmean(errors) if errors else UNKNOWN_ERROR


def _scaled_mean(steps: Sequence[StepTimes], kind: DeviceType) -> StepTimes:
    """Geometric mean of step tables, each scaled to a type."""
    known = [s for s in steps if s.device_type in DEVICE_TYPES]
    factors = [_slower(DEVICE_TYPES[s.device_type], kind) for s in known]

    def mean(values: Sequence[float]) -> float:
        if min(values) <= 0:
            return fmean(v * f for v, f in zip(values, factors, strict=True))
        logs = (math.log(v * f) for v, f in zip(values, factors, strict=True))
        return math.exp(fmean(logs))

    return _combined(known, mean, known[0].tp, known[0].microbatch, kind.name)


def _slower(known: DeviceType, other: DeviceType) -> float:
    peak = known.peak_flops_per_s / other.peak_flops_per_s
    return math.sqrt(peak * known.memory_bandwidth_bytes_per_s / other.memory_bandwidth_bytes_per_s)


def _between_microbatches(
    steps: Sequence[StepTimes], kind: str, wanted: Sequence[int]
) -> list[StepTimes]:
    """Linear in the micro-batch, between the nearest measured ones."""
    found = []
    for tp in sorted({s.tp for s in steps if s.device_type == kind}):
        line = {s.microbatch: s for s in steps if (s.device_type, s.tp) == (kind, tp)}
        found += _filled(line, wanted, _linear, "microbatch")
    return found


def _between_degrees(
    steps: Sequence[StepTimes], kind: str, wanted: Sequence[int], sized: set[int]
) -> list[StepTimes]:
    """Linear in the logarithms, between the nearest measured degrees that have sizes."""
    found = []
    for m in sorted({s.microbatch for s in steps if s.device_type == kind}):
        line = {s.tp: s for s in steps if (s.device_type, s.microbatch) == (kind, m)}
        found += _filled(line, [tp for tp in wanted if tp in sized], _logarithmic, "tp")
    return found


_Rule = Callable[[float, float, float, float, float], float]


def _filled(
    line: Mapping[int, StepTimes], wanted: Iterable[int], rule: _Rule, axis: str
) -> list[StepTimes]:
    """Missing points of a line between measured ones, with the error on left-out points."""
    known = sorted(line)
    missing = [x for x in sorted(set(wanted) - set(known)) if known[0] < x < known[-1]]
    if not missing:
        return []
    errors = []
    for low, x, high in zip(known, known[1:], known[2:], strict=False):
        guess = _interpolated(line[low], line[high], low, high, x, rule, axis)
        errors.append(abs(_work(guess) / _work(line[x]) - 1))
    error = fmean(errors) if errors else UNKNOWN_ERROR
    found = []
    for x in missing:
        low = max(k for k in known if k < x)
        high = min(k for k in known if k > x)
        guess = _interpolated(line[low], line[high], low, high, x, rule, axis)
        carried = max(error, line[low].error or 0.0, line[high].error or 0.0)
        found.append(replace(guess, error=carried))
    return found


def _interpolated(
    a: StepTimes, b: StepTimes, low: int, high: int, x: int, rule: _Rule, axis: str
) -> StepTimes:
    tp, microbatch = (a.tp, x) if axis == "microbatch" else (x, a.microbatch)
    return _combined(
        (a, b), lambda v: rule(low, high, v[0], v[1], x), tp, microbatch, a.device_type
    )


def _linear(low: float, high: float, a: float, b: float, x: float) -> float:
    return a + (b - a) * (x - low) / (high - low)


def _logarithmic(low: float, high: float, a: float, b: float, x: float) -> float:
    share = math.log(x / low) / math.log(high / low)
    if min(a, b) <= 0:
        return a + (b - a) * share
    return math.exp(math.log(a) + (math.log(b) - math.log(a)) * share)


def _combined(
    steps: Sequence[StepTimes],
    rule: Callable[[Sequence[float]], float],
    tp: int,
    microbatch: int,
    kind: str,
) -> StepTimes:
    """Every number of every column by one rule from the same numbers of some tables."""
    columns = [
        tuple(rule(values) for values in zip(*same, strict=True))
        for same in zip(*(s.columns() for s in steps), strict=True)
    ]
    forward, backward, update, expert_forward, expert_backward, expert_update = columns
    return StepTimes(
        device_type=kind,
        tp=tp,
        microbatch=microbatch,
        forward_s=forward,
        backward_s=backward,
        update_s=update,
        expert_forward_s=expert_forward,
        expert_backward_s=expert_backward,
        expert_update_s=expert_update,
    )


def _work(step: StepTimes) -> float:
    return sum(step.forward_s) + sum(step.backward_s)


def routes_like_others(profiles: Profiles, missing: Sequence[DeviceType]) -> list[Route]:
    """Links of a type without curves: those of the slowest measured type in the home zone."""
    home = profiles.home_zone
    own = [r for r in profiles.routes if r.source.zone == home == r.target.zone]
    alike = [r for r in own if r.source == r.target and r.source.width == 1]
    if not alike:
        return []
    slowest = max(alike, key=lambda r: r.curve.seconds(1e8)).curve
    new = [Port(kind.name, home, 1) for kind in missing]
    old = sorted({p for r in alike for p in (r.source,)})
    pairs = [(a, b) for a in new for b in new] + [(a, b) for a in new for b in old]
    pairs += [(b, a) for a in new for b in old]
    return [Route(source=a, target=b, curve=slowest) for a, b in pairs]
