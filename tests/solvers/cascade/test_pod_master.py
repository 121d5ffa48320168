"""The master of pods against brute force, and pods put together anew."""

import random
from collections import Counter
from itertools import combinations_with_replacement

import pytest

from arachne_opt.solvers.cascade.cpsat.pod_master import Column, best_cover

FLOOR, OTHER = (0, 0), (0, 0, 0)


def shortest_by_brute_force(columns, floors, shapes):
    """Least longest column over all choices of as many columns as there are pods."""
    best = None
    for chosen in combinations_with_replacement(columns, sum(floors.values())):
        stands = Counter(c.floor for c in chosen) == Counter(floors)
        covers = Counter(s for c in chosen for s in c.shapes) == Counter(shapes)
        if stands and covers:
            longest = max(c.makespan_us for c in chosen)
            best = longest if best is None else min(best, longest)
    return best


@pytest.mark.parametrize("seed", range(20))
def test_a_cover_is_as_short_as_brute_force_says(seed):
    draw = random.Random(seed)
    floors = {FLOOR: 2, OTHER: 1}
    columns = [
        Column(
            draw.choice((FLOOR, FLOOR, OTHER)),
            tuple(sorted(draw.choices(range(3), k=2))),
            draw.randrange(10, 30),
        )
        for _ in range(8)
    ]
    shapes = dict(Counter(s for c in draw.choices(columns, k=3) for s in c.shapes))
    usable = [c for c in columns if set(c.shapes) <= set(shapes)]
    expected = shortest_by_brute_force(usable, floors, shapes)
    cover = best_cover(usable, floors, shapes, seed)
    if expected is None:
        assert cover.uses is None
        return
    used = [c for c, times in zip(usable, cover.uses, strict=True) for _ in range(times)]
    assert max(c.makespan_us for c in used) == expected
    assert Counter(s for c in used for s in c.shapes) == Counter(shapes)
    assert Counter(c.floor for c in used) == Counter(floors)


def test_nothing_covers_without_columns():
    assert best_cover([], {FLOOR: 1}, {0: 1}, 0).uses is None
