"""Steps of a training for TensorBoard: a callback for ``CascadeTrainer.run`` or the launcher."""

from __future__ import annotations

from pathlib import Path
from types import TracebackType
from typing import Any

from arachne_opt.errors import InputError, MissingDependencyError
from arachne_opt.executor.report import IterationReport

_US_PER_S = 1e6


class TensorBoardLog:
    """Writes a scalar of each kind per step; use it on one rank.

        with TensorBoardLog(Path("runs/first"), world_size=8) as log:
            trainer.run(log)

    Args:
        folder: of the event files; TensorBoard shows each folder as a run.
        world_size: number of ranks, for their idle share.

    Raises:
        MissingDependencyError: TensorBoard is not installed.
        InputError: the folder cannot be written.
    """

    def __init__(self, folder: Path, world_size: int) -> None:
        self._world_size = world_size
        try:
            from torch.utils.tensorboard import SummaryWriter
        except ImportError as error:
            what = f"steps are logged with TensorBoard ({error})"
            hint = "pip install 'arachne-opt[tensorboard]'"
            raise MissingDependencyError(what, hint=hint) from error
        try:
            self._writer: Any = SummaryWriter(log_dir=str(folder))
        except OSError as error:
            raise InputError(f"cannot write steps: {error}", where=str(folder)) from error

    def __call__(self, report: IterationReport) -> None:
        """Adds a step."""
        for name, value in scalars(report, self._world_size).items():
            self._writer.add_scalar(name, value, report.step)

    def __enter__(self) -> TensorBoardLog:
        """Itself."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Writes what is left."""
        self._writer.close()


def scalars(report: IterationReport, world_size: int) -> dict[str, float]:
    """Figures of a step by name; times in seconds."""
    return {
        "training/loss": report.loss,
        "training/gradient_norm": report.gradient_norm,
        "training/learning_rate": report.learning_rate,
        "training/samples_per_s": _US_PER_S * report.clips / max(1, report.step_us),
        "training/left_out_clips": len(report.left_out),
        "plan/planned_s": report.planned_us / _US_PER_S,
        "plan/measured_s": report.measured_us / _US_PER_S,
        "plan/measured_over_planned": report.fidelity,
        "plan/idle_share": report.idle_share(world_size),
        "step/gradients_s": report.sync_us / _US_PER_S,
        "step/optimizer_s": report.optimizer_us / _US_PER_S,
        "step/overhead_per_task_s": report.overhead_us / _US_PER_S,
        "step/handoff_bytes": report.handoff_bytes,
    }
