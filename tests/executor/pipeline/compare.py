"""Holds what ranks got against a single process."""

from collections.abc import Iterable

import torch

from arachne_opt.executor.pipeline.models.parameters import tied_parameters
from arachne_opt.executor.pipeline.models.spec import DecoderSpec
from tests.executor.pipeline.models import Trained


def where(box) -> tuple[slice, ...]:
    return tuple(slice(*span) for span in box)


def distance(one: torch.Tensor, two: torch.Tensor, scale: float) -> float:
    return (one - two).abs().max().item() / scale if one.numel() else 0.0


def gradient_error(spec: DecoderSpec, ranks: Iterable[list], whole: Trained) -> float:
    """Largest error of any part of a gradient, over the largest entry of that gradient.

    All of every gradient must be covered; copies of tied parameters are one. Gradients that are
    nothing but rounding, as those of the biases of keys, count by a thousandth of the largest.
    """
    copies = tied_parameters(spec)[1:]
    expected = {key: g for key, g in whole.gradients[0].items() if key not in copies}
    floor = max(g.abs().max().item() for g in expected.values()) / 1000
    seen = {key: torch.zeros_like(g, dtype=torch.bool) for key, g in expected.items()}
    worst = 0.0
    for found in ranks:
        for key, box, part in found:
            g = expected[key]
            seen[key][where(box)] = True
            scale = max(floor, g.abs().max().item())
            worst = max(worst, distance(torch.from_numpy(part), g[where(box)], scale))
    assert all(s.all() for s in seen.values()), [k for k, s in seen.items() if not s.all()]
    return worst


def weight_error(ranks: list[dict], whole: Trained) -> float:
    """Largest error of any held part of any parameter."""
    return max(
        distance(torch.from_numpy(part), whole.parameters[key][where(box)], 1.0)
        for found in ranks
        for key, box, part in found["weights"]
    )
