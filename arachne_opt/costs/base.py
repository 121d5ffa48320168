"""The seam between workloads and problems."""

from __future__ import annotations

from typing import Protocol

from arachne_opt.cascade.problem import Option
from arachne_opt.cluster import Cluster, DeviceType
from arachne_opt.models import ModelSpec
from arachne_opt.workload import MicroBatch


class CostModel(Protocol):
    """Predicts duration and memory of the tasks of a micro-batch."""

    @property
    def model(self) -> ModelSpec:
        """The model whose tasks are priced: it says which shapes it takes."""
        ...

    @property
    def version(self) -> str:
        """Digest of all that decides the predictions; part of the key of a plan."""
        ...

    @property
    def task_names(self) -> tuple[str, ...]:
        """Tasks of a cascade in order, such as ``("encode", "denoise")``."""
        ...

    def options(self, task: str, batch: MicroBatch, device_type: DeviceType) -> tuple[Option, ...]:
        """Options of a task on devices of one type, one per legal degree.

        Options that do not fit the device's memory are included: who builds the problem tells
        the user why nothing fits.

        Raises:
            InputError: the model knows nothing about such a task, shape or device type.
        """
        ...

    def why_illegal(self, task: str, degree: int) -> str | None:
        """Why a task never runs at a degree, with the legal ones; None where it may."""
        ...

    def input_bytes(self, task: str, batch: MicroBatch) -> int:
        """Size of what the task before hands over, 0 for the first task."""
        ...

    def tail_us(self, cluster: Cluster) -> int:
        """Time after the last task of an iteration: gradients are summed, the optimizer steps.

        0 where the model knows nothing about it.
        """
        ...

    def resident_bytes(self, device_type: DeviceType) -> int:
        """The part of every option's memory that is on a device whatever runs; 0 if unknown."""
        ...
