"""Latents on their way from the ranks that encoded to the ranks that denoise.

After encoding, every rank of the producing group holds the latents of the whole micro-batch. Each
consuming rank needs its token window only. A consumer that produced, too, keeps its window and
nothing moves; each other one gets it straight from one producer. Sends and receives are posted at
the same place in the plan's order on all ranks and never block there: the sender goes on, the
receiver waits when its task starts. So no rank can wait in a circle.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass

import torch
import torch.distributed as dist
from torch import Tensor

from arachne_opt.errors import RunError
from arachne_opt.executor.sequence_parallel import Window


def hand_off_key(cascade: int, *, text: bool) -> int:
    """A number for each of a cascade's two hand-offs: of latents and of texts."""
    return 2 * cascade + text


@dataclass(frozen=True, slots=True, kw_only=True)
class Route:
    """One hand-off.

    Args:
        cascade: index of the cascade; tags the messages.
        counts: tokens of each consumer.
        clips: size of the micro-batch.
        features: values of a token.
        text: of embedded texts, which every consumer needs whole; ``counts`` are tokens of all.
    """

    cascade: int
    producers: tuple[int, ...]
    consumers: tuple[int, ...]
    counts: tuple[int, ...]
    clips: int
    features: int
    text: bool = False

    @property
    def key(self) -> int:
        """Number of the hand-off, which tells its messages from those of all others."""
        return hand_off_key(self.cascade, text=self.text)

    @property
    def tokens(self) -> int:
        """Tokens that a producer holds."""
        return self.counts[0] if self.text else sum(self.counts)

    def senders(self) -> dict[int, int]:
        """The producer that serves each consumer which did not produce; the load is spread."""
        missing = [rank for rank in self.consumers if rank not in self.producers]
        count = len(self.producers)
        return {rank: self.producers[i % count] for i, rank in enumerate(missing)}

    def size(self, consumer: int) -> tuple[int, int, int]:
        """Shape of what a consumer needs."""
        return self.clips, self.counts[self.consumers.index(consumer)], self.features


class HandOff:
    """A rank's hand-offs within one iteration."""

    def __init__(self, rank: int, device: torch.device) -> None:
        self._rank, self._device = rank, device
        self._sent: list[tuple[dist.Work | None, Tensor]] = []
        self._inbox: dict[int, tuple[Tensor, dist.Work | None]] = {}
        self.sent_bytes: dict[int, int] = defaultdict(int)

    def exchange(self, route: Route, whole_BNP: Tensor | None) -> None:
        """Sends, keeps or asks for windows; returns at once.

        Args:
            route: the hand-off.
            whole_BNP: all tokens, on a producer; None elsewhere.

        Raises:
            RunError: tokens that are not those of the plan; nothing is sent.
        """
        wanted = (route.clips, route.tokens, route.features)
        if whole_BNP is not None and tuple(whole_BNP.shape) != wanted:
            raise RunError(f"the latents are {tuple(whole_BNP.shape)}, the plan says {wanted}")
        for consumer, producer in route.senders().items():
            if self._rank == producer and whole_BNP is not None:
                self._send(route, consumer, _window_of(route, consumer, whole_BNP).contiguous())
            elif self._rank == consumer:
                tokens = torch.empty(route.size(consumer), device=self._device)
                work = dist.irecv(tokens, producer, tag=route.key)
                self._inbox[route.key] = tokens, work
        if whole_BNP is not None and self._rank in route.consumers:
            self._inbox[route.key] = _window_of(route, self._rank, whole_BNP), None

    def take(self, cascade: int, *, text: bool = False) -> Tensor:
        """This rank's window of a micro-batch, or its texts; waits until it is there."""
        tokens, work = self._inbox.pop(hand_off_key(cascade, text=text))
        if work is not None:
            work.wait()
        return tokens

    def finish(self) -> None:
        """Waits until all that was sent has arrived."""
        for work, _ in self._sent:
            if work is not None:
                work.wait()
        self._sent.clear()

    def _send(self, route: Route, consumer: int, tokens: Tensor) -> None:
        # The tensor is kept with its message: it must live until the message has left.
        self._sent.append((dist.isend(tokens, consumer, tag=route.key), tokens))
        self.sent_bytes[route.cascade] += tokens.numel() * tokens.element_size()


def _window_of(route: Route, consumer: int, whole_BNP: Tensor) -> Tensor:
    """A consumer's tokens, without a copy."""
    if route.text:
        return whole_BNP
    window = Window(counts=route.counts, index=route.consumers.index(consumer))
    return whole_BNP[:, window.own]
