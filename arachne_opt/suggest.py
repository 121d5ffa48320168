"""Guesses what a mistyped word was meant to be."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """`` (did you mean 'x'?)`` to append to a message, or nothing where no known word is near."""
    by_lower = {name.lower(): name for name in known}
    low = word.lower()
    longer = [name for name in by_lower if low and name.startswith(low)]
    near = longer or difflib.get_close_matches(low, by_lower, n=1, cutoff=0.6)
    return f" (did you mean {by_lower[near[0]]!r}?)" if near else ""
