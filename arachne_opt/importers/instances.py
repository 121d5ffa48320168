"""Published cascade instances: task options and the makespans that peers reached on them.

Files ``instances_*.json`` rebuilt from the public artifact of «Arachne: Orchestrating Cascades
for Efficient Text-to-Video Model Training» (woshipapa/Arachne_artifact). A task candidate is
``[degree, seconds, flag]`` with the flag ``exact``, ``inferred`` or ``est``.
"""

from __future__ import annotations

import fnmatch
import json
import logging
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from arachne_opt.cascade.plan import STAGE_OF_TASK
from arachne_opt.cascade.problem import Cascade, CascadeProblem, Option, Task
from arachne_opt.cluster import Cluster, Node
from arachne_opt.cluster_file import default_nics, default_numa
from arachne_opt.device_types import DEVICE_TYPES, default_inter_link, default_intra_link
from arachne_opt.errors import InputError
from arachne_opt.suggest import did_you_mean
from arachne_opt.units import us_from_seconds

# The files name no hardware. Their durations need more than an A100's peak, and memory does not
# bind: candidates that did not fit are absent. The type is a label here.
ASSUMED_DEVICE_TYPE = "H100-80"

COST_VERSION = "published-durations/1"
PEERS = ("genetic_internal", "genetic", "flex_sp", "megatron_lm")

_FLAGS = ("exact", "inferred", "est")
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishedInstance:
    """A problem with what others published about it.

    Args:
        published_us: best published makespan of each peer: ``genetic`` is a schedule written
            with its topology penalties, ``genetic_internal`` what that search believed in,
            ``flex_sp`` and ``megatron_lm`` pay no penalty.
        recomputed_us: makespans of the two rules, recomputed by those who rebuilt the data.
        planning_s: published planning time of the genetic search.
        estimated: whether estimated candidates are among the options.
        source: repository that the facts come from.
    """

    problem: CascadeProblem
    published_us: Mapping[str, int]
    recomputed_us: Mapping[str, int]
    planning_s: float | None
    estimated: bool
    source: str

    @property
    def id(self) -> str:
        """Name of the instance, which is also its problem's name."""
        return self.problem.name

    @property
    def best_published_us(self) -> int | None:
        """The smallest published makespan of all peers, None where nothing is published."""
        return min(self.published_us.values(), default=None)


def read_instances(
    path: str | Path,
    *,
    allow_estimates: bool = False,
    only: Sequence[str] | str | None = None,
    exclude: Sequence[str] | str | None = None,
) -> tuple[PublishedInstance, ...]:
    """Instances of a file, or of all ``instances_*.json`` of a folder, in the files' order.

    Args:
        path: file or folder.
        allow_estimates: take candidates with the flag ``est`` too.
        only: glob patterns; only ids that match one are read.
        exclude: glob patterns; ids that match one are left out.

    Raises:
        InputError: a file that cannot be understood, a pattern that matches nothing, or a task
            with estimated candidates only while estimates are not allowed.
    """
    raws = [pair for file in _files(Path(path)) for pair in _read(file)]
    chosen = _choose(raws, _patterns(only), _patterns(exclude), str(path))
    if not allow_estimates:
        _refuse_estimates_only(chosen, str(path))
    return tuple(_instance(raw, source, allow_estimates, str(path)) for raw, source in chosen)


def read_instances_sparingly(
    path: str | Path,
    *,
    only: Sequence[str] | str | None = None,
    exclude: Sequence[str] | str | None = None,
) -> tuple[PublishedInstance, ...]:
    """Instances with estimated candidates only where a task has no others.

    Args and errors are those of ``read_instances``.
    """
    raws = [pair for file in _files(Path(path)) for pair in _read(file)]
    chosen = _choose(raws, _patterns(only), _patterns(exclude), str(path))
    return tuple(
        _instance(raw, source, bool(_estimates_only(raw)), str(path)) for raw, source in chosen
    )


def _patterns(value: Sequence[str] | str | None) -> tuple[str, ...]:
    return (value,) if isinstance(value, str) else tuple(value or ())


def _files(path: Path) -> list[Path]:
    if path.is_dir():
        files = sorted(path.glob("instances_*.json"))
        if not files:
            raise InputError("the folder holds no instances_*.json", where=str(path))
        return files
    return [path]


def _read(file: Path) -> list[tuple[dict[str, Any], str]]:
    """The raw instances of a file, each with its source."""
    try:
        value = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise InputError(f"cannot read instances: {error}", where=str(file)) from error
    if not isinstance(value, dict) or not isinstance(value.get("instances"), list):
        raise InputError("no list 'instances' in this file", where=str(file))
    for index, raw in enumerate(value["instances"]):
        if not isinstance(raw, dict) or not isinstance(raw.get("id"), str):
            raise InputError("an instance needs an id", where=f"{file}: instance {index}")
    return [(raw, str(value.get("repo", ""))) for raw in value["instances"]]


def _choose(
    raws: list[tuple[dict[str, Any], str]],
    only: tuple[str, ...],
    exclude: tuple[str, ...],
    where: str,
) -> list[tuple[dict[str, Any], str]]:
    ids = [raw["id"] for raw, _ in raws]
    if len(set(ids)) != len(ids):
        double = next(i for i in ids if ids.count(i) > 1)
        raise InputError(f"two instances are called {double!r}", where=where)
    for pattern in (*only, *exclude):
        if not fnmatch.filter(ids, pattern):
            what = f"no instance matches {pattern!r}{did_you_mean(pattern, ids)}"
            raise InputError(what, where=where)

    def wanted(name: str) -> bool:
        kept = not only or any(fnmatch.fnmatchcase(name, p) for p in only)
        return kept and not any(fnmatch.fnmatchcase(name, p) for p in exclude)

    chosen = [pair for pair in raws if wanted(pair[0]["id"])]
    if not chosen:
        raise InputError("the patterns leave no instance", where=where)
    if len(chosen) < len(raws):
        _log.info("%s: %d of %d instances chosen", where, len(chosen), len(raws))
    return chosen


