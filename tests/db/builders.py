"""Records to store in tests."""

from __future__ import annotations

import hashlib
from typing import Any

from arachne_opt.records import Measurement, PlanRecord, RunRecord


def fingerprint(name: str) -> str:
    return hashlib.sha256(name.encode()).hexdigest()


def plan_record(problem: str = "p", /, cascades: int = 3, **changes: Any) -> PlanRecord:
    runs = [
        {"task": c, "stage": "dit", "sp": 1, "gpus": [c], "start_s": 0.0, "end_s": 43.699}
        for c in range(cascades)
    ]
    values: dict[str, Any] = {
        "kind": "cascade",
        "name": f"iteration of {problem}",
        "fingerprint": fingerprint(problem),
        "cluster_fingerprint": fingerprint("cluster"),
        "cluster_name": "lab",
        "cost_version": "table-1",
        "problem": {"name": problem, "cluster": {"nodes": [{"name": "n0"}]}, "penalty": 0.2113},
        "plan": {"format": "arachne.cascade-plan/1", "instance": problem, "runs": runs},
        "status": "feasible",
        "objective_us": 43_699_000,
        "bound_us": 41_000_000,
        "solver": "cpsat",
        "seed": 7,
        "wall_s": 1.25,
        "time_limit_s": 10.0,
        "verdict": "legal",
        "versions": {"ortools": "9.15"},
    }
    return PlanRecord(**(values | changes))


def run_record(plan_id: str, **changes: Any) -> RunRecord:
    values: dict[str, Any] = {
        "plan_id": plan_id,
        "status": "done",
        "world_size": 4,
        "planned_us": 1_000_000,
        "measured_us": 1_100_000,
        "report": {"tasks": [{"rank": 0, "start_us": 0, "end_us": 1_100_000}]},
    }
    return RunRecord(**(values | changes))


def measurement(**changes: Any) -> Measurement:
    values: dict[str, Any] = {
        "model": "wan-tiny",
        "task": "denoise",
        "device_type": "cpu",
        "degree": 2,
        "batch": 1,
        "frames": 17,
        "height": 64,
        "width": 96,
        "text_tokens": 32,
        "duration_us": 81_000,
        "memory_bytes": 3 * 2**40,
        "source": "profile",
    }
    return Measurement(**(values | changes))
