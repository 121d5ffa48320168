"""Measures rows of large models, and links between ranks, on the devices at hand; no torch here.

Public: ``DeviceJob``, ``measure_devices(job, world_size, on_progress=...)``. The JSON forms are
``arachne.device-job/1`` and the report of ``measure``. The ranks run ``device_worker``.

A row is measured as ``row <pass> <kind>`` with tp as degree, the micro-batch as clips, and a sample
as one frame of one line as wide as its tokens; a message as ``link <operation>``, as wide as its
bytes.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from typing import Any

from arachne_opt.errors import InputError
from arachne_opt.executor.job import DEVICES
from arachne_opt.executor.launch import ProgressCallback, forks, launch
from arachne_opt.executor.measure import measurements_from_json
from arachne_opt.executor.pipeline.models.configs import spec_of_architecture
from arachne_opt.fields import Fields
from arachne_opt.pipeline.architecture import Architecture
from arachne_opt.pipeline.presets import architecture
from arachne_opt.plugins import is_plugin, load_plugin
from arachne_opt.records import Measurement

DEVICE_FORMAT = "arachne.device-job/1"

ROW_KINDS = ("embedding", "block", "head")
ROW_PASSES = ("forward", "backward", "update")
LINKS = ("all-to-all", "all-reduce", "p2p")
LINK_MODEL = "links"

_PLAIN = (
    "model", "sequence_length", "warmup", "repeats", "seed", "threads_per_rank", "device",
    "device_type",
)  # fmt: skip
_LISTS = ("points", "sizes_bytes", "degrees")


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceJob:
    """What to measure: rows of a model where ``points`` are given, links where sizes are.

    Args:
        model: public language model, or ``module:NAME`` of an ``Architecture`` of the user's.
        sequence_length: tokens of a sample.
        points: (tensor-parallel degree, micro-batch) pairs to measure rows at.
        sizes_bytes: sizes of the messages, per rank.
        degrees: ranks that exchange messages.
        warmup: runs before the clock counts.
        repeats: measured runs; each is kept as a measurement of its own, so that their spread is.
        device_type: name under which the measurements are kept.
    """

    model: str = ""
    sequence_length: int = 0
    points: tuple[tuple[int, int], ...] = ()
    sizes_bytes: tuple[int, ...] = ()
    degrees: tuple[int, ...] = ()
    warmup: int = 2
    repeats: int = 5
    seed: int = 0
    threads_per_rank: int = 0
    device: str = "auto"
    device_type: str = "CPU"

    def __post_init__(self) -> None:
        if self.repeats < 1 or self.warmup < 0 or self.threads_per_rank < 0:
            raise InputError("repeats must be positive, warmup and threads not negative")
        if self.device not in DEVICES:
            raise InputError(f"unknown device {self.device!r}", hint=" or ".join(DEVICES))
        if not (self.points or (self.sizes_bytes and self.degrees)):
            raise InputError("nothing to measure: neither points nor sizes and degrees")
        if min((1, *self.sizes_bytes, *self.degrees, *(n for p in self.points for n in p))) < 1:
            raise InputError("sizes, degrees and micro-batches are at least 1")
        if self.points:
            self._check_rows()

    def _check_rows(self) -> None:
        shown = self.architecture()
        for tp, _ in self.points:
            if shown.heads % tp:
                what = f"degree {tp} does not divide the {shown.heads} heads of {self.model}"
                raise InputError(what, hint="a divisor")
        spec_of_architecture(shown)

    def architecture(self) -> Architecture:
        """The model, at the sequence length of the job."""
        found = language_architecture(self.model)
        return replace(found, sequence_length=self.sequence_length or found.sequence_length)

    @property
    def widest(self) -> int:
        """Ranks that are needed."""
        return max((1, *self.degrees, *(tp for tp, _ in self.points)))

    @property
    def count(self) -> int:
        """Steps of the progress: points, and sizes by degree and operation."""
        links = [k for k in self.degrees if k > 1]
        return len(self.points) + len(LINKS) * len(links) * len(self.sizes_bytes)


def language_architecture(name: str) -> Architecture:
    """A public language model, or one of the user's own.

    Raises:
        InputError: there is none of that name, or it is something else.
    """
    if not is_plugin(name):
        return architecture(name)
    found = load_plugin(name)
    if not isinstance(found, Architecture):
        raise InputError(f"{name} is a {type(found).__name__}, not an Architecture")
    return found


def measure_devices(
    job: DeviceJob, world_size: int, *, on_progress: ProgressCallback | None = None
) -> tuple[Measurement, ...]:
    """Measurements made by ``world_size`` processes on this machine.

    Raises:
        InputError: a degree is wider than the ranks.
        RunError: a rank failed.
    """
    if job.widest > world_size:
        what = f"degree {job.widest} is wider than the {world_size} ranks"
        raise InputError(what, hint=f"degrees up to {world_size}")
    return measurements_from_json(
        launch(
            device_job_to_json(job), world_size, on_progress=on_progress, forked=forks(job.device)
        )
    )


def device_job_to_json(job: DeviceJob) -> dict[str, Any]:
    """JSON values that ``device_job_from_json`` reads back to an equal job."""
    return {"format": DEVICE_FORMAT, **asdict(job)}


def device_job_from_json(value: object, where: str = "job") -> DeviceJob:
    """Reads a job back.

    Raises:
        InputError: another format, an unknown or missing key, or a wrong type.
    """
    top = Fields(value, where, ("format", *_PLAIN, *_LISTS))
    top.require_format(DEVICE_FORMAT)
    return DeviceJob(
        model=top.text("model", ""),
        sequence_length=top.integer("sequence_length", 0),
        points=tuple((int(tp), int(count)) for tp, count in top.items("points")),
        sizes_bytes=top.integers("sizes_bytes", minimum=1),
        degrees=top.integers("degrees", minimum=1),
        warmup=top.integer("warmup", 2),
        repeats=top.integer("repeats", 5, minimum=1),
        seed=top.integer("seed", 0),
        threads_per_rank=top.integer("threads_per_rank", 0),
        device=top.text("device", "auto"),
        device_type=top.text("device_type", "CPU"),
    )
