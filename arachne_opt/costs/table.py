"""Costs from measurements: exact shapes as measured, others by interpolation in tokens and clips.

JSON ``arachne.cost-table/1``. Text tokens do not count: a measurement holds for its video shape.
"""

from __future__ import annotations

import json
import logging
import statistics
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from arachne_opt.canonical import digest
from arachne_opt.cascade.problem import Option
from arachne_opt.cluster import Cluster, DeviceType
from arachne_opt.cost_version import cost_version
from arachne_opt.costs.curves import Curve, non_decreasing
from arachne_opt.errors import InputError
from arachne_opt.fields import Fields
from arachne_opt.models import ModelSpec, model_spec
from arachne_opt.records import Measurement
from arachne_opt.suggest import did_you_mean
from arachne_opt.workload import MicroBatch, Shape

TABLE_FORMAT = "arachne.cost-table/1"

# Beyond the measured range a prediction grows in proportion, up to this factor.
DEFAULT_REACH = 1.25

_ROW = (
    "task",
    "device_type",
    "degree",
    "batch",
    "frames",
    "height",
    "width",
    "duration_us",
    "memory_bytes",
    "recompute",
)
# Of the rows that task, device type, degree and treatment of activations give one price.
_Kind = tuple[str, str, int, bool]
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class CostRow:
    """One measured shape at one degree, activations kept or computed again."""

    task: str
    device_type: str
    degree: int
    batch: int
    shape: Shape
    duration_us: int
    memory_bytes: int
    recompute: bool = False

    def __post_init__(self) -> None:
        if min(self.degree, self.batch, self.duration_us) < 1 or self.memory_bytes < 0:
            raise InputError(f"degree, batch and duration must be positive, not {self}")


