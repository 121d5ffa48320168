"""AdamW on flat buckets: each rank updates its part of the weights (ZeRO-1), or all of them.

With shards a rank gets the sum of its own part of the gradients only, holds the moments of that
part, and the updated parts are gathered afterwards. AdamW works element by element, so the result
is the same as without.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

from arachne_opt.executor.ema import Ema
from arachne_opt.executor.gradients import GradientBuckets
from arachne_opt.executor.options import UpdateOptions
from arachne_opt.executor.update import MOMENTS, State, Update, make_moments, new_adam, trainable

if TYPE_CHECKING:
    from torch.distributed.device_mesh import DeviceMesh

# torch 2.13 calls it so, older ones all_gather_into_tensor.
_all_gather = getattr(dist, "all_gather_single", None) or dist.all_gather_into_tensor


class FlatUpdate(Update):
    """AdamW whose weights lie in flat buffers, in the order of the gradient buckets.

    Args:
        module: its parameters are moved into the buffers; they stay the same objects.
        options: ``sharding`` decides between whole and parted state.
        weight_decay: of AdamW.
        group: of all ranks, for the gradients alone.
    """

    def __init__(
        self,
        module: nn.Module,
        options: UpdateOptions,
        *,
        weight_decay: float,
        group: dist.ProcessGroup | None = None,
    ) -> None:
        self._module, self.options = module, options
        self._rank, self._world = dist.get_rank(), dist.get_world_size()
        shards = self._world if options.sharding == "zero1" else 1
        self._sharded = shards > 1
        self._grads = GradientBuckets((p for _, p in trainable(module)), group=group, shards=shards)
        self._values = [_flatten(b.parameters, b.flat) for b in self._grads.buckets]
        self._parts = [nn.Parameter(self._grads.own(flat, self._rank)) for flat in self._values]
        for part, bucket in zip(self._parts, self._grads.buckets, strict=True):
            part.grad = self._grads.own(bucket.flat, self._rank)
        self.adam = new_adam(self._parts, weight_decay)
        self.ema = Ema(self._parts, options.ema_decay) if options.ema_decay else None
        self._mesh: DeviceMesh | None = None

    def begin(self) -> None:
        """Sets all gradients to zero."""
        self._grads.zero()

    def arm(self) -> None:
        """The next backward is the last: its gradients are summed as they come."""
        self._grads.arm()

    def start_sums(self) -> None:
        """Begins the sums that have not begun."""
        self._grads.start_rest()

    def finish_sums(self, flush: Callable[[], None]) -> None:
        """Waits for the sums; nothing is flushed."""
        self._grads.wait()

    def step(self, learning_rate: float) -> float:
        """Updates this rank's part and gathers the others'."""
        norm = super().step(learning_rate)
        if self._sharded:
            works = [
                _all_gather(flat, self._grads.own(flat, self._rank), async_op=True)
                for flat in self._values
            ]
            for work in works:
                work.wait()
        return norm

    def shards(self) -> Sequence[Tensor]:
        """This rank's part of each bucket."""
        return [part.detach() for part in self._parts]

    def shard_gradients(self) -> Sequence[Tensor]:
        """The gradients of these parts."""
        return [self._grads.own(b.flat, self._rank) for b in self._grads.buckets]

    @property
    def sharded(self) -> bool:
        """Whether the state is parted."""
        return self._sharded

    def state(self) -> State:
        """Weights by name; moments and average by the number of their bucket."""
        make_moments(self.adam)
        moments = [self.adam.state[part] for part in self._parts]
        optimizer: State = {"steps": moments[0]["step"]}
        for number, row in enumerate(moments):
            for name in MOMENTS:
                optimizer[f"{name}.{number}"] = self._placed(row[name], number)
        state: State = {"model": self._module.state_dict(), "optimizer": optimizer}
        if self.ema is not None:
            state["ema"] = {
                str(number): self._placed(value, number)
                for number, value in enumerate(self.ema.values)
            }
        return state

    def loaded(self) -> None:
        """Carries the number of steps, which is kept once, to all parts."""
        first = self.adam.state[self._parts[0]]["step"]
        for part in self._parts[1:]:
            self.adam.state[part]["step"].copy_(first)

    def gradients(self) -> dict[str, Tensor]:
        """The summed gradients by name."""
        return self._named([self._whole(g, n) for n, g in enumerate(self.shard_gradients())])

    def weights(self, *, averaged: bool = False) -> dict[str, Tensor]:
        """Whole weights with all else of the module's state, or the average of the weights."""
        state = {name: t.detach().clone() for name, t in self._module.state_dict().items()}
        if averaged and self.ema is not None:
            state |= self._named([self._whole(v, n) for n, v in enumerate(self.ema.values)])
        return state

    def _named(self, flats: Sequence[Tensor]) -> dict[str, Tensor]:
        """Flat buffers cut into tensors by the names of the parameters."""
        names = {id(parameter): name for name, parameter in trainable(self._module)}
        found = {}
        for flat, bucket in zip(flats, self._grads.buckets, strict=True):
            numbers = [p.numel() for p in bucket.parameters]
            parts = torch.split(flat[: bucket.size], numbers)
            for parameter, part in zip(bucket.parameters, parts, strict=True):
                found[names[id(parameter)]] = part.view_as(parameter)
        return found

    def _whole(self, part: Tensor, number: int) -> Tensor:
        """All ranks' parts of a bucket as one buffer."""
        if not self._sharded:
            return part.clone()
        whole = part.new_empty(self._values[number].numel())
        _all_gather(whole, part.contiguous())
        return whole

    def _placed(self, part: Tensor, number: int) -> Any:  # noqa: ANN401 - a tensor of either kind
        """A part with its place in the whole, so that other ranks can load other parts of it."""
        size = self._grads.buckets[number].size
        if not self._sharded:
            return part[:size]
        # Late: loading them takes a second, which only checkpoints have to pay.
        from torch.distributed.device_mesh import DeviceMesh
        from torch.distributed.tensor import DTensor, Shard

        if self._mesh is None:
            self._mesh = DeviceMesh(part.device.type, list(range(self._world)))
        begin = self._rank * part.numel()
        own = part[: max(0, min(part.numel(), size - begin))]
        return DTensor.from_local(
            own, self._mesh, [Shard(0)], run_check=False, shape=torch.Size((size,)), stride=(1,)
        )


def _flatten(parameters: Sequence[nn.Parameter], like: Tensor) -> Tensor:
    """Moves parameters into one buffer, as long as the buffer of their gradients."""
    flat = torch.zeros_like(like)
    start = 0
    for parameter in parameters:
        part = flat[start : start + parameter.numel()].view_as(parameter)
        part.copy_(parameter.detach())
        parameter.data = part
        start += parameter.numel()
    return flat
