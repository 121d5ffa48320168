"""How a rank's error travels to the process that started it; knows no torch.

A failing rank writes ``<report>.error.<rank>``. When one rank fails, its peers soon fail too, for
want of an answer; the launcher shows the cause, not the echo.
"""

from __future__ import annotations

import json
import re
import time
import traceback
from contextlib import suppress
from pathlib import Path
from typing import Any

from arachne_opt.errors import ArachneError, InputError, MissingDependencyError, RunError

_TEACHING: dict[str, type[ArachneError]] = {
    kind.__name__: kind for kind in (InputError, MissingDependencyError, RunError)
}

# Errors that no restart mends.
_LASTING = ("InputError", "MissingDependencyError")

# What gloo and NCCL say when it is another rank that is gone.
_ECHO = re.compile(r"[Cc]onnection (closed|reset|refused)|[Bb]roken pipe|remote process exited")

# How torchrun lists each process that ended early.
_ENDED = re.compile(r"\brank\s*:\s*(\d+).*?exitcode\s*:\s*(-?\d+)", re.DOTALL)

# The signal that torchrun itself sends to the ranks that are left.
_STOPPED = -15

_SHOWN_LINES = 6


def write_failure(report_path: Path, rank: int, error: BaseException, attempt: int = 0) -> None:
    """Keeps a rank's error for the launcher; ``attempt`` counts the restarts before it."""
    known = error if isinstance(error, ArachneError) else None
    value = {
        "rank": rank,
        "attempt": attempt,
        "time": time.time(),
        "kind": type(error).__name__,
        "what": known.what if known else str(error) or type(error).__name__,
        "where": known.where if known else None,
        "hint": known.hint if known else None,
        "echo": is_echo(error),
        "lines": traceback.format_exception(error)[-3:],
    }
    path = report_path.with_name(f"{report_path.name}.error.{rank}")
    path.write_text(json.dumps(value), encoding="utf-8")


def is_echo(error: BaseException) -> bool:
    """Whether an error only says that another rank is gone."""
    return _ECHO.search(str(error)) is not None


def hopeless(report_path: Path, attempt: int) -> ArachneError | None:
    """What ended the attempt before, where it would end this one, too; None where it may not."""
    for error in _errors(report_path):
        if error["attempt"] == attempt - 1 and error["kind"] in _LASTING:
            known = _TEACHING[error["kind"]]
            return known(error["what"], where=error["where"], hint=error["hint"])
    return None


def failure_of(report_path: Path, stderr: str, code: int) -> ArachneError:
    """The error to show for a run that ended with an exit code other than 0."""
    errors = _errors(report_path)
    last = max((error["attempt"] for error in errors), default=0)
    errors = [error for error in errors if error["attempt"] == last]
    causes = [error for error in errors if not error["echo"]]
    if causes:
        return _as_error(causes[0])
    silent = [
        (rank, ended)
        for rank, ended in _ENDED.findall(stderr)
        if int(ended) != _STOPPED and int(rank) not in {error["rank"] for error in errors}
    ]
    if silent:
        rank, ended = silent[0]
        return RunError(f"the process ended with code {ended}", where=f"rank {rank}")
    if errors:
        return _as_error(errors[0])
    lines = [line for line in stderr.splitlines() if line.strip()][-_SHOWN_LINES:]
    return RunError(f"torchrun ended with code {code}: " + " | ".join(lines))


def _errors(report_path: Path) -> list[dict[str, Any]]:
    """What the ranks wrote, the earliest first."""
    found = []
    for path in report_path.parent.glob(f"{report_path.name}.error.*"):
        with suppress(OSError, ValueError):  # half written by a rank that was being stopped
            found.append(json.loads(path.read_text(encoding="utf-8")))
    return sorted(found, key=lambda error: float(error["time"]))


def _as_error(value: dict[str, Any]) -> ArachneError:
    kind = _TEACHING.get(value["kind"])
    where = f"rank {value['rank']}"
    if kind is not None:
        where = f"{where}, {value['where']}" if value["where"] else where
        return kind(value["what"], where=where, hint=value["hint"])
    lines = [line.strip() for entry in value["lines"] for line in entry.splitlines()]
    return RunError(" | ".join(lines[-_SHOWN_LINES:]), where=where)
