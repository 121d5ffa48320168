"""Limits in processor seconds, for measurements beside other work."""

from __future__ import annotations

import time
import types

from arachne_opt.solvers import clock


def count_processor_time() -> None:
    """Makes the clocks of all searches of this process count its own processor time.

    A search by one thread then finds the same, whatever else runs.
    """
    clock.time = types.SimpleNamespace(monotonic=time.process_time)  # type: ignore[assignment]
