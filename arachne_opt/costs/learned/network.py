"""Small residual networks around the core, monotone by construction; torch trains them.

    log value = s * u + b + N(rising, free) + M(free) + c . free,   u = log of the core

N is one hidden layer of tanh whose weights on rising inputs and on the way out are positive, and
0.2 <= s <= 1, so that no prediction falls when the core and the rising inputs grow. M sees free
inputs only. Many networks (members of ensembles, folds of a cross-validation) are trained at once
as one batch of matrices: they are small, and their number is what takes time.

Predictions need numpy alone.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from arachne_opt.costs.learned.samples import Floats

if TYPE_CHECKING:
    import torch
    from torch import Tensor

_LEAST_SLOPE = 0.2
_PARTS = ("slope", "bias", "up", "across", "shift", "out", "free_in", "free_shift", "free_out", "c")


@dataclass(frozen=True, slots=True, kw_only=True)
class Training:
    """How networks are trained; the same for all uses, none of it is tuned to a data set.

    Args:
        hidden: width of each of the two hidden layers.
        steps: steps of Adam on all points at once.
        rate: first learning rate, which falls to a fiftieth along a cosine.
        bend: error in logarithms from which on it counts linearly instead of squared.
    """

    hidden: int = 16
    steps: int = 500
    rate: float = 0.02
    bend: float = 0.05


@dataclass(frozen=True, kw_only=True)
class Network:
    """Weights of one trained network; positive ones are stored as such."""

    weights: Mapping[str, Floats]

    def logs(self, core: Floats, rising: Floats, free: Floats) -> Floats:
        """Logarithm of the prediction over the centre of the core's logarithms.

        Args:
            core: [n] logarithm of the core, centred.
            rising: [n, inputs], scaled.
            free: [n, inputs], scaled.
        """
        w = self.weights
        upper = np.tanh(rising @ w["up"] + free @ w["across"] + w["shift"]) @ w["out"]
        other = np.tanh(free @ w["free_in"] + w["free_shift"]) @ w["free_out"] + free @ w["c"]
        total: Floats = w["slope"] * core + w["bias"] + (upper + other)[:, 0]
        return total

    def to_json(self) -> dict[str, Any]:
        """JSON values with six digits."""
        return {name: _rounded(self.weights[name]) for name in _PARTS}


def network_from_json(value: Mapping[str, Any]) -> Network:
    """The network that ``Network.to_json`` wrote."""
    return Network(weights={n: np.array(value[n], dtype=np.float64) for n in _PARTS})


@dataclass(frozen=True, kw_only=True)
class Job:
    """One network to train; all jobs of a batch have as many points and inputs.

    Args:
        core: [n] logarithm of the core, centred.
        rising: [n, inputs], scaled.
        free: [n, inputs], scaled.
        logs: [n] what it should be, centred likewise.
        weights: [n], 0 for points that are held out.
        decay: pull of all weights towards 0.
        seed: of the first weights.
    """

    core: Floats
    rising: Floats
    free: Floats
    logs: Floats
    weights: Floats
    decay: float
    seed: int


def train(jobs: Sequence[Job], training: Training) -> tuple[Network, ...]:
    """Trains all networks at once, on one thread; equal jobs give equal networks."""
    import torch

    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        batch = _Batch(jobs, training)
        batch.train()
        return batch.networks()
    finally:
        torch.set_num_threads(threads)


class _Batch:
    def __init__(self, jobs: Sequence[Job], training: Training) -> None:
        import torch

        def stacked(rows: Sequence[Floats]) -> Tensor:
            return torch.tensor(np.stack(rows), dtype=torch.float32)

        self._training, self._count = training, len(jobs)
        self._core, self._logs = stacked([j.core for j in jobs]), stacked([j.logs for j in jobs])
        self._weights = stacked([j.weights / j.weights.sum() for j in jobs])
        self._decay = torch.tensor([j.decay for j in jobs])
        self._rising, self._free = (
            stacked([j.rising for j in jobs]),
            stacked([j.free for j in jobs]),
        )
        sizes = self._rising.shape[2], self._free.shape[2]
        firsts = {j.seed: _first(j.seed, *sizes, training) for j in jobs}
        self._raw: dict[str, Tensor] = {
            name: torch.stack([firsts[j.seed][name] for j in jobs]).requires_grad_()
            for name in _PARTS
        }

    def train(self) -> None:
        import torch

        steps, rate = self._training.steps, self._training.rate
        optimizer = torch.optim.Adam(list(self._raw.values()), lr=rate)
        schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps, rate / 50)
        for _ in range(steps):
            optimizer.zero_grad()
            self._loss().backward()  # type: ignore[no-untyped-call]  # torch does not type it
            optimizer.step()
            schedule.step()

    def networks(self) -> tuple[Network, ...]:
        parts = {n: w.detach().double().numpy() for n, w in self._positive().items()}
        return tuple(
            Network(weights={n: w[i] for n, w in parts.items()}) for i in range(self._count)
        )

    def _positive(self) -> dict[str, Tensor]:
        """The weights in use: those that must be positive are made so."""
        import torch
        from torch.nn.functional import softplus

        used = dict(self._raw)
        fall = torch.tanh(softplus(used["slope"] - 3))
        used["slope"] = 1 - (1 - _LEAST_SLOPE) * fall
        used["up"], used["out"] = softplus(used["up"]), softplus(used["out"])
        return used

    def _loss(self) -> Tensor:
        import torch

        w = self._positive()
        upper = torch.tanh(self._rising @ w["up"] + self._free @ w["across"] + w["shift"])
        other = torch.tanh(self._free @ w["free_in"] + w["free_shift"])
        rest = (upper @ w["out"] + other @ w["free_out"] + self._free @ w["c"])[..., 0]
        errors = w["slope"] * self._core + w["bias"] + rest - self._logs
        bend = self._training.bend
        losses = 2 * bend**2 * (torch.sqrt(1 + (errors / bend) ** 2) - 1)
        pulls = _squares(w["out"]) + _squares(w["free_out"]) + 0.1 * _squares(w["c"])
        pulls = pulls + 0.02 * (_squares(w["up"]) + _squares(w["across"]) + _squares(w["free_in"]))
        return ((self._weights * losses).sum(dim=1) + self._decay * pulls).sum()


def _first(seed: int, rising: int, free: int, training: Training) -> dict[str, torch.Tensor]:
    """Random first weights; the network starts close to the core itself."""
    import torch

    generator = torch.Generator().manual_seed(seed)

    def normal(*size: int, scale: float = 1.0, centre: float = 0.0) -> Tensor:
        return torch.randn(*size, generator=generator) * scale + centre

    width, spread = training.hidden, 1 / math.sqrt(max(1, free))
    return {
        "slope": torch.zeros(1),
        "bias": torch.zeros(1),
        "up": normal(rising, width, scale=0.5, centre=-1.0),
        "across": normal(free, width, scale=spread),
        "shift": normal(1, width),
        "out": normal(width, 1, scale=0.1, centre=-3.0),
        "free_in": normal(free, width, scale=spread),
        "free_shift": normal(1, width),
        "free_out": normal(width, 1, scale=0.05),
        "c": torch.zeros(free, 1),
    }


def _squares(weights: Tensor) -> Tensor:
    return (weights**2).sum(dim=(1, 2))


def _rounded(values: Floats) -> Any:  # noqa: ANN401 - nested lists
    return np.vectorize(lambda x: float(f"{x:.6g}"))(values).tolist()
