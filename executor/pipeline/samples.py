"""Where tokens come from: a file of tokens, mapped into memory, or made-up text.

A sample is ``length`` tokens and the token after each. Samples are numbered through the training:
number n is in epoch n // count, and each epoch has its own order, drawn from the seed. Every rank
that asks for a sample gets the same, whatever the plan.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from arachne_opt.errors import InputError
from arachne_opt.executor.pipeline.job import TokenSource
from arachne_opt.executor.pipeline.tokens import map_tokens, sample_count, shuffled
from arachne_opt.executor.pipeline.training import Samples


class TokenFile:
    """Samples of a file of tokens, one after the other without overlap.

    Args:
        source: the file: ``.npy``, or bare numbers of the type that the source names.
        vocabulary: tokens must be below.
        seed: of the order.

    Raises:
        InputError: no such file, not one row of whole numbers, or shorter than one sample.
    """

    def __init__(self, source: TokenSource, vocabulary: int, seed: int) -> None:
        self._path, self._seed, self._vocabulary = Path(source.path), seed, vocabulary
        self.length = source.length
        self._tokens = map_tokens(source)
        self.count = sample_count(source, self._tokens)

    def __call__(self, numbers: Sequence[int]) -> tuple[Tensor, Tensor]:
        """Tokens and targets of samples.

        Raises:
            InputError: a token is not in the vocabulary.
        """
        rows = np.stack([self._row(number) for number in numbers]).astype(np.int64)
        if rows.min() < 0 or rows.max() >= self._vocabulary:
            bad = rows.max() if rows.max() >= self._vocabulary else rows.min()
            what = f"the token {bad} is not among the {self._vocabulary} of the model"
            raise InputError(what, where=str(self._path))
        both = torch.from_numpy(rows)
        return both[:, :-1].contiguous(), both[:, 1:].contiguous()

    def _row(self, number: int) -> np.ndarray:
        epoch, place = divmod(number, self.count)
        begin = shuffled(place, self.count, f"{self._seed} {epoch}") * self.length
        return np.asarray(self._tokens[begin : begin + self.length + 1])


class MadeUpText:
    """Text that can be learnt: each token mostly follows from the one before, by a fixed rule.

    Args:
        length: tokens of a sample.
        vocabulary: of the model.
        seed: of rule and samples.
        noise: share of tokens that follow no rule.
    """

    def __init__(self, length: int, vocabulary: int, seed: int, noise: float = 0.1) -> None:
        self.length, self._vocabulary, self._seed, self._noise = length, vocabulary, seed, noise
        self._next = np.random.default_rng(seed).permutation(vocabulary)

    def __call__(self, numbers: Sequence[int]) -> tuple[Tensor, Tensor]:
        """Tokens and targets of samples."""
        both = torch.from_numpy(np.stack([self._row(number) for number in numbers]))
        return both[:, :-1].contiguous(), both[:, 1:].contiguous()

    def _row(self, number: int) -> np.ndarray:
        draw = np.random.default_rng([self._seed, number])
        strange = draw.random(self.length + 1) < self._noise
        row = draw.integers(self._vocabulary, size=self.length + 1)
        strange[0] = True
        for at in np.flatnonzero(~strange):
            row[at] = self._next[row[at - 1]]
        return row


def open_samples(source: TokenSource, vocabulary: int, seed: int) -> Samples:
    """The samples of a source.

    Raises:
        InputError: the file cannot be used.
    """
    if source.path:
        return TokenFile(source, vocabulary, seed)
    return MadeUpText(source.length, vocabulary, seed)