@dataclass(frozen=True, kw_only=True)
class TableCostModel:
    """Predicts from measured rows.

    A measured shape keeps its measured cost, upright or lying. Between measured token counts the
    cost is piecewise linear and never falls with tokens; between measured clip counts it is linear
    in clips. Outside it grows in proportion, to ``reach`` times the range and no further.

    Args:
        rows: measurements; of several of one shape and degree the median counts.
        reach: how far beyond the measured range, as a factor of at least 1.
        measured_tail_us: measured time of gradient synchronisation and optimizer step, 0 where
            nobody measured it.
    """

    model: ModelSpec
    rows: tuple[CostRow, ...]
    reach: float = DEFAULT_REACH
    measured_tail_us: int = 0

    def __post_init__(self) -> None:
        if not self.rows:
            raise InputError(f"the cost table of {self.model.name} has no rows")
        if self.measured_tail_us < 0:
            raise InputError(f"a tail takes 0 us or more, not {self.measured_tail_us}")
        if not 1 <= self.reach <= 10:
            raise InputError(f"the reach is a factor between 1 and 10, not {self.reach}")
        for row in self.rows:
            if row.task == "denoise" and (reason := self.model.why_illegal(row.degree)):
                raise InputError(reason, where=f"cost table of {self.model.name}")

    @classmethod
    def from_measurements(
        cls,
        model: ModelSpec,
        measurements: Iterable[Measurement],
        *,
        reach: float = DEFAULT_REACH,
    ) -> TableCostModel:
        """The table of measurements of one model; one of another model is an error."""
        found = tuple(measurements)
        for other in (m.model for m in found if m.model != model.name):
            what = f"a measurement is of model {other!r}, the table is of {model.name!r}"
            raise InputError(what)
        rows = tuple(
            CostRow(
                task=m.task,
                device_type=m.device_type,
                degree=m.degree,
                batch=m.batch,
                shape=Shape(frames=m.frames, height=m.height, width=m.width),
                duration_us=m.duration_us,
                memory_bytes=m.memory_bytes,
                recompute=m.recompute,
            )
            for m in found
        )
        return cls(model=model, rows=rows, reach=reach)

    def recomputing(self, wanted: str) -> TableCostModel:
        """The rows for activations computed again ``always``, ``never``, or as ``planned``.

        A table without marked rows holds one way only; whoever measured it knows which.

        Raises:
            InputError: a plan has nothing to choose from, or no row is left.
        """
        both = any(row.recompute for row in self.rows)
        if wanted == "planned" and not both:
            what = "the cost table does not say what it costs to compute activations again"
            raise InputError(what, hint="arachne profile cascade --recompute planned")
        if wanted == "planned" or not both:
            return self
        marked = {row.task for row in self.rows if row.recompute}
        again = wanted == "always"
        rows = (row for row in self.rows if row.recompute == (again and row.task in marked))
        return replace(self, rows=tuple(rows))

    @cached_property
    def version(self) -> str:
        """Digest of the table."""
        value = cost_table_to_json(self)
        value["rows"] = sorted(value["rows"], key=lambda row: [row.get(k, False) for k in _ROW])
        types = sorted({row.device_type for row in self.rows})
        return cost_version("table", (self.model.name, *types), digest(value))

    @cached_property
    def task_names(self) -> tuple[str, ...]:
        """Tasks that were measured: encode, denoise, then others in order of appearance."""
        found = dict.fromkeys(row.task for row in self.rows)
        usual = [name for name in ("text", "encode", "denoise") if name in found]
        return (*usual, *(name for name in found if name not in usual))

    def why_illegal(self, task: str, degree: int) -> str | None:
        """Why a degree does not divide the heads; what was not measured is merely absent."""
        return self.model.why_illegal(degree) if task == "denoise" else None

    def input_bytes(self, task: str, batch: MicroBatch) -> int:
        """Latents of the micro-batch, where an encoder hands them to the transformer."""
        if task != "denoise" or self.task_names[0] == "denoise":
            return 0
        return self.model.latent_bytes(batch.shape) * batch.size

    def tail_us(self, cluster: Cluster) -> int:
        """The measured time, whatever the cluster: a table holds for the one it was measured on."""
        return self.measured_tail_us

    def resident_bytes(self, device_type: DeviceType) -> int:
        """0: measured peaks do not tell what remains on a device."""
        return 0

    def options(self, task: str, batch: MicroBatch, device_type: DeviceType) -> tuple[Option, ...]:
        """Options at every measured degree within reach of the micro-batch."""
        options: list[Option] = []
        missed: list[int] = []
        for key in self._kinds(task, device_type.name):
            *_, degree, recompute = key
            duration, memory = (self._predict(key, batch, which) for which in (0, 1))
            if duration is None or memory is None:
                missed.append(degree)
                continue
            options.append(
                Option(
                    degree=degree,
                    duration_us=max(1, duration),
                    memory_bytes=memory,
                    recompute=recompute,
                )
            )
        if not options:
            raise InputError(
                self._out_of_reach(task, batch, device_type.name),
                where=f"micro-batch {batch.id}",
                hint="measuring that shape, or the analytic cost model",
            )
        if missed:
            _log.info("%s %s: not measured near enough at %s", task, batch.label, missed)
        return tuple(options)

    @cached_property
    def _measured(self) -> Mapping[_Kind, Mapping[tuple[int, Shape], list[CostRow]]]:
        """Rows by task, device type, degree and treatment, then by clips and shape."""
        found: dict[_Kind, dict[tuple[int, Shape], list[CostRow]]] = {}
        for row in self.rows:
            cell = found.setdefault((row.task, row.device_type, row.degree, row.recompute), {})
            cell.setdefault((row.batch, _lying(row.shape)), []).append(row)
        return found

    @cached_property
    def _curves(self) -> dict[_Kind, dict[int, tuple[Curve, Curve]]]:
        """As the rows, then by clips: curves of duration and of memory."""
        return {
            key: {
                batch: (self._curve(cells, batch, 0), self._curve(cells, batch, 1))
                for batch in sorted({batch for batch, _ in cells})
            }
            for key, cells in self._measured.items()
        }

    def _curve(
        self, cells: Mapping[tuple[int, Shape], list[CostRow]], batch: int, which: int
    ) -> Curve:
        by_tokens: dict[int, list[float]] = defaultdict(list)
        for (clips, shape), rows in cells.items():
            if clips == batch:
                by_tokens[self.model.tokens(shape)].append(_median(rows)[which])
        tokens = tuple(sorted(by_tokens))
        means = [statistics.fmean(by_tokens[t]) for t in tokens]
        return Curve(tokens, tuple(non_decreasing(means)))

    def _predict(self, key: _Kind, batch: MicroBatch, which: int) -> int | None:
        """Duration (0) or memory (1) of a micro-batch; None where nothing near was measured."""
        if exact := self._measured[key].get((batch.size, _lying(batch.shape))):
            return _median(exact)[which]
        curves, tokens = self._curves[key], self.model.tokens(batch.shape)
        if batch.size in curves:
            return _whole(curves[batch.size][which].at(tokens, self.reach))
        return _whole(self._between_clips(curves, batch.size, tokens, which))

    def _between_clips(
        self, curves: Mapping[int, tuple[Curve, Curve]], size: int, tokens: int, which: int
    ) -> float | None:
        """Linear between the nearest measured clip counts, in proportion beyond them."""
        known = {
            clips: cost
            for clips, pair in curves.items()
            if (cost := pair[which].at(tokens, self.reach)) is not None
        }
        below = max((clips for clips in known if clips < size), default=None)
        above = min((clips for clips in known if clips > size), default=None)
        if below is not None and above is not None:
            share = (size - below) / (above - below)
            return known[below] + share * (max(known[above], known[below]) - known[below])
        nearest = below if below is not None else above
        if nearest is None or max(size, nearest) > min(size, nearest) * self.reach:
            return None
        return known[nearest] * size / nearest

    def _kinds(self, task: str, device_type: str) -> list[_Kind]:
        """What was measured of a task on a device type, by degree."""
        if task not in self.task_names:
            what = f"the cost table has no task {task!r}; it has {', '.join(self.task_names)}"
            raise InputError(what)
        types = sorted({row.device_type for row in self.rows if row.task == task})
        if device_type not in types:
            what = f"the cost table has no {task} on {device_type!r}"
            what += f"{did_you_mean(device_type, types)}; it has {', '.join(types)}"
            raise InputError(what, hint="measuring there, or the analytic cost model")
        return sorted(key for key in self._measured if key[:2] == (task, device_type))

    def _out_of_reach(self, task: str, batch: MicroBatch, device_type: str) -> str:
        """What is missing, beside what was measured."""
        cells = {
            cell
            for (name, kind, *_), rows in self._measured.items()
            if (name, kind) == (task, device_type)
            for cell in rows
        }
        near = sorted(cells, key=lambda cell: (abs(cell[0] - batch.size), cell[1]))[:4]
        shapes = ", ".join(f"{clips}x{shape}" for clips, shape in near)
        far = f"beyond {self.reach} times what was measured"
        return f"{task} of {batch.label} on {device_type} lies {far}; nearest are {shapes}"


