"""Runs a rank's table: posts messages, computes, in the order of the table."""

from __future__ import annotations

import enum
from typing import Protocol

from torch import Tensor

from arachne_opt.executor.pipeline.schedule import Action, Kind, Table
from arachne_opt.executor.pipeline.wires import Wires


class Worker(Protocol):
    """What a stage computes; a rehearsal sleeps instead."""

    def forward(self, microbatch: int, received: Tensor | None) -> Tensor | None:
        """The output for the next stage; None from the last one.

        Args:
            microbatch: number in its pipeline.
            received: from the stage before; None in the first one.
        """

    def backward(self, microbatch: int, received: Tensor | None) -> Tensor | None:
        """The gradient for the stage before; None from the first one.

        Args:
            microbatch: number in its pipeline.
            received: from the next stage; None in the last one.
        """


class Phase(enum.StrEnum):
    """What a rank spends time on."""

    COMPUTE = "compute"
    SEND = "send"
    WAIT = "wait"
    SYNC = "sync"
    UPDATE = "update"


class Observer(Protocol):
    """Sees how the time of a rank passes."""

    def now_s(self) -> float:
        """A clock; on a GPU one that waits for queued work."""

    def note(self, phase: Phase, action: Action | None, begin_s: float, end_s: float) -> None:
        """Takes note of a span of time.

        Args:
            phase: what for.
            action: what it belongs to; None for what follows the last operation.
            begin_s: by ``now_s``.
            end_s: by ``now_s``.
        """


class Unobserved:
    """Sees nothing, at no cost."""

    def now_s(self) -> float:
        """No time."""
        return 0.0

    def note(self, phase: Phase, action: Action | None, begin_s: float, end_s: float) -> None:
        """Forgets it."""


class TableRunner:
    """Runs a table again and again.

    Args:
        table: of this rank.
        worker: computes.
        wires: carry messages.
        observer: sees the time pass.
    """

    def __init__(
        self, table: Table, worker: Worker, wires: Wires, observer: Observer | None = None
    ) -> None:
        self._table, self._worker, self._wires = table, worker, wires
        self._observer = observer or Unobserved()
        self._shared: Tensor | None = None

    def run(self) -> None:
        """One iteration: all forwards and backwards of this rank."""
        output: Tensor | None = None
        for action in self._table.actions:
            match action.kind:
                case Kind.RECEIVE:
                    self._wires.receive(action)
                case Kind.SHARE:
                    self._shared = self._share(action)
                case Kind.COMPUTE:
                    output = self._compute(action)
                case Kind.SEND:
                    assert output is not None  # a stage with a neighbour gives an output
                    self._send(action, output)
        self._finish()

    def _share(self, action: Action) -> Tensor:
        begin_s = self._observer.now_s()
        shared = self._wires.share(self._wires.take(action.forward, action.microbatch))
        self._observer.note(Phase.WAIT, action, begin_s, self._observer.now_s())
        return shared

    def _compute(self, action: Action) -> Tensor | None:
        begin_s = self._observer.now_s()
        received = self._shared
        if received is None:
            received = self._wires.take(action.forward, action.microbatch)
        self._shared = None
        middle_s = self._observer.now_s()
        if action.forward:
            output = self._worker.forward(action.microbatch, received)
        else:
            output = self._worker.backward(action.microbatch, received)
        end_s = self._observer.now_s()
        self._observer.note(Phase.WAIT, action, begin_s, middle_s)
        self._observer.note(Phase.COMPUTE, action, middle_s, end_s)
        return output

    def _send(self, action: Action, output: Tensor) -> None:
        begin_s = self._observer.now_s()
        self._wires.send(action, output)
        self._observer.note(Phase.SEND, action, begin_s, self._observer.now_s())

    def _finish(self) -> None:
        begin_s = self._observer.now_s()
        self._wires.finish()
        self._observer.note(Phase.SEND, None, begin_s, self._observer.now_s())
