"""Cascades as numbers without units, for a network over sets: modes in tasks in cascades.

Times are parts of the lower bound of the makespan, device times parts of all devices until then.
Nothing tells the number of devices or cascades: what is learned on few has to hold for many.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from arachne_opt.costs.pipeline.base import Floats, Ints
from arachne_opt.solvers.cascade.decoder import FastDecoder

_TINY = 1e-9


@dataclass(frozen=True, slots=True, eq=False)
class CascadeView:
    """What a network sees of a problem.

    Args:
        mode_x: a row for each mode of each task, in the order of the decoder.
        task_of_mode: its task.
        task_x: a row for each task.
        cascade_of_task: its cascade.
        problem_x: the problem as one row.
    """

    mode_x: Floats
    task_of_mode: Ints
    task_x: Floats
    cascade_of_task: Ints
    problem_x: Floats


def view(decoder: FastDecoder, bound_us: int) -> CascadeView:
    """The numbers of a problem.

    Args:
        decoder: of the problem.
        bound_us: a lower bound of its makespan.
    """
    digest = decoder.digest
    tasks = digest.tasks
    lines = [(t, line) for t, rows in enumerate(decoder.modes) for line in rows]
    task_of_mode = np.array([t for t, _ in lines], dtype=np.int64)
    degree = np.array([line.degree for _, line in lines], dtype=float)
    widest = [digest.widest_of_kind[line.mode.kind] for _, line in lines]
    spread = degree > np.array(widest)
    seconds = (
        np.array(
            [
                line.cross_us if wide else line.duration_us
                for (_, line), wide in zip(lines, spread, strict=True)
            ]
        )
        / bound_us
    )
    own = np.array([digest.count_of_kind[line.mode.kind] for _, line in lines])
    area = seconds * degree / digest.device_count
    quickest, least = (
        _least(seconds, task_of_mode, len(tasks)),
        _least(area, task_of_mode, len(tasks)),
    )
    chain, before, after = _chains(decoder, quickest)
    cascade = np.array([t.cascade for t in tasks], dtype=np.int64)
    whole = np.zeros(cascade.max() + 1)
    np.add.at(whole, cascade, least)
    mode_x = [
        seconds,
        np.log(seconds / quickest[task_of_mode]),
        np.log(area / least[task_of_mode]),
        (area - least[task_of_mode]) * len(whole),
        np.log2(degree),
        degree / np.array(widest),
        spread,
        degree == np.array(widest),
        own / digest.device_count,
        seconds + chain[task_of_mode] - quickest[task_of_mode],
    ]
    task_x = [
        quickest,
        least * len(tasks),
        chain,
        before,
        after,
        whole[cascade] * len(whole),
        np.array([len(t.predecessors) > 0 for t in tasks]),
        np.array([len(t.successors) > 0 for t in tasks]),
        np.array([np.log(len(rows)) for rows in decoder.modes]),
    ]
    problem_x = [
        least.sum(),
        chain.max(),
        len(whole) / digest.device_count,
        digest.device_count / len(digest.nodes) / 8,
        float(len(digest.kind_names)),
        chain.mean(),
        float(digest.has_handoff),
    ]
    return CascadeView(
        mode_x=np.stack(mode_x, axis=1).astype(float),
        task_of_mode=task_of_mode,
        task_x=np.stack(task_x, axis=1).astype(float),
        cascade_of_task=cascade,
        problem_x=np.array(problem_x, dtype=float),
    )


def _least(values: Floats, owner: Ints, count: int) -> Floats:
    found: Floats = np.full(count, np.inf)
    np.minimum.at(found, owner, values)
    return np.maximum(found, _TINY)


def _chains(decoder: FastDecoder, quickest: Floats) -> tuple[Floats, Floats, Floats]:
    """The quickest chain through each task, and its parts before and after it."""
    tasks = decoder.digest.tasks
    before, after = np.zeros(len(tasks)), np.zeros(len(tasks))
    for t in tasks:
        for p in t.predecessors:
            before[t.index] = max(before[t.index], before[p] + quickest[p])
    for t in reversed(tasks):
        for s in t.successors:
            after[t.index] = max(after[t.index], after[s] + quickest[s])
    return before + quickest + after, before, after
