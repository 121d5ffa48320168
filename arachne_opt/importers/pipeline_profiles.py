"""Reads measured profiles of pipeline rows in the form of eth-easl/sailor (MIT).

The folder holds ``profiles_tmp.json`` (step times), ``llm_info.json`` (sizes),
``multizone_bandwidths_het.json`` and ``intra_node_bandwidths.json`` (curves), and optionally
``network_coeffs_all_homo.json`` (curves of one type, for types without pairs) and
``planner_profiles/``, which is read only for a type that the main table lacks altogether: the two
disagree on GPT-Neo-2.7 on GH-96, and the measured runs agree with the main table.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from arachne_opt.canonical import digest
from arachne_opt.costs.pipeline.profiles import Profiles
from arachne_opt.errors import InputError
from arachne_opt.importers.public_json import read_public_json
from arachne_opt.pipeline.rows import RowModel, RowSizes
from arachne_opt.pipeline.tables import Curve, NodeLink, Port, Route, StepTimes
from arachne_opt.suggest import did_you_mean

HOME_ZONE = "us-central1-a"
# The published simulator takes the sizes of tp 4 for a tp that has none of its own.
FALLBACK_TP = 4
FLOAT_BYTES = 4
# Sequence lengths of the models, from the data's own description.
SEQUENCE_LENGTH = {"LLAMA-3-8": 8192}
USUAL_SEQUENCE_LENGTH = 2048

_log = logging.getLogger(__name__)


def profiled_models(folder: str | Path) -> tuple[str, ...]:
    """Names of the models in a folder of profiles."""
    return tuple(sorted(read_public_json(Path(folder) / "llm_info.json")))


def read_profiles(folder: str | Path, model: str) -> Profiles:
    """Everything that a folder holds about a model.

    Raises:
        InputError: a file is missing or malformed, or the model is not in it.
    """
    root = Path(folder)
    if not root.is_dir():
        raise InputError("no such folder of profiles", where=str(root))
    sizes = read_public_json(root / "llm_info.json")
    if model not in sizes:
        what = f"no profile of model {model!r}{did_you_mean(model, sizes)}"
        raise InputError(what, where=str(root), hint=f"one of {', '.join(sorted(sizes))}")
    try:
        tables = _step_tables(root, model)
        steps = tuple(_steps(tables))
        degrees = sorted({s.tp for s in steps} | set(map(int, sizes[model])))
        network = read_public_json(root / "multizone_bandwidths_het.json")
        inside = _optional(root / "intra_node_bandwidths.json")
        alone = _optional(root / "network_coeffs_all_homo.json").get("inter", {})
        return Profiles(
            model=_row_model(model, sizes[model], degrees),
            steps=steps,
            routes=(*_routes(network), *_routes_alone(alone, network)),
            node_links=tuple(_node_links(inside)),
            home_zone=HOME_ZONE,
            version=digest([tables, sizes[model], network, inside, alone]),
        )
    except (KeyError, TypeError, ValueError, AttributeError, IndexError) as error:
        what = f"malformed profiles of {model}: {type(error).__name__} {error}"
        raise InputError(what, where=str(root)) from error


def _step_tables(root: Path, model: str) -> dict[str, Any]:
    """Step times by device type: the main table, then other types from the planner's files."""
    tables = dict(read_public_json(root / "profiles_tmp.json").get(model, {}))
    for file in sorted((root / "planner_profiles").glob(f"{model}__*.json")):
        kind = file.stem.removeprefix(f"{model}__")
        if not tables.get(kind):
            _log.info("%s on %s is profiled in %s only", model, kind, file.name)
            tables[kind] = read_public_json(file)
    return {kind: tables[kind] for kind in sorted(tables)}


def _steps(tables: Mapping[str, Any]) -> Iterator[StepTimes]:
    for kind, by_microbatch in tables.items():
        for microbatch, by_tp in by_microbatch.items():
            for tp, by_row in by_tp.items():
                rows = [by_row[str(r)] for r in range(len(by_row))]
                yield StepTimes(
                    device_type=kind,
                    tp=int(tp),
                    microbatch=int(microbatch),
                    forward_s=tuple(float(row[0]) for row in rows),
                    backward_s=tuple(float(row[1]) for row in rows),
                    update_s=tuple(float(row[2]) for row in rows),
                )


def _row_model(name: str, sizes: Mapping[str, Any], degrees: list[int]) -> RowModel:
    whole = sizes["1"]
    count = len(whole)

    def column(tp: int, field: str) -> tuple[int, ...]:
        table = sizes.get(str(tp), sizes[str(FALLBACK_TP)])
        return tuple(int(table[str(r)][field]) for r in range(count))

    return RowModel(
        name=name,
        sequence_length=SEQUENCE_LENGTH.get(name, USUAL_SEQUENCE_LENGTH),
        dtype_bytes=FLOAT_BYTES,
        parameter_bytes=column(1, "params_bytes"),
        output_bytes=column(1, "act_output_bytes"),
        sizes=tuple(
            RowSizes(
                tp=tp,
                parameters=column(tp, "params_floats"),
                kept=column(tp, "act_mem_floats"),
            )
            for tp in degrees
        ),
    )


def _routes(network: Mapping[str, Any]) -> Iterator[Route]:
    for zone_a, by_type in network.items():
        for kind_a, by_width in by_type.items():
            for width_a, by_zone in by_width.items():
                for zone_b, targets in by_zone.items():
                    source = Port(kind_a, zone_a, int(width_a))
                    yield from _routes_from(source, zone_b, targets)


def _routes_from(source: Port, zone: str, targets: Mapping[str, Any]) -> Iterator[Route]:
    for kind, by_width in targets.items():
        for width, (coefficients, *_) in by_width.items():
            target = Port(kind, zone, int(width))
            yield Route(source=source, target=target, curve=_curve(coefficients))


def _routes_alone(alone: Mapping[str, Any], network: Mapping[str, Any]) -> Iterator[Route]:
    """Curves among nodes of one type, for types that the table of pairs lacks altogether."""
    for kind, by_width in alone.items():
        if kind not in network[HOME_ZONE]:
            for width, (coefficients, _) in by_width.items():
                port = Port(kind, HOME_ZONE, int(width))
                yield Route(source=port, target=port, curve=_curve(coefficients))


def _node_links(inside: Mapping[str, Any]) -> Iterator[NodeLink]:
    for kind, by_width in inside.items():
        for width, (coefficients, _) in by_width.items():
            yield NodeLink(device_type=kind, width=int(width), curve=_curve(coefficients))


def _curve(coefficients: list[float]) -> Curve:
    square, slope, constant = map(float, coefficients)
    return Curve(constant=constant, slope=slope, square=square)


def _optional(file: Path) -> dict[str, Any]:
    return read_public_json(file) if file.is_file() else {}
