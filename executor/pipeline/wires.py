"""Messages between stages: activations forward, their gradients backward.

Posting never waits. Messages are told apart by their tags; on NCCL, which knows none, either
direction has a process group of its own, in which messages keep one order on both sides.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
import torch.distributed as dist
from torch import Tensor

from arachne_opt.executor.pipeline.schedule import Action


@dataclass(slots=True)
class _Receipt:
    """A message on its way, and where its samples go."""

    work: dist.Work
    data: Tensor
    places: slice


class Wires:
    """The messages of one rank.

    Args:
        samples: of this rank in every micro-batch.
        shape: of one sample's activations.
        groups: of all ranks, for messages (forward, backward).
        seats: process of each rank.
        first_member: rank of the tensor-parallel group that shares.
        group: the tensor-parallel group; None for a rank alone.
    """

    def __init__(
        self,
        samples: range,
        shape: Sequence[int],
        *,
        dtype: torch.dtype,
        device: torch.device,
        groups: tuple[dist.ProcessGroup | None, dist.ProcessGroup | None],
        seats: tuple[int, ...],
        first_member: int,
        group: dist.ProcessGroup | None,
    ) -> None:
        self.samples, self.shape = samples, tuple(shape)
        self._dtype, self._device = dtype, device
        self._groups, self._seats, self._group = groups, seats, group
        self._first = seats[first_member]
        self._receipts: dict[tuple[bool, int], list[_Receipt]] = {}
        self._sends: list[tuple[dist.Work, Tensor]] = []

    def receive(self, action: Action) -> None:
        """Posts the receipt of a message."""
        data = self._empty(len(action.part))
        work = dist.irecv(data, self._seats[action.peer], group=self._of(action), tag=action.tag)
        assert work is not None  # this rank is in the group
        receipt = _Receipt(work, data, self._places(action.part))
        self._receipts.setdefault((action.forward, action.microbatch), []).append(receipt)

    def send(self, action: Action, output: Tensor) -> None:
        """Posts a message with the peer's part of an output."""
        data = output[self._places(action.part)].contiguous()
        work = dist.isend(data, self._seats[action.peer], group=self._of(action), tag=action.tag)
        assert work is not None  # this rank is in the group
        self._sends = [(w, d) for w, d in self._sends if not w.is_completed()]
        self._sends.append((work, data))

    def take(self, forward: bool, microbatch: int) -> Tensor | None:
        """Waits for the messages of an operation; None where it has none."""
        receipts = self._receipts.pop((forward, microbatch), None)
        if receipts is None:
            return None
        for receipt in receipts:
            receipt.work.wait()
        if len(receipts) == 1:
            return receipts[0].data
        whole = self._empty(len(self.samples))
        for receipt in receipts:
            whole[receipt.places] = receipt.data
        return whole

    def share(self, own: Tensor | None) -> Tensor:
        """Passes an input on from the first member of the tensor-parallel group."""
        data = self._empty(len(self.samples)) if own is None else own
        dist.broadcast(data, self._first, group=self._group)
        return data

    def finish(self) -> None:
        """Waits until all messages have left."""
        for work, _ in self._sends:
            work.wait()
        self._sends.clear()

    def _of(self, action: Action) -> dist.ProcessGroup | None:
        return self._groups[0 if action.forward else 1]

    def _empty(self, samples: int) -> Tensor:
        return torch.empty(samples, *self.shape, dtype=self._dtype, device=self._device)

    def _places(self, part: range) -> slice:
        """Where samples lie among those of this rank."""
        first = self.samples.index(part[0])
        step = max(1, part.step // self.samples.step)
        return slice(first, first + step * (len(part) - 1) + 1, step)
