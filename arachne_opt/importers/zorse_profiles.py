"""Reads one layer's measured times by type in the form of benson-guo/zorse (MIT): fp16, tp 1.

``model_latencies.json`` holds, by model, type, sequence length and data type, the milliseconds of
one layer for b samples: points where measured, and a line. Embedding and head were not measured:
they are priced by their operations relative to a layer. There are no network curves; the cluster's
links are used. Optimizer updates are computed from the memory bandwidth.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from arachne_opt.canonical import digest
from arachne_opt.cluster import Cluster
from arachne_opt.costs.pipeline.analytic import AnalyticRates, constant_curve, constant_routes
from arachne_opt.costs.pipeline.profiles import Profiles
from arachne_opt.device_types import device_type
from arachne_opt.errors import InputError
from arachne_opt.importers.public_json import read_public_json
from arachne_opt.pipeline.architecture import Architecture, rows_of
from arachne_opt.pipeline.rows import RowModel, check_device_type
from arachne_opt.pipeline.tables import NodeLink, StepTimes
from arachne_opt.suggest import did_you_mean

FILE = "model_latencies.json"
# Our names of the types in the file.
TYPE_NAMES = {
    "A100-40": "a100x40",
    "A100-80": "a100x80",
    "A10G": "a10g",
    "H100-80": "h100-nvl",
    "L4": "l4",
    "L40S": "l40s",
    "RTX-3090": "rtx3090",
    "T4": "t4",
    "V100-16": "v100x16",
    "V100-32": "v100x32",
}
USUAL_MICROBATCHES = (1, 2, 4, 8)


def line_models(folder: str | Path) -> tuple[str, ...]:
    """Names of the models in a folder."""
    return tuple(sorted(read_public_json(Path(folder) / FILE)))


def read_lines(
    folder: str | Path,
    model: str,
    architecture: Architecture,
    cluster: Cluster,
    *,
    dtype: str = "float16",
    microbatches: tuple[int, ...] = USUAL_MICROBATCHES,
) -> Profiles:
    """Profiles of a model on the types of a cluster.

    Args:
        folder: holds ``model_latencies.json``.
        model: name in the file.
        architecture: gives the sizes, and the sequence length that is looked up.
        cluster: types and links.
        dtype: data type in the file.
        microbatches: micro-batches to make step times for.

    Raises:
        InputError: the file has no such model, type, length or data type.
    """
    file = Path(folder) / FILE
    value = read_public_json(file)
    if model not in value:
        raise InputError(
            f"no lines of model {model!r}{did_you_mean(model, value)}", where=str(file)
        )
    lines = value[model]
    known = tuple(ours for ours, theirs in TYPE_NAMES.items() if theirs in lines)
    rows = rows_of(architecture, dtype_bytes=2, degrees=(1,))
    length = str(architecture.sequence_length)
    steps = []
    for kind in cluster.device_types:
        check_device_type(kind, known, f"model {model}")
        line = lines[TYPE_NAMES[kind]].get(length, {}).get(dtype)
        if line is None:
            what = f"{kind} was not measured at sequence length {length} in {dtype}"
            raise InputError(what, where=str(file))
        steps += [_step(architecture, rows, kind, line, m) for m in microbatches]
    version = digest(["lines/1", lines, rows.canonical()])
    return _profiles(model, rows, steps, cluster, version, dtype)


def _profiles(
    model: str,
    rows: RowModel,
    steps: list[StepTimes],
    cluster: Cluster,
    version: str,
    dtype: str,
) -> Profiles:
    """Step times with the cluster's own links and what was assumed."""
    notes = (
        f"times of one {model} layer in {dtype} by benson-guo/zorse; embedding and head by their "
        "operations relative to a layer; updates by memory bandwidth",
        "links of constant bandwidth from the cluster's description: no network was measured",
    )
    return Profiles(
        model=rows,
        steps=tuple(steps),
        routes=tuple(constant_routes(cluster)),
        node_links=tuple(
            NodeLink(device_type=n.device_type.name, width=1, curve=constant_curve(n.intra_link))
            for n in {n.device_type.name: n for n in cluster.nodes}.values()
        ),
        home_zone="default",
        version=version,
        notes=notes,
    )


def _step(
    model: Architecture, rows: RowModel, kind: str, line: list[Any], microbatch: int
) -> StepTimes:
    """A layer's time, and its share for embedding and head."""
    forward, backward = _milliseconds(line, microbatch)
    tokens = model.sequence_length
    layer = 2 * model.block_parameters(0)[0] + 4 * tokens * model.query_width
    shares = [2 * model.hidden / layer, *[1.0] * model.layers]
    shares.append(2 * model.head_parameters() / layer)
    bandwidth = device_type(kind).memory_bandwidth_bytes_per_s * AnalyticRates().memory
    state = AnalyticRates().state_bytes
    return StepTimes(
        device_type=kind,
        tp=1,
        microbatch=microbatch,
        forward_s=tuple(forward / 1e3 * share for share in shares),
        backward_s=tuple(backward / 1e3 * share for share in shares),
        update_s=tuple(n * state / bandwidth for n in rows.sizes_by_tp[1].parameters),
    )


def _milliseconds(line: list[Any], samples: int) -> tuple[float, float]:
    """Forward and backward of one layer: the measured point, else the line, but not below a point.

    An entry of two plain numbers is a line of the total; a backward is taken as two thirds of it.
    """
    if not isinstance(line[0], list):
        slope, intercept = map(float, line[:2])
        total = slope * samples + intercept
        return total / 3, total * 2 / 3
    pair = []
    for (slope, intercept), points in zip(line[:2], [*line[2:], [], []][:2], strict=True):
        if samples <= len(points):
            pair.append(float(points[samples - 1]))
        else:
            least = max(map(float, points), default=0.0)
            pair.append(max(least, slope * samples + intercept, 1e-6))
    return pair[0], pair[1]
