"""Published durations per shape as measurements: seconds by stage and degree."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from arachne_opt.cascade.plan import STAGE_OF_TASK
from arachne_opt.errors import InputError
from arachne_opt.importers.instances import ASSUMED_DEVICE_TYPE
from arachne_opt.importers.public_json import read_public_json
from arachne_opt.records import Measurement
from arachne_opt.units import us_from_seconds

# The file is for one size; its header says so in words.
_HEIGHT, _WIDTH = 720, 1280


def read_durations(
    path: str | Path,
    *,
    allow_estimates: bool = False,
    model: str = "hunyuanvideo-13b",
    device_type: str = ASSUMED_DEVICE_TYPE,
) -> tuple[Measurement, ...]:
    """Durations of a file such as ``durations_hunyuan_720p.json``; memory is unknown, hence 0.

    Args:
        path: file with ``shapes``: clips_frames, then stage, degree and ``[seconds, flag]``.
        allow_estimates: take values with the flag ``est`` too.
        model: model that the durations belong to.
        device_type: label of the devices, which the file does not name.
    """
    file = Path(path)
    found: list[Measurement] = []
    for key, stages in read_public_json(file, "shapes")["shapes"].items():
        match = re.fullmatch(r"(\d+)_(\d+)", key)
        if match is None:
            raise InputError(f"{key!r} is not clips_frames", where=str(file))
        for task, stage in STAGE_OF_TASK.items():
            for degree, row in _rows(stages, stage, f"{file}: {key}"):
                if row[1] == "est" and not allow_estimates:
                    continue
                found.append(
                    Measurement(
                        model=model,
                        task=task,
                        device_type=device_type,
                        degree=degree,
                        batch=int(match[1]),
                        frames=int(match[2]),
                        height=_HEIGHT,
                        width=_WIDTH,
                        text_tokens=0,
                        duration_us=us_from_seconds(row[0]),
                        memory_bytes=0,
                        source="profile",
                    )
                )
    return tuple(found)


def _rows(stages: Any, stage: str, where: str) -> list[tuple[int, tuple[float, str]]]:  # noqa: ANN401 - JSON
    try:
        return [
            (int(degree), (float(seconds), str(flag)))
            for degree, (seconds, flag) in stages[stage].items()
        ]
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        what = f"malformed {stage!r}: {type(error).__name__} {error}"
        raise InputError(what, where=where) from error