def _refuse_estimates_only(chosen: list[tuple[dict[str, Any], str]], where: str) -> None:
    """Names every instance that cannot be planned without estimated candidates."""
    bad = [text for raw, _ in chosen for text in _estimates_only(raw)]
    if bad:
        names = sorted({text.split(" ")[0] for text in bad})
        what = f"estimated candidates only: {', '.join(bad)}"
        hint = "--allow-estimates, or " + " ".join(f"--exclude {name}" for name in names)
        raise InputError(what, where=where, hint=hint)


def _estimates_only(raw: dict[str, Any]) -> list[str]:
    """The tasks of an instance whose candidates are all estimated."""
    return [
        f"{raw['id']} (task {task.get('id')} {stage})"
        for task in raw.get("tasks", ())
        for stage in STAGE_OF_TASK.values()
        if task.get(stage) and all(row[2] == "est" for row in task[stage])
    ]


def _instance(
    raw: dict[str, Any], source: str, allow_estimates: bool, file: str
) -> PublishedInstance:
    where = f"{file}: instance {raw['id']}"
    try:
        cascades = [
            _cascade(index, task, allow_estimates) for index, task in enumerate(raw["tasks"])
        ]
        problem = CascadeProblem(
            name=raw["id"],
            cluster=published_cluster(int(raw["n_gpus"]), int(raw["machine_size"])),
            cascades=tuple(cascades),
            cost_version=COST_VERSION,
        )
        published = raw.get("published", {})
        rules = raw.get("rule_recomputed", {})
        return PublishedInstance(
            problem=problem,
            published_us=_best_by_peer(published),
            recomputed_us={
                rule: us_from_seconds(rules[rule])
                for rule in ("megatron_lm", "flex_sp")
                if isinstance(rules.get(rule), int | float)
            },
            planning_s=published.get("genetic_plan_s"),
            estimated=allow_estimates and _has_estimates(raw),
            source=source,
        )
    except InputError as error:
        place = f"{where}, {error.where}" if error.where else where
        raise InputError(error.what, where=place, hint=error.hint) from error
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        what = f"malformed instance: {type(error).__name__} {error}"
        raise InputError(what, where=where) from error


def published_cluster(devices: int, machine_size: int) -> Cluster:
    """The cluster of an instance: equal machines, NIC groups of two, the published penalty."""
    kind = DEVICE_TYPES[ASSUMED_DEVICE_TYPE]
    link = default_intra_link(kind.name)
    assert link is not None  # a public type has one
    if devices < 1 or machine_size < 1:
        raise InputError(f"{devices} devices on machines of {machine_size}")
    sizes = [min(machine_size, devices - at) for at in range(0, devices, machine_size)]
    nodes = [
        Node(
            name=f"node{index}",
            device_type=kind,
            nic_of_device=default_nics(size),
            numa_of_nic=default_numa(max(default_nics(size)) + 1),
            intra_link=link,
        )
        for index, size in enumerate(sizes)
    ]
    inter = default_inter_link({kind.name: kind})
    return Cluster(name=f"{devices} GPUs", nodes=tuple(nodes), inter_link=inter)


def _cascade(index: int, raw: dict[str, Any], allow_estimates: bool) -> Cascade:
    """A task of the file; exported plans name it by index, so ids must count from 0."""
    if raw["id"] != index:
        raise InputError(f"task ids must count from 0; place {index} holds id {raw['id']}")
    batch, frames, height, width = raw["shape"]
    tasks = tuple(
        Task(
            name=name,
            options=_options(raw[stage], allow_estimates),
            predecessors=(number - 1,) if number else (),
        )
        for number, (name, stage) in enumerate(STAGE_OF_TASK.items())
    )
    return Cascade(id=f"task{index}", tasks=tasks, label=f"{batch}x{frames}x{height}x{width}")


def _options(rows: list[list[Any]], allow_estimates: bool) -> tuple[Option, ...]:
    for row in rows:
        if row[2] not in _FLAGS:
            raise InputError(f"unknown flag {row[2]!r}", hint=f"one of {', '.join(_FLAGS)}")
    return tuple(
        Option(degree=int(degree), duration_us=us_from_seconds(float(seconds)))
        for degree, seconds, flag in rows
        if allow_estimates or flag != "est"
    )


def _has_estimates(raw: dict[str, Any]) -> bool:
    stages = STAGE_OF_TASK.values()
    return any(row[2] == "est" for task in raw["tasks"] for stage in stages for row in task[stage])


def _best_by_peer(published: Mapping[str, Any]) -> dict[str, int]:
    """The least makespan of each peer; runs that left the topology out do not count."""
    best: dict[str, int] = {}
    for key, value in published.items():
        is_time = isinstance(value, int | float) and not isinstance(value, bool)
        if not is_time or re.search(r"_plan_s$|topology_off|no_topology", key):
            continue
        peer = next((name for name in PEERS if key.startswith(name)), None)
        if peer is not None:
            found = us_from_seconds(value)
            best[peer] = min(found, best.get(peer, found))
    return best
