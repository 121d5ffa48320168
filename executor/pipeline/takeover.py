"""A training goes on under another plan while both are alive: processes send what others lack.

Weights, moments and, where weights are narrower than fp32, the fp32 values travel in one message
for each pair of processes and kind, and arrive bit by bit as they were.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
import torch.distributed as dist
from torch import Tensor

from arachne_opt.errors import RunError
from arachne_opt.executor.pipeline.runner import Observer
from arachne_opt.executor.pipeline.training import PipelineTraining
from arachne_opt.executor.update import MOMENTS
from arachne_opt.pipeline.cells import Box, Key, covers, within
from arachne_opt.pipeline.cluster_change import NodeKey
from arachne_opt.pipeline.holdings import Device, Holdings, settle
from arachne_opt.pipeline.moves import (
    Held,
    Move,
    plan_moves,
    state_held,
    weights_held,
)
from arachne_opt.pipeline.plan import PipelinePlan

# A kind of tensor, by parameter and box, in place.
Store = dict[Key, list[tuple[Box, Tensor]]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Moved:
    """Bytes that went between processes.

    Args:
        network_bytes: from node to node.
        inside_bytes: inside nodes.
    """

    network_bytes: int
    inside_bytes: int


class _Kind(NamedTuple):
    name: str
    dtype: torch.dtype
    moves: tuple[Move, ...]


def move_to(
    old: PipelineTraining,
    plan: PipelinePlan,
    nodes: Sequence[NodeKey],
    observer: Observer | None = None,
) -> tuple[PipelineTraining, Moved]:
    """The training of another placed plan that goes on where one stands; all processes call it.

    Until the old one is dropped, both are in memory.

    Args:
        old: has at most as many ranks as there are processes.
        plan: for the same model.
        nodes: of every process.
        observer: of the new training.

    Raises:
        InputError: the plan is not for this model.
        RunError: there are fewer processes than ranks.
    """
    new = PipelineTraining(
        old.spec,
        plan,
        old.samples,
        old.options,
        device=old.device,
        seats=seats_near(old, plan, nodes),
        observer=observer,
        pool=old.seats.pool,
    )
    return new, take_over(old, new, nodes)


def seats_near(
    old: PipelineTraining, plan: PipelinePlan, nodes: Sequence[NodeKey]
) -> tuple[int, ...]:
    """Processes for the ranks of another placed plan, such that little has to move.

    Args:
        old: the training that goes on.
        plan: with a node for every replica.
        nodes: of every process.
    """
    taken: Counter[NodeKey] = Counter()
    devices = []
    for node in nodes:
        devices.append(Device(node, taken[node]))
        taken[node] += 1
    held = Holdings(
        layout=old.layout,
        devices=tuple(devices[process] for process in old.seats.seats),
        zero1=old.plan.zero1,
    )
    settled = settle(held, plan)
    return tuple(devices.index(device) for device in settled.devices if device is not None)


def take_over(old: PipelineTraining, new: PipelineTraining, nodes: Sequence[NodeKey]) -> Moved:
    """Gives a new training the state of an old one; all processes call it.

    Args:
        old: stays as it is.
        new: of the same model and options, on the same processes.
        nodes: of every process.

    Raises:
        RunError: no process holds some of the state.
    """
    node_of = nodes.__getitem__
    sent = torch.zeros(2, dtype=torch.int64)
    for name, dtype, moves in _kinds(old, new, node_of):
        before, after = _store(old, name), _store(new, name)
        for number in range(1 + max((m.round for m in moves), default=0)):
            kind = _Kind(name, dtype, tuple(m for m in moves if m.round == number))
            # What came in an earlier round is sent on from where it arrived.
            sent += _exchange(kind, after if number else before, after, new.device, node_of)
    dist.all_reduce(sent)
    position = [(old.position, old.update.steps) if old.takes_part else None]
    dist.broadcast_object_list(position, src=old.seats.seats[0])
    assert position[0] is not None  # the first rank of the old plan has it
    new.position, steps = position[0]
    if new.takes_part:
        new.update.steps = steps
        if new.options.dtype == torch.float32:
            new.update.read_values()
    network, inside = sent.tolist()
    return Moved(network_bytes=network, inside_bytes=inside)


def planned_moves(old: PipelineTraining, new: PipelineTraining) -> Iterator[tuple[str, Held, Held]]:
    """Each kind of tensor, as the processes hold it before and after."""
    yield (
        "weight",
        weights_held(old.layout, old.model, old.seats.seats),
        weights_held(new.layout, new.model, new.seats.seats),
    )
    before = state_held(old.layout, old.model, old.seats.seats, zero1=old.plan.zero1)
    after = state_held(new.layout, new.model, new.seats.seats, zero1=new.plan.zero1)
    for name in MOMENTS:
        yield name, before, after
    if new.options.dtype != torch.float32:
        yield "value", before, after


def _kinds(
    old: PipelineTraining, new: PipelineTraining, node_of: Callable[[int], object]
) -> Iterator[_Kind]:
    for name, before, after in planned_moves(old, new):
        dtype = new.options.dtype if name == "weight" else torch.float32
        moves = plan_moves(before, after, node_of)
        lost = next((move.key for move in moves if move.source is None), None)
        if lost is not None:
            what = f"no process holds {lost.name} of row {lost.row} any more"
            raise RunError(what, hint="the newest checkpoint")
        yield _Kind(name, dtype, moves)


def _store(training: PipelineTraining, name: str) -> Store:
    """This process's tensors of a kind."""
    found: Store = {}
    if not training.takes_part:
        return found
    if name == "weight":
        for copy, box in training.parts.items():
            tensor = training.parameters[copy].detach()
            found.setdefault(training.model.named(copy), []).append((box, tensor))
        return found
    for piece in training.update.pieces():
        tensor = piece.tensors[name].view(piece.shape)
        found.setdefault(piece.key, []).append((piece.box, tensor))
    return found


