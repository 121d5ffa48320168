"""AdamW on torch's FSDP2: each rank keeps its part of the weights between iterations.

FSDP2 expects each rank to run equally many backwards; a plan gives each rank its own number. So
the weights are gathered once per iteration, the micro-batches add up gradients without a word
to other ranks, and every rank ends with one backward of weight 0, inside which FSDP2 sums.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch.distributed as dist
from torch import Tensor, nn

from arachne_opt.errors import InputError
from arachne_opt.executor.ema import Ema
from arachne_opt.executor.options import UpdateOptions
from arachne_opt.executor.update import MOMENTS, State, Update, make_moments, new_adam, trainable


class FsdpUpdate(Update):
    """AdamW on weights that ``fully_shard`` has parted, block by block.

    Args:
        module: parted in place; lists of blocks in it become units of their own.
        options: clipping and average.
        weight_decay: of AdamW.
    """

    def __init__(self, module: nn.Module, options: UpdateOptions, *, weight_decay: float) -> None:
        if frozen := [name for name, p in module.named_parameters() if not p.requires_grad]:
            what = f"FSDP2 wants all parameters trainable, {frozen[0]} is not"
            raise InputError(what, hint="the sharding zero1")
        self._module: Any = module
        self.options = options
        self._units = _shard(module)
        self._parameters = dict(trainable(module))
        self.adam = new_adam(self._parameters.values(), weight_decay)
        self.ema = Ema(self.shards(), options.ema_decay) if options.ema_decay else None

    def begin(self) -> None:
        """Gathers the weights."""
        self.adam.zero_grad(set_to_none=True)
        self._module.set_requires_gradient_sync(False)
        self._module.set_reshard_after_backward(False)
        for unit in self._units:
            unit.unshard()

    def arm(self) -> None:
        """Nothing: the sums wait for the flush."""

    def start_sums(self) -> None:
        """Nothing: the sums wait for the flush."""

    def finish_sums(self, flush: Callable[[], None]) -> None:
        """Sums inside a backward of weight 0; the gathered weights are let go."""
        self._module.set_requires_gradient_sync(True)
        self._module.set_reshard_after_backward(True)
        flush()

    def shards(self) -> Sequence[Tensor]:
        """This rank's part of each weight."""
        return [_local(p).detach() for p in self._parameters.values()]

    def shard_gradients(self) -> Sequence[Tensor]:
        """The gradients of these parts."""
        return [_local(p.grad) for p in self._parameters.values() if p.grad is not None]

    @property
    def sharded(self) -> bool:
        """Whether there is more than one rank."""
        return dist.get_world_size() > 1

    def state(self) -> State:
        """Weights, moments and average by name."""
        make_moments(self.adam)
        optimizer: State = {"steps": self.adam.state[next(iter(self._parameters.values()))]["step"]}
        for name, parameter in self._parameters.items():
            for moment in MOMENTS:
                optimizer[f"{moment}.{name}"] = self.adam.state[parameter][moment]
        state: State = {"model": self._module.state_dict(), "optimizer": optimizer}
        if self.ema is not None:
            state["ema"] = self._averages()
        return state

    def loaded(self) -> None:
        """Carries the number of steps, which is kept once, to all weights."""
        states = [self.adam.state[parameter] for parameter in self._parameters.values()]
        for state in states[1:]:
            state["step"].copy_(states[0]["step"])

    def gradients(self) -> dict[str, Tensor]:
        """The summed gradients by name."""
        return {name: _whole(p.grad) for name, p in self._parameters.items() if p.grad is not None}

    def weights(self, *, averaged: bool = False) -> dict[str, Tensor]:
        """Whole weights with all else of the module's state, or the average of the weights."""
        state = {name: _whole(t).detach() for name, t in self._module.state_dict().items()}
        if averaged and self.ema is not None:
            state |= {name: _whole(value) for name, value in self._averages().items()}
        return state

    def _averages(self) -> dict[str, Any]:
        """The average of each weight, parted as the weight is."""
        from torch.distributed.tensor import DTensor

        assert self.ema is not None  # asked for only where there is one
        placed = {}
        for (name, p), value in zip(self._parameters.items(), self.ema.values, strict=True):
            like: Any = p
            placed[name] = DTensor.from_local(
                value,
                like.device_mesh,
                like.placements,
                run_check=False,
                shape=p.shape,
                stride=p.stride(),
            )
        return placed


def _shard(module: nn.Module) -> list[Any]:
    """Parts the weights; returns the units, the outermost last."""
    from torch.distributed.device_mesh import DeviceMesh
    from torch.distributed.fsdp import fully_shard

    first = next(module.parameters())
    mesh = DeviceMesh(first.device.type, list(range(dist.get_world_size())))
    lists = [child for child in module.children() if isinstance(child, nn.ModuleList)]
    units: list[Any] = [block for blocks in lists for block in blocks]
    units.append(module)
    for unit in units:
        fully_shard(unit, mesh=mesh, reshard_after_forward=False)
        # Gradients are sums over the clips of the whole iteration, not means over ranks.
        unit.set_gradient_divide_factor(1.0)
        unit.set_force_sum_reduction_for_comms(True)
    return units


def _local(tensor: Any) -> Tensor:  # noqa: ANN401 - a DTensor, a class that is loaded late
    local: Tensor = tensor.to_local()
    return local


def _whole(tensor: Any) -> Tensor:  # noqa: ANN401 - a tensor of either kind
    whole: Tensor = tensor.full_tensor() if hasattr(tensor, "full_tensor") else tensor.clone()
    return whole
