"""Data sets that count more than once: ``num_repeats``."""

from __future__ import annotations

from collections.abc import Sequence

from arachne_opt.importers.media import Collector, Draft
from arachne_opt.importers.node import Node


def repeated(drafts: Sequence[Draft], repeats: Node | None, collector: Collector) -> None:
    """Adds the clips of a data set so often as it says; a broken number takes its first part.

    Raises:
        InputError: the number is not positive.
    """
    times = 1.0 if repeats is None else repeats.number()
    if repeats is not None and times <= 0:
        raise repeats.error(f"num_repeats must be positive, not {times:g}", "num_repeats = 1")
    whole = [done for draft in drafts if (done := collector.completed(draft))]
    if not whole:
        return
    total = int(len(whole) * times)
    if total < len(whole) and repeats is not None:
        text = f"num_repeats = {times:g} leaves out {len(whole) - total} clips of {len(whole)}"
        collector.note(f"{repeats.where}: {text}")
    for number in range(total):
        collector.add_whole(whole[number % len(whole)])
