"""Reads pipeline scenarios, ``arachne.pipeline-scenarios/1``: a task each, with peers' figures."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from arachne_opt.cluster import Cluster
from arachne_opt.errors import InputError
from arachne_opt.importers.public_json import read_public_json
from arachne_opt.pipeline.pool import USUAL_GPUS_PER_NODE, parse_pool
from arachne_opt.suggest import did_you_mean

SCENARIO_FORMAT = "arachne.pipeline-scenarios/1"


@dataclass(frozen=True, slots=True, kw_only=True)
class PeerFigure:
    """What a planner reached.

    Args:
        status: ``ok``, or why there is no figure.
        iteration_s: time of its plan under the public formula; None without a legal plan.
        search_s: how long it searched.
    """

    status: str
    iteration_s: float | None = None
    search_s: float | None = None
    excess_samples: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Sparse:
    """The mixture of experts that a scenario asks for; None where it leaves a number open."""

    experts: int
    top_k: int | None
    imbalances: tuple[float, ...]
    base_profile: str | None
    hidden: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """One task for a pipeline planner.

    Args:
        global_batches: samples per iteration by model; None where the scenario leaves it open.
        pools: devices by zone; the zone ``default`` where the scenario has one only.
        events: pools of a dynamic scenario in order, else empty; each holds for ``event_s``.
        event_count: how many events are played, the list repeated.
        priced: whether the public judge can price plans for it.
        infeasible: no legal plan exists under the measured memory rule.
        best_peer: name and time of the fastest peer.
        best_known_s: the fastest time known.
    """

    name: str
    global_batches: Mapping[str, int | None]
    pools: Mapping[str, str]
    gpus_per_node: int
    events: tuple[str, ...] = ()
    event_s: float = 0.0
    event_count: int = 0
    priced: bool = True
    infeasible: bool = False
    peers: Mapping[str, PeerFigure]
    best_peer: tuple[str, float] | None = None
    best_known_s: float | None = None
    sparse: Sparse | None = None
    notes: tuple[str, ...] = ()

    @property
    def models(self) -> tuple[str, ...]:
        """Models that the scenario asks for."""
        return tuple(self.global_batches)

    @property
    def model(self) -> str:
        """The only or first model."""
        return self.models[0]

    def cluster(self, event: int = 0) -> Cluster:
        """The cluster, or that of an event of a dynamic scenario.

        Raises:
            InputError: the scenario has no such event, or names an unknown type.
        """
        if self.events:
            if not 0 <= event < self.event_count:
                what = f"event {event} of {self.event_count}"
                raise InputError(what, where=f"scenario {self.name}")
            return parse_pool(self.events[event % len(self.events)], self.gpus_per_node)
        parts = [
            entry if zone == "default" else f"{zone}/{entry}"
            for zone, pool in self.pools.items()
            for entry in pool.split(",")
        ]
        return parse_pool(",".join(parts), self.gpus_per_node)


def read_scenarios(path: str | Path) -> tuple[Scenario, ...]:
    """All scenarios of a file.

    Raises:
        InputError: the file cannot be read, or a scenario is malformed; says which.
    """
    file = Path(path)
    value = read_public_json(file, "format", "scenarios")
    if value["format"] != SCENARIO_FORMAT:
        what = f"format is {value['format']!r}, not {SCENARIO_FORMAT!r}"
        raise InputError(what, where=str(file))
    found = []
    for index, raw in enumerate(value["scenarios"]):
        name = raw.get("id", index) if isinstance(raw, dict) else index
        try:
            found.append(_scenario(raw))
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            what = f"malformed scenario {name}: {type(error).__name__} {error}"
            raise InputError(what, where=str(file)) from error
    return tuple(found)


def read_scenario(text: str | Path) -> Scenario:
    """The scenario of ``file.json:NAME``.

    Raises:
        InputError: no name is given, or the file has no such scenario.
    """
    path, colon, name = str(text).rpartition(":")
    if not colon or not name or name.endswith(".json"):
        raise InputError(f"{str(text)!r} names no scenario", hint='"scenarios.json:D7"')
    scenarios = {s.name: s for s in read_scenarios(path)}
    if name not in scenarios:
        what = f"no scenario {name!r}{did_you_mean(name, scenarios)}"
        raise InputError(what, where=path, hint=f"one of {', '.join(scenarios)}")
    return scenarios[name]


def _scenario(raw: Mapping[str, Any]) -> Scenario:
    models = raw["model"] if isinstance(raw["model"], list) else [raw["model"]]
    batches, cluster = raw.get("global_batch"), raw.get("cluster")
    by_model = batches if isinstance(batches, dict) else dict.fromkeys(models, batches)
    pools = cluster if isinstance(cluster, dict) else {"default": cluster} if cluster else {}
    peer, known = raw.get("best_peer"), raw.get("best_known")
    return Scenario(
        name=str(raw["id"]),
        global_batches={model: by_model[model] for model in models},
        pools=dict(pools),
        gpus_per_node=int(raw.get("gpus_per_node") or USUAL_GPUS_PER_NODE),
        events=tuple(raw.get("events", ())),
        event_s=float(raw.get("event_s", 0)),
        event_count=int(raw.get("event_count", 0)),
        priced=bool(raw.get("priced", True)),
        infeasible=bool(raw.get("infeasible", False)),
        peers={name: _peer(figure) for name, figure in raw.get("baselines", {}).items()},
        best_peer=(str(peer["planner"]), float(peer["iteration_s"])) if peer else None,
        best_known_s=float(known["iteration_s"]) if known else None,
        sparse=_sparse(raw) if "experts" in raw else None,
        notes=tuple(raw.get("notes", ())),
    )


def _peer(raw: Mapping[str, Any]) -> PeerFigure:
    return PeerFigure(
        status=str(raw["status"]),
        iteration_s=raw.get("iteration_s"),
        search_s=raw.get("search_s"),
        excess_samples=raw.get("excess_samples"),
    )


def _sparse(raw: Mapping[str, Any]) -> Sparse:
    return Sparse(
        experts=int(raw["experts"]),
        top_k=raw.get("top_k"),
        imbalances=tuple(map(float, raw.get("imbalance", (1.0,)))),
        base_profile=raw.get("base_profile"),
        hidden=raw.get("hidden"),
    )


def with_cluster(scenario: Scenario, pool: str) -> Scenario:
    """The scenario on another pool of devices, without the figures of its own."""
    return replace(
        scenario,
        name=f"{scenario.name} on {pool}",
        pools={"default": pool},
        events=(),
        peers={},
        best_peer=None,
        best_known_s=None,
    )
