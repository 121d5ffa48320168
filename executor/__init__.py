"""Replays plans with torch; the gradient is that of one process, whatever the plan.

    from arachne_opt.executor import CascadeTrainer

runs inside each rank. What describes a run loads no torch:

- ``job``: ``ReplayJob``, ``ReplayIteration``, ``check_world_size``; ``job_json``: their JSON form;
  ``options``: ``UpdateOptions``, ``CheckpointOptions``.
- ``model_config``: ``ModelChoice``, ``ModelConfig``.
- ``report``: ``ReplayReport`` and ``run_records``, ``measurements`` for the database.
- ``launch``: ``compose(job_path, world_size, report_path)`` and
  ``run_local(job, world_size, on_progress=...)``.
- ``measure``: ``MeasureJob`` and ``measure_local(job, world_size, on_progress=...)``.
- ``pipeline``: the same for pipeline plans: ``job``, ``report``, ``launch``; on the ranks
  ``training`` (exact gradients under any plan), ``rehearsal`` (sleeps instead) and ``models``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from arachne_opt.executor.agreement import share_job
    from arachne_opt.executor.trainer import CascadeTrainer

__all__ = ["CascadeTrainer", "share_job"]

_HOMES = {"CascadeTrainer": "trainer", "share_job": "agreement"}


def __getattr__(name: str) -> Any:  # noqa: ANN401 - whatever the module has under the name
    """Loads what needs torch when it is first asked for."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
