"""How many micro-batches each pipeline of a plan runs."""

from __future__ import annotations

from collections.abc import Sequence

from arachne_opt.solvers.pipeline.columns import Column


def covering_counts(columns: Sequence[Column], samples: int) -> tuple[int, ...]:
    """Micro-batches that end the slowest pipeline first and train at least so many samples."""
    seconds = _least_seconds(columns, samples)
    counts = [c.microbatches_within(seconds) for c in columns]
    # What is too much goes first from the pipeline that ends last.
    spare = sum(n * c.batch for n, c in zip(counts, columns, strict=True)) - samples
    for i in sorted(range(len(columns)), key=lambda i: -columns[i].seconds(counts[i])):
        less = min(counts[i] - 1, spare // columns[i].batch)
        if less > 0:
            counts[i] -= less
            spare -= less * columns[i].batch
    return tuple(counts) if min(counts) > 0 and spare >= 0 else ()


def exact_counts(columns: Sequence[Column], samples: int) -> tuple[int, ...]:
    """Micro-batches that train exactly so many samples, the slowest pipeline ending first.

    Empty if there are none. Every sum of micro-batches that can be reached is kept with the least
    time: best[s] = min over M of max(best of the other pipelines [s - M · batch], seconds(M)).
    """
    best: dict[int, tuple[float, tuple[int, ...]]] = {0: (0.0, ())}
    limit = _least_seconds(columns, samples)
    slack = max(c.load_s for c in columns) * len(columns) + limit * 0.05
    for number, column in enumerate(columns):
        last = number == len(columns) - 1
        after: dict[int, tuple[float, tuple[int, ...]]] = {}
        high = column.microbatches_within(limit + slack)
        low = max(1, column.microbatches_within(limit - slack))
        for done, (seconds, counts) in best.items():
            choices = range(low, high + 1)
            if last:
                m, rest = divmod(samples - done, column.batch)
                choices = range(m, m + 1) if rest == 0 and 1 <= m <= high else range(0)
            for m in choices:
                entry = (max(seconds, column.seconds(m)), (*counts, m))
                total = done + m * column.batch
                if total <= samples and (total not in after or entry < after[total]):
                    after[total] = entry
        best = after
    return best[samples][1] if samples in best else ()


def _least_seconds(columns: Sequence[Column], samples: int) -> float:
    """The least time in which all pipelines together train the samples."""
    low, high = 0.0, max(c.seconds(samples) for c in columns)
    for _ in range(60):
        middle = (low + high) / 2
        done = sum(c.batch * c.microbatches_within(middle) for c in columns)
        low, high = (low, middle) if done >= samples else (middle, high)
    return high
