"""Cascade plans and their JSON form ``arachne.cascade-plan/1``.

A plan of which tasks compute their activations again is ``arachne.cascade-plan/2``: the same with
``"recompute": true`` in these runs. Who knows the first form only then refuses it, and does not
replay it without them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from arachne_opt.cascade.problem import CascadeProblem
from arachne_opt.errors import InputError
from arachne_opt.units import US_PER_S, seconds_from_us

PLAN_FORMAT = "arachne.cascade-plan/1"
RECOMPUTE_FORMAT = "arachne.cascade-plan/2"

# The format keeps the names of the public data.
STAGE_OF_TASK = {"encode": "vae", "denoise": "dit"}
TASK_OF_STAGE = {stage: task for task, stage in STAGE_OF_TASK.items()}


@dataclass(frozen=True, slots=True, kw_only=True)
class Placement:
    """One task on a group of devices for a span of time.

    Args:
        cascade: index of the cascade in the problem.
        task: index of the task in the cascade.
        devices: the group, in rank order of the sequence-parallel group.
        recompute: by the option that computes activations again.
    """

    cascade: int
    task: int
    devices: tuple[int, ...]
    start_us: int
    end_us: int
    recompute: bool = False

    @property
    def degree(self) -> int:
        """Number of devices."""
        return len(self.devices)


@dataclass(frozen=True, slots=True, kw_only=True)
class CascadePlan:
    """A timed placement of every task; placements are sorted by start, cascade and task."""

    problem_name: str
    placements: tuple[Placement, ...]

    def __post_init__(self) -> None:
        def order(p: Placement) -> tuple[int, int, int]:
            return p.start_us, p.cascade, p.task

        object.__setattr__(self, "placements", tuple(sorted(self.placements, key=order)))

    @property
    def makespan_us(self) -> int:
        """End of the last task."""
        return max((p.end_us for p in self.placements), default=0)

    def relabel(
        self, name: str, cascades: Mapping[int, int], devices: Mapping[int, int]
    ) -> CascadePlan:
        """The same plan with other cascade and device numbers."""
        moved = tuple(
            replace(p, cascade=cascades[p.cascade], devices=tuple(devices[d] for d in p.devices))
            for p in self.placements
        )
        return CascadePlan(problem_name=name, placements=moved)

    def to_json(self, problem: CascadeProblem) -> dict[str, Any]:
        """The exported form; ``task`` is the index of the cascade."""
        runs = []
        for p in self.placements:
            name = problem.cascades[p.cascade].tasks[p.task].name
            runs.append(
                {
                    "task": p.cascade,
                    "stage": STAGE_OF_TASK.get(name, name),
                    "sp": p.degree,
                    "gpus": list(p.devices),
                    "start_s": seconds_from_us(p.start_us),
                    "end_s": seconds_from_us(p.end_us),
                    **({"recompute": True} if p.recompute else {}),
                }
            )
        form = RECOMPUTE_FORMAT if any(p.recompute for p in self.placements) else PLAN_FORMAT
        return {"format": form, "instance": self.problem_name, "runs": runs}


def plan_from_json(value: object, problem: CascadeProblem) -> CascadePlan:
    """Reads the exported form back.

    Raises:
        InputError: another format, an unknown cascade or stage, or a field of the wrong type.
    """
    forms = PLAN_FORMAT, RECOMPUTE_FORMAT
    if not isinstance(value, dict) or value.get("format") not in forms:
        raise InputError(f"not a plan of format {' or '.join(map(repr, forms))}")
    where = f"plan for {value.get('instance')!r}"
    try:
        placements = tuple(_placement(run, problem) for run in value["runs"])
    except (KeyError, TypeError, ValueError, OverflowError) as error:
        what = f"malformed run: {type(error).__name__} {error}"
        raise InputError(what, where=where) from error
    return CascadePlan(problem_name=str(value.get("instance")), placements=placements)


def _placement(run: Mapping[str, Any], problem: CascadeProblem) -> Placement:
    stage = str(run["stage"])
    cascade = int(run["task"])
    if not 0 <= cascade < len(problem.cascades):
        raise InputError(f"the problem has {len(problem.cascades)} cascades, no number {cascade}")
    name = TASK_OF_STAGE.get(stage, stage)
    names = [task.name for task in problem.cascades[cascade].tasks]
    if name not in names:
        raise InputError(f"cascade {cascade} has no stage {stage!r}; it has {', '.join(names)}")
    recompute = run.get("recompute", False)
    if not isinstance(recompute, bool):
        raise InputError(f"recompute is true or false, not {recompute!r}")
    return Placement(
        cascade=cascade,
        task=names.index(name),
        devices=tuple(int(d) for d in run["gpus"]),
        start_us=round(float(run["start_s"]) * US_PER_S),
        end_us=round(float(run["end_s"]) * US_PER_S),
        recompute=recompute,
    )


def to_canonical(plan: CascadePlan, problem: CascadeProblem) -> CascadePlan:
    """The plan in the canonical numbering of its problem, as it is stored."""
    cascades = _inverse(problem.canonical_cascade_order())
    devices = _inverse(problem.canonical_device_order())
    return plan.relabel(problem.fingerprint(), cascades, devices)


def from_canonical(plan: CascadePlan, problem: CascadeProblem) -> CascadePlan:
    """A stored plan in the numbering of a problem with the same fingerprint."""
    cascades = dict(enumerate(problem.canonical_cascade_order()))
    devices = dict(enumerate(problem.canonical_device_order()))
    return plan.relabel(problem.name, cascades, devices)


def _inverse(order: Sequence[int]) -> dict[int, int]:
    return {old: new for new, old in enumerate(order)}
