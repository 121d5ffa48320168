"""From a scenario to a problem: which profiles it needs, and what is assumed where it is silent."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from arachne_opt.costs.pipeline.build import build_problem
from arachne_opt.costs.pipeline.moe import MoeRule, moe_profiles
from arachne_opt.costs.pipeline.profiles import Profiles
from arachne_opt.errors import InputError
from arachne_opt.importers.pipeline_profiles import read_profiles
from arachne_opt.importers.pipeline_scenarios import Scenario
from arachne_opt.importers.zorse_profiles import FILE, read_lines
from arachne_opt.pipeline.memory import MEASURED_FP32, MIXED_PRECISION, MemoryRule
from arachne_opt.pipeline.presets import architecture
from arachne_opt.pipeline.problem import PipelineOptions, PipelineProblem

# Widths of the dense models that sparse ones are made from (their public configurations).
HIDDEN = {"OPT-350": 1024, "GPT-Neo-2.7": 2560, "OPT-30": 7168, "LLAMA-3-8": 4096}
USUAL_BATCH = {"OPT-350": 1024, "GPT-Neo-2.7": 2048, "OPT-30": 1024, "LLAMA-3-8": 512}
USUAL_TOP_K = 2
FINE_GRAINED_BASE = "GPT-Neo-2.7"
LINES_BATCH = 512
DEFAULT_BATCH = 1024
# Models whose times are lines of one layer: name in that file, and our architecture.
LINES = {"llama-7b": ("deepspeedllama_7b", "Llama-7B")}


def scenario_problem(
    scenario: Scenario,
    profiles_folder: str | Path,
    *,
    model: str | None = None,
    event: int = 0,
    options: PipelineOptions | None = None,
    imbalance: float | None = None,
    allow_estimates: bool = False,
) -> PipelineProblem:
    """The problem of a scenario; what was assumed stands in the problem's notes.

    Args:
        scenario: the task.
        profiles_folder: measured profiles; lines of layers are read from it, or from a folder
            ``zorse`` beside it.
        model: one of the scenario's models; by default the first.
        event: number of the event of a dynamic scenario.
        options: what a plan may do.
        imbalance: of a sparse model; by default the largest that the scenario names.
        allow_estimates: step times may be estimated.
    """
    name = model or scenario.model
    if name not in scenario.global_batches:
        what = f"scenario {scenario.name} has no model {name!r}"
        raise InputError(what, hint=f"one of {', '.join(scenario.models)}")
    profiles, memory, batch = _profiles(scenario, name, Path(profiles_folder), imbalance)
    return build_problem(
        profiles,
        scenario.cluster(event),
        scenario.global_batches[name] or batch,
        options=options,
        memory=memory,
        allow_estimates=allow_estimates,
        name=scenario.name if not scenario.events else f"{scenario.name} {name} event {event}",
    )


def _profiles(
    scenario: Scenario, name: str, folder: Path, imbalance: float | None
) -> tuple[Profiles, MemoryRule, int]:
    """Profiles, memory rule and the batch where the scenario leaves it open."""
    if scenario.sparse is not None:
        return _sparse_profiles(scenario, name, folder, imbalance)
    if name in LINES:
        theirs, ours = LINES[name]
        lines = next((f for f in (folder, folder.parent / "zorse") if (f / FILE).is_file()), folder)
        cluster = scenario.cluster()
        found = read_lines(lines, theirs, architecture(ours), cluster)
        return _noted(found, f"global batch {LINES_BATCH} assumed"), MIXED_PRECISION, LINES_BATCH
    profiles = read_profiles(folder, name)
    return profiles, MEASURED_FP32, USUAL_BATCH.get(name, DEFAULT_BATCH)


def _sparse_profiles(
    scenario: Scenario, name: str, folder: Path, imbalance: float | None
) -> tuple[Profiles, MemoryRule, int]:
    """Profiles made by rule; open numbers are those of ``USUAL_TOP_K`` and its neighbours."""
    sparse = scenario.sparse
    assert sparse is not None  # asked for by the caller
    base = sparse.base_profile or FINE_GRAINED_BASE
    top_k = sparse.top_k or USUAL_TOP_K
    # Fine-grained experts are as wide together as the dense part (Dai et al., 2024).
    fine = sparse.base_profile is None
    rule = MoeRule(
        name=name,
        experts=sparse.experts,
        top_k=top_k,
        hidden=sparse.hidden or HIDDEN[base],
        imbalance=max(sparse.imbalances) if imbalance is None else imbalance,
        width=1 / top_k if fine else 1.0,
    )
    batch = USUAL_BATCH[base]
    assumed = [f"global batch {batch}"] if scenario.global_batches[name] is None else []
    assumed += [f"top_k {top_k}"] if sparse.top_k is None else []
    assumed += [f"base profile {base}, experts of 1/{top_k} of its width"] if fine else []
    profiles = moe_profiles(read_profiles(folder, base), rule)
    return _noted(profiles, f"assumed: {', '.join(assumed)}"), MEASURED_FP32, batch


def _noted(profiles: Profiles, note: str) -> Profiles:
    return replace(profiles, notes=(*profiles.notes, note))
