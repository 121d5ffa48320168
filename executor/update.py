"""What the trainer asks of an optimizer: sum gradients over the ranks, step, give its state."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

from arachne_opt.errors import RunError
from arachne_opt.executor.ema import Ema
from arachne_opt.executor.options import UpdateOptions

# The parts of AdamW's state that have the size of the weights.
MOMENTS = ("exp_avg", "exp_avg_sq")

State = dict[str, Any]


class Update(ABC):
    """Gradients to weights, for one way of sharing them out over the ranks.

    An iteration is ``begin``, the backward passes (with ``arm`` before the last one of this rank
    and ``start_sums`` after it), ``finish_sums`` and ``step``.
    """

    adam: torch.optim.AdamW
    ema: Ema | None
    options: UpdateOptions

    @abstractmethod
    def begin(self) -> None:
        """Starts an iteration: no gradient is there."""

    @abstractmethod
    def arm(self) -> None:
        """Says that the next backward is this rank's last."""

    @abstractmethod
    def start_sums(self) -> None:
        """Begins to sum what has not begun; this rank has no backward left."""

    @abstractmethod
    def finish_sums(self, flush: Callable[[], None]) -> None:
        """Returns when the gradients are those of the whole iteration.

        Args:
            flush: runs a forward and backward of weight 0, for optimizers that sum inside one.
        """

    @abstractmethod
    def state(self) -> State:
        """All that a checkpoint keeps, by name; loading writes into the same tensors."""

    @abstractmethod
    def loaded(self) -> None:
        """Puts to use what was loaded into the tensors of ``state``."""

    @abstractmethod
    def gradients(self) -> dict[str, Tensor]:
        """The summed gradients by the names of the parameters; all ranks must ask."""

    @abstractmethod
    def weights(self, *, averaged: bool = False) -> dict[str, Tensor]:
        """Whole weights, or their moving average, by name; all ranks must ask."""

    @abstractmethod
    def shards(self) -> Sequence[Tensor]:
        """The weights that this rank updates, as plain tensors."""

    @abstractmethod
    def shard_gradients(self) -> Sequence[Tensor]:
        """Their gradients."""

    @property
    @abstractmethod
    def sharded(self) -> bool:
        """Whether each rank updates a part of its own."""

    def step(self, learning_rate: float) -> float:
        """Clips and updates the weights; returns the norm of the gradient before clipping.

        Raises:
            RunError: the gradient is not finite.
        """
        norm = self._norm()
        if not math.isfinite(norm):
            what = f"the norm of the gradient is {norm}; the weights are left as they were"
            raise RunError(what, hint="a lower learning rate, clipping, or fp32")
        limit = self.options.clip_norm
        if limit and norm > limit:
            torch._foreach_mul_(list(self.shard_gradients()), limit / (norm + 1e-6))
        for row in self.adam.param_groups:
            row["lr"] = learning_rate
        self.adam.step()
        if self.ema is not None:
            self.ema.update(self.shards())
        return norm

    def _norm(self) -> float:
        """Norm of the whole gradient; each rank adds the squares of its own part."""
        squares = torch.zeros((), dtype=torch.float64)
        for gradient in self.shard_gradients():
            if gradient.numel():
                squares += gradient.float().norm().double().square().cpu()
        if self.sharded:
            dist.all_reduce(squares)
        return squares.sqrt().item()


def make_moments(adam: torch.optim.AdamW) -> None:
    """Gives AdamW the state that it would make at its first step, so that it can be loaded."""
    for group in adam.param_groups:
        for parameter in group["params"]:
            state = adam.state[parameter]
            if not state:
                state["step"] = torch.zeros((), dtype=torch.float32)
                for name in MOMENTS:
                    state[name] = torch.zeros_like(parameter)


def trainable(module: nn.Module) -> Iterator[tuple[str, nn.Parameter]]:
    """Parameters that need a gradient, with their names."""
    return ((name, p) for name, p in module.named_parameters() if p.requires_grad)


def new_adam(parameters: Iterable[nn.Parameter], weight_decay: float) -> torch.optim.AdamW:
    """The optimizer; the learning rate is set anew at each step."""
    return torch.optim.AdamW(list(parameters), lr=0.0, weight_decay=weight_decay)