def cost_table_to_json(table: TableCostModel) -> dict[str, Any]:
    """JSON values that ``cost_table_from_json`` reads back."""
    rows = [
        {
            "task": row.task,
            "device_type": row.device_type,
            "degree": row.degree,
            "batch": row.batch,
            "frames": row.shape.frames,
            "height": row.shape.height,
            "width": row.shape.width,
            "duration_us": row.duration_us,
            "memory_bytes": row.memory_bytes,
            **({"recompute": True} if row.recompute else {}),
        }
        for row in table.rows
    ]
    head = {"format": TABLE_FORMAT, "model": table.model.name, "reach": table.reach}
    tail = {"tail_us": table.measured_tail_us} if table.measured_tail_us else {}
    return {**head, **tail, "rows": rows}


def cost_table_from_json(value: object, where: str) -> TableCostModel:
    """Reads a table back.

    Raises:
        InputError: another format, an unknown or missing key, or a value of the wrong type.
    """
    top = Fields(value, where, ("format", "model", "reach", "tail_us", "rows"))
    top.require_format(TABLE_FORMAT)
    rows = [
        _row(Fields(raw, f"{where}: row {number}", _ROW))
        for number, raw in enumerate(top.items("rows"), 1)
    ]
    reach = top.number("reach", DEFAULT_REACH)
    return TableCostModel(
        model=model_spec(top.text("model")),
        rows=tuple(rows),
        reach=reach,
        measured_tail_us=top.integer("tail_us", 0),
    )


def read_cost_table(path: str | Path) -> TableCostModel:
    """The table of a JSON file."""
    file = Path(path)
    try:
        value = json.loads(file.read_text(encoding="utf-8-sig"))
    except (OSError, ValueError) as error:
        raise InputError(f"cannot read the cost table: {error}", where=str(file)) from error
    return cost_table_from_json(value, str(file))


def _row(fields: Fields) -> CostRow:
    return CostRow(
        task=fields.text("task"),
        device_type=fields.text("device_type"),
        degree=fields.integer("degree", minimum=1),
        batch=fields.integer("batch", minimum=1),
        shape=Shape(
            frames=fields.integer("frames", minimum=1),
            height=fields.integer("height", minimum=1),
            width=fields.integer("width", minimum=1),
        ),
        duration_us=fields.integer("duration_us", minimum=1),
        memory_bytes=fields.integer("memory_bytes", 0),
        recompute=fields.flag("recompute"),
    )


def _lying(shape: Shape) -> Shape:
    """The shape with its long side as width."""
    low, high = sorted((shape.height, shape.width))
    return Shape(frames=shape.frames, height=low, width=high)


def _median(rows: Sequence[CostRow]) -> tuple[int, int]:
    """Median duration and memory of repeated measurements, rounded up."""
    duration = statistics.median(row.duration_us for row in rows)
    return -int(-duration // 1), -int(-statistics.median(row.memory_bytes for row in rows) // 1)


def _whole(value: float | None) -> int | None:
    return None if value is None else -int(-value // 1)
