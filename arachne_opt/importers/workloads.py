"""Workloads from the public shape logs: the micro-batches that real jobs worked through.

Files ``workload_*.json`` hold, per iteration and data rank, ``[clips, frames, dim3, dim4, text
tokens]`` as the artifact logged them (woshipapa/Arachne_artifact). The two dimensions are taken as
height and width in the order logged. Each rank's row becomes one micro-batch, in rank order.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from arachne_opt.errors import InputError
from arachne_opt.importers.public_json import read_public_json
from arachne_opt.workload import Clip, Iteration, MicroBatch, Shape, Workload


def read_workload_log(path: str | Path) -> Workload:
    """The workload of a log; text tokens that were not recorded are 0, which means unknown.

    Raises:
        InputError: the file cannot be read, or a row is malformed; says which.
    """
    file = Path(path)
    value = read_public_json(file, "trace")
    name = file.stem.removeprefix("workload_")
    iterations = []
    for entry in value["trace"]:
        try:
            iterations.append(_iteration(entry))
        except (InputError, KeyError, TypeError, ValueError) as error:
            number = entry.get("it") if isinstance(entry, dict) else entry
            what = f"malformed iteration {number}: {error}"
            raise InputError(what, where=str(file)) from error
    return Workload(name=name, iterations=tuple(iterations))


def _iteration(entry: dict[str, Any]) -> Iteration:
    number = int(entry["it"])
    batches = [
        _micro_batch(f"it{number}-rank{rank}", row) for rank, row in enumerate(entry["ranks"])
    ]
    return Iteration(name=f"it{number}", micro_batches=tuple(batches))


def _micro_batch(name: str, row: list[int | None]) -> MicroBatch:
    count, frames, height, width, text = row
    if count is None or frames is None or height is None or width is None:
        raise ValueError(f"{name}: only the text tokens may be unknown, not {row}")
    shape = Shape(frames=frames, height=height, width=width)
    clips = tuple(Clip(id=f"{name}-{i}", shape=shape, text_tokens=text or 0) for i in range(count))
    return MicroBatch(id=name, shape=shape, clips=clips)