def _exchange(
    kind: _Kind,
    source: Store,
    target: Store,
    device: torch.device,
    node_of: Callable[[int], object],
) -> Tensor:
    """Sends and receives all of a kind; bytes sent (to other nodes, inside the node)."""
    own = dist.get_rank()
    sent = torch.zeros(2, dtype=torch.int64)
    messages: list[dist.P2POp] = []
    arriving = []
    for (a, b), moves in _by_pair(kind.moves).items():
        if a == b == own:
            for move in moves:
                _put(target, move, _get(source, move))
        elif a == own:
            data = torch.cat([_get(source, move).flatten() for move in moves])
            sent[0 if node_of(a) != node_of(b) else 1] += data.numel() * data.element_size()
            messages.append(dist.P2POp(dist.isend, data, b))
        elif b == own:
            data = torch.empty(sum(m.values for m in moves), dtype=kind.dtype, device=device)
            arriving.append((moves, data))
            messages.append(dist.P2POp(dist.irecv, data, a))
    # As one batch: NCCL would hang on sends and receipts that wait for each other.
    for work in dist.batch_isend_irecv(messages) if messages else ():
        work.wait()
    for moves, data in arriving:
        for move, part in zip(moves, torch.split(data, [m.values for m in moves]), strict=True):
            _put(target, move, part)
    return sent


def _by_pair(moves: tuple[Move, ...]) -> dict[tuple[int, int], list[Move]]:
    found: dict[tuple[int, int], list[Move]] = {}
    for move in moves:
        assert move.source is not None  # nothing is lost
        found.setdefault((move.source, move.target), []).append(move)
    return dict(sorted(found.items()))


def _get(store: Store, move: Move) -> Tensor:
    box, tensor = next((b, t) for b, t in store[move.key] if covers(b, move.box))
    return tensor[within(move.box, box)]


def _put(store: Store, move: Move, values: Tensor) -> None:
    """Into all copies that hold the box."""
    for box, tensor in store[move.key]:
        if covers(box, move.box):
            where = within(move.box, box)
            tensor[where] = values.view(tensor[where].shape)
