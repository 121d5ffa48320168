"""Orders of the stages of a mix, with estimates that tell them apart.

What depends on the order: sends between unlike stages, the head on the last stage, and the
micro-batches in flight, which fill the memory of the first stages most.

Legend of arrays: n template, i stage, j load.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import permutations, product

import numpy as np

from arachne_opt.costs.pipeline.base import Floats, Ints
from arachne_opt.solvers.pipeline.options import Space
from arachne_opt.solvers.seeds.kinds import TINY, Kinds
from arachne_opt.solvers.seeds.mixes import Mix

_AROUND = np.geomspace(0.97, 1.6, 44)  # loads of an order, as multiples of that of its mix
_ROUNDED = 1e-6


class Orders:
    """Orders mixes of a problem."""

    def __init__(self, space: Space, kinds: Kinds) -> None:
        self._samples = space.problem.global_batch
        self._facts = kinds.facts
        self._place = np.array([space.place_of(a.kind) for a in kinds.facts.atoms])
        self._exchange_s = np.minimum(kinds.exchange_row_s, 1 / TINY)[kinds.facts.kind]
        self._sample_s = np.minimum(kinds.sample_send_s, 1 / TINY)
        self._rows = space.costs.row_count - 2

    def of(self, mixes: Sequence[Mix]) -> list[Mix]:
        """The mixes in good orders of their stages, with better estimates, the best first."""
        groups: dict[int, list[Mix]] = {}
        for mix in mixes:
            for order in self._orders(mix.atoms):
                groups.setdefault(len(order), []).append(replace(mix, atoms=order))
        found: list[Mix] = []
        for group in groups.values():
            for mix, seconds in zip(group, self._estimates(group), strict=True):
                if np.isfinite(seconds):
                    found.append(replace(mix, estimate_s=float(seconds)))
        return sorted(found, key=lambda m: m.estimate_s)

    def _orders(self, atoms: Sequence[int]) -> Iterator[tuple[int, ...]]:
        """Types in every order, their slower or quicker options first, and any one at the end."""
        row_s, place = self._facts.row_s, self._place
        seen: set[tuple[int, ...]] = set()
        for order in permutations(sorted({int(place[a]) for a in atoms})):
            rank = {p: i for i, p in enumerate(order)}
            ends = sorted({a for a in atoms if place[a] == order[-1]})
            for sign, last in product((1, -1), ends):
                rest = list(atoms)
                rest.remove(last)
                rest.sort(key=lambda a: (rank[int(place[a])], sign * row_s[a], a))
                if (made := (*rest, last)) not in seen:
                    seen.add(made)
                    yield made

    def _estimates(self, mixes: Sequence[Mix]) -> Floats:
        """Seconds of an iteration of templates of equally many stages; infinite for none.

        The load is the least under which all rows find a stage.
        """
        facts, atoms = self._facts, np.array([m.atoms for m in mixes])
        number, stages = np.arange(len(atoms)), atoms.shape[1]
        batch = np.array([m.batch for m in mixes])
        row_s, head_s = facts.row_s[atoms], facts.head_s[atoms[:, -1]]
        sends_s = self._sends(atoms)
        other_s = sends_s.copy()
        other_s[:, -1] += head_s
        held = facts.first[atoms] + facts.second[atoms] * (stages - np.arange(stages))
        capacity = np.floor(1 / np.maximum(held, TINY) + _ROUNDED)
        load_nj = np.array([m.load_s for m in mixes])[:, None] * _AROUND
        rows = np.floor((load_nj[:, None] - other_s[..., None]) / row_s[..., None] + _ROUNDED)
        rows = np.minimum(rows, capacity[..., None]).clip(min=0)
        # The first stage has the embedding and the last one the head, even without other rows.
        good = (rows.sum(axis=1) >= self._rows) & (rows[:, 1:-1] >= 1).all(axis=1)
        first = good.argmax(axis=1)
        load_s, rows = load_nj[number, first], rows[number, :, first]
        filled = self._rows / np.maximum(rows.sum(axis=1), 1)
        fill_s = (rows * row_s).sum(axis=1) * filled + sends_s.sum(axis=1) + head_s
        ring_s = self._exchange_s[atoms] * (1 - facts.microbatch[atoms] / batch[:, None])
        rounds = -(-self._samples // batch)
        seconds: Floats = (rounds - 1) * load_s + fill_s + (ring_s * rows).max(axis=1)
        return np.where(good.any(axis=1), seconds, np.inf)

    def _sends(self, atoms: Ints) -> Floats:
        """Sends of each stage to its neighbours (shape [n, i])."""
        found = np.zeros(atoms.shape)
        if atoms.shape[1] < 2:
            return found
        before, after = atoms[:, :-1], atoms[:, 1:]
        samples = np.maximum(self._facts.microbatch[before], self._facts.microbatch[after])
        half_s = samples * self._sample_s[self._place[before], self._place[after]] / 2
        half_s = np.where(before == after, self._facts.send_s[after] / 2, half_s)
        found[:, :-1] += half_s
        found[:, 1:] += half_s
        # The published price doubles the first send of long pipelines, and the last one back.
        found[:, 0] += half_s[:, 0] * (atoms.shape[1] > 3)
        found[:, -1] += half_s[:, -1]
        return found
