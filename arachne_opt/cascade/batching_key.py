"""What a stored plan for clips keeps of them, so that its key can be told from the plan alone.

The plan places the micro-batches that were chosen; its key is that of all that could have been.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from arachne_opt.canonical import digest
from arachne_opt.cascade.batching import BatchingProblem, batching_of_ids, canonical_clips
from arachne_opt.cascade.problem import CascadeProblem
from arachne_opt.errors import InputError
from arachne_opt.fields import Fields

# In the JSON of a problem.
CLIPS = "clips"


def clips_to_json(problem: BatchingProblem) -> dict[str, Any]:
    """The candidates by their digests, each of which is written once."""
    prices = problem.prices()
    kinds = sorted({price for family in prices for row in family for price in row if price})
    at = {price: number for number, price in enumerate(kinds)}
    families = [
        [[None if price is None else at[price] for price in row] for row in family]
        for family in prices
    ]
    return {"kinds": kinds, "families": families}


def key_of_clips(value: Mapping[str, Any], chosen: CascadeProblem) -> str:
    """The key of the clips that a stored plan is for.

    Args:
        value: the JSON of the problem, with ``clips`` in it.
        chosen: the same problem, read.

    Raises:
        InputError: it is malformed, or the micro-batches chosen are not among the candidates.
    """
    where = f"problem {chosen.name!r}: clips"
    prices = _prices(Fields(value[CLIPS], where, ("kinds", "families")), where)
    batching = batching_of_ids(cascade.id for cascade in chosen.cascades)
    known = {cascade.id: digest(cascade.canonical()) for cascade in chosen.cascades}
    if len(batching) != len(prices):
        raise InputError(f"{len(prices)} shapes for {len(batching)} that were chosen", where=where)
    for number, (sizes, rows) in enumerate(zip(batching, prices, strict=True)):
        if sum(sizes) != len(rows):
            raise InputError(f"{len(rows)} clips for {sum(sizes)} that were chosen", where=where)
        first = 0
        for size in sizes:
            price = rows[first][size - 1] if size <= len(rows[first]) else None
            if price != known[f"s{number}c{first}x{size}"]:
                what = f"the micro-batch of {size} clips from clip {first} on is no candidate"
                raise InputError(what, where=where)
            first += size
    return digest(canonical_clips(chosen, prices))


def _prices(fields: Fields, where: str) -> list[list[list[str | None]]]:
    kinds, families = fields.raw("kinds"), fields.raw("families")
    try:
        return [
            [[None if number is None else str(kinds[number]) for number in row] for row in family]
            for family in families
        ]
    except (TypeError, IndexError, KeyError) as error:
        raise InputError(f"the candidates cannot be read: {error}", where=where) from error
