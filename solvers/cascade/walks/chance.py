"""Random numbers that the walks in C draw as well."""

from __future__ import annotations

_MASK = (1 << 64) - 1


class Chance:
    """SplitMix64 (Steele, Lea and Flood, 2014): one word of state, the same in every language."""

    def __init__(self, seed: int) -> None:
        self._state = seed & _MASK

    def unit(self) -> float:
        """A number from 0 on, below 1."""
        self._state = z = (self._state + 0x9E3779B97F4A7C15) & _MASK
        z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
        z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & _MASK
        return float((z ^ (z >> 31)) >> 11) * 2.0**-53

    def below(self, count: int) -> int:
        """A whole number from 0 on, below a count."""
        return int(self.unit() * count)
