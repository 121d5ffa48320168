"""Files of tokens, mapped into memory, and the order of their samples; knows no torch."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import numpy as np

from arachne_opt.errors import InputError
from arachne_opt.executor.pipeline.job import TokenSource

Tokens = np.ndarray[Any, Any]

_ROUNDS = 4


def map_tokens(source: TokenSource) -> Tokens:
    """The tokens of a file.

    Raises:
        InputError: no such file, or not one row of whole numbers.
    """
    path = Path(source.path)
    try:
        if path.suffix == ".npy":
            tokens = np.load(path, mmap_mode="r", allow_pickle=False)
        else:
            tokens = np.memmap(path, dtype=np.dtype(source.dtype), mode="r")
    except (OSError, ValueError) as error:
        raise InputError(f"cannot read the tokens: {error}", where=str(path)) from error
    if not isinstance(tokens, np.ndarray) or tokens.ndim != 1 or tokens.dtype.kind not in "iu":
        what = "expected one row of whole numbers"
        raise InputError(what, where=str(path), hint="numpy.save of a flat array of integers")
    return tokens


def sample_count(source: TokenSource, tokens: Tokens) -> int:
    """How many samples a file has.

    Raises:
        InputError: it is shorter than one.
    """
    # The last token of a sample is the first of the next: it is looked at twice.
    count = (len(tokens) - 1) // source.length
    if count < 1:
        what = f"{len(tokens)} tokens are fewer than one sample of {source.length} and one"
        raise InputError(what, where=source.path, hint="a shorter --sequence-length")
    return count


def shuffled(place: int, count: int, seed: str) -> int:
    """Where a place goes in an order of ``count`` places that the seed decides.

    A Feistel network over the next square of a power of two, walked until it lands inside (Black
    and Rogaway, Ciphers with Arbitrary Finite Domains, 2002): no list of all places is kept.
    """
    half = max(1, ((count - 1).bit_length() + 1) // 2)
    mask = (1 << half) - 1
    while True:
        left, right = place >> half, place & mask
        for step in range(_ROUNDS):
            word = hashlib.blake2b(f"{seed} {step} {right}".encode(), digest_size=8).digest()
            left, right = right, left ^ (int.from_bytes(word, "big") & mask)
        place = left << half | right
        if place < count:
            return place
