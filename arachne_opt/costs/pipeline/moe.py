"""Profiles of a mixture of experts, made by rule from those of a dense model.

No measured profile of a sparse model is public. The rule: the feed-forward share of a layer's time
is 16 h² / (24 h² + 4 s h); the rest is attention; experts take that share × top_k × their width;
a row weighs attention + experts × feed-forward; an all-to-all moves m · s · h · top_k · bytes ·
(e - 1) / e, twice forward and twice backward.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from arachne_opt.canonical import digest
from arachne_opt.costs.pipeline.profiles import Profiles
from arachne_opt.errors import InputError
from arachne_opt.pipeline.rows import Experts, RowModel, RowSizes
from arachne_opt.pipeline.tables import StepTimes


@dataclass(frozen=True, slots=True, kw_only=True)
class MoeRule:
    """How the dense feed-forward part becomes experts.

    Args:
        experts: routed experts of a block.
        top_k: experts that a token visits.
        hidden: width of the dense model.
        imbalance: work of the fullest device over the mean, where experts are spread.
        width: inner width of an expert over that of the dense part.
    """

    name: str
    experts: int
    top_k: int
    hidden: int
    imbalance: float = 1.0
    width: float = 1.0

    def __post_init__(self) -> None:
        if not (0 < self.width <= 1 and self.hidden > 0 and self.imbalance >= 1):
            raise InputError(f"cannot make experts by {self}", where=self.name)


def moe_profiles(dense: Profiles, rule: MoeRule) -> Profiles:
    """The profiles of the sparse model; assumptions stand in its notes.

    A row is a block if it has the parameters of most rows.
    """
    model = dense.model
    blocks = _blocks(model)
    share = _time_share(model.sequence_length, rule.hidden)
    steps = tuple(_step(s, blocks, share, _weight_share(model, rule), rule) for s in dense.steps)
    notes = (
        f"made from {model.name} by rule: {rule.experts} experts, top {rule.top_k}, each "
        f"{rule.width:.3g} of the dense feed-forward part, which takes {share:.1%} of a block",
        f"imbalance {rule.imbalance:g} where experts are spread, 1 where a device holds them all",
        "experts keep top_k times the dense feed-forward activations",
    )
    return replace(
        dense,
        model=_rows(model, blocks, rule),
        steps=steps,
        version=digest(["moe/1", dense.version, repr(rule)]),
        notes=(*dense.notes, *notes),
    )


def _blocks(model: RowModel) -> tuple[bool, ...]:
    """Whether each row is a block."""
    sizes = model.parameter_bytes
    usual = max(set(sizes), key=sizes.count)
    return tuple(size == usual for size in sizes)


def _time_share(tokens: int, hidden: int) -> float:
    return 16 * hidden**2 / (24 * hidden**2 + 4 * tokens * hidden)


def _weight_share(model: RowModel, rule: MoeRule) -> float:
    """Feed-forward parameters over all of a block: what the four h² of attention leave."""
    usual = max(set(model.parameter_bytes), key=model.parameter_bytes.count)
    share = 1 - 4 * rule.hidden**2 * model.dtype_bytes / usual
    if not 0 < share < 1:
        what = f"a block of {usual} bytes has no room for attention of width {rule.hidden}"
        raise InputError(what, where=rule.name)
    return share


def _step(
    step: StepTimes, blocks: tuple[bool, ...], share: float, weights: float, rule: MoeRule
) -> StepTimes:
    active = share * rule.top_k * rule.width
    held = weights * rule.experts * rule.width

    def split(values: tuple[float, ...], kept: float, moved: float) -> tuple[list[float], ...]:
        """What stays outside the experts, and what they take."""
        pairs = list(zip(values, blocks, strict=True))
        return [v * kept if b else v for v, b in pairs], [v * moved if b else 0.0 for v, b in pairs]

    forward, expert_forward = split(step.forward_s, 1 - share, active)
    backward, expert_backward = split(step.backward_s, 1 - share, active)
    update, expert_update = split(step.update_s, 1 - weights, held)
    return replace(
        step,
        forward_s=tuple(a + b for a, b in zip(forward, expert_forward, strict=True)),
        backward_s=tuple(a + b for a, b in zip(backward, expert_backward, strict=True)),
        update_s=tuple(update),
        expert_forward_s=tuple(expert_forward),
        expert_backward_s=tuple(expert_backward),
        expert_update_s=tuple(expert_update),
    )


def _rows(model: RowModel, blocks: tuple[bool, ...], rule: MoeRule) -> RowModel:
    weights = _weight_share(model, rule)

    def split(values: tuple[int, ...]) -> tuple[tuple[int, ...], tuple[int, ...]]:
        dense = [v - round(v * weights) if b else v for v, b in zip(values, blocks, strict=True)]
        of_experts = [
            round(v * weights * rule.width) * rule.experts if b else 0
            for v, b in zip(values, blocks, strict=True)
        ]
        return tuple(dense), tuple(of_experts)

    parameter_bytes, expert_bytes = split(model.parameter_bytes)
    exchanged = model.sequence_length * rule.hidden * rule.top_k * model.dtype_bytes
    experts = Experts(
        count=rule.experts,
        top_k=rule.top_k,
        imbalance=rule.imbalance,
        parameter_bytes=expert_bytes,
        exchange_bytes=tuple(exchanged if b else 0 for b in blocks),
    )
    sizes = []
    for s in model.sizes:
        parameters, of_experts = split(s.parameters)
        kept = tuple(
            k + _more_kept(model, s.tp, weights, rule) if b else k
            for k, b in zip(s.kept, blocks, strict=True)
        )
        sizes.append(
            RowSizes(tp=s.tp, parameters=parameters, kept=kept, expert_parameters=of_experts)
        )
    return replace(
        model,
        name=rule.name,
        parameter_bytes=parameter_bytes,
        sizes=tuple(sizes),
        experts=experts,
    )


def _more_kept(model: RowModel, tp: int, weights: float, rule: MoeRule) -> int:
    """Inner feed-forward values beyond the dense ones; a matrix of h columns keeps one a token."""
    usual = max(set(model.parameter_bytes), key=model.parameter_bytes.count)
    inner = usual / model.dtype_bytes * weights / rule.hidden
    more = max(0.0, rule.top_k * rule.width - 1)
    return round(more * inner * model.sequence_length / tp)
