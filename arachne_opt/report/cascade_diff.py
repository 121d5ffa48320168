"""What differs between two cascade plans, in words."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from arachne_opt.cascade.plan import CascadePlan, Placement
from arachne_opt.cascade.problem import Cascade, CascadeProblem
from arachne_opt.report.cluster_diff import cluster_changes
from arachne_opt.units import format_seconds


@dataclass(frozen=True, slots=True, kw_only=True)
class Moved:
    """One task in both plans."""

    name: str
    before: Placement
    after: Placement

    @property
    def regrouped(self) -> bool:
        """Whether it runs on other devices."""
        return self.before.devices != self.after.devices

    @property
    def delay_us(self) -> int:
        """How much later it starts."""
        return self.after.start_us - self.before.start_us


def cascade_changes(
    a: CascadeProblem, plan_a: CascadePlan, b: CascadeProblem, plan_b: CascadePlan
) -> list[str]:
    """A line per change from one plan to the other; none where they are the same.

    Cascades are the same if their ids and tasks are, else if their tasks are, else if their ids
    are.
    """
    lines = [f"the cluster {text}" for text in cluster_changes(a.cluster, b.cluster)]
    pairs = paired(a, b)
    gone = [c.id for i, c in enumerate(a.cascades) if i not in pairs]
    fresh = [c.id for i, c in enumerate(b.cascades) if i not in pairs.values()]
    lines += [f"{_counted(ids, 'cascade')} {verb}" for ids, verb in _named(gone, fresh)]
    moved = _moved(a, plan_a, plan_b, pairs)
    lines += [_task_line(m) for m in moved if m.regrouped]
    lines += _starts([m for m in moved if not m.regrouped and m.delay_us])
    if moved:
        kept = sum(not m.regrouped for m in moved)
        degrees = sum(m.before.degree != m.after.degree for m in moved)
        text = f"{kept} of {len(moved)} tasks keep their devices, {degrees} change their degree"
        lines += [text] if lines else []
    return lines


def paired(a: CascadeProblem, b: CascadeProblem) -> dict[int, int]:
    """Cascades of one problem with the same ones of another."""
    pairs: dict[int, int] = {}
    free = dict(enumerate(b.cascades))
    for same in (_twins, _equals, _namesakes):
        for i, cascade in enumerate(a.cascades):
            match = next((j for j, other in free.items() if same(cascade, other)), None)
            if i not in pairs and match is not None:
                pairs[i] = match
                del free[match]
    return pairs


def _twins(x: Cascade, y: Cascade) -> bool:
    return x.id == y.id and x.tasks == y.tasks


def _equals(x: Cascade, y: Cascade) -> bool:
    return x.tasks == y.tasks


def _namesakes(x: Cascade, y: Cascade) -> bool:
    return x.id == y.id and [t.name for t in x.tasks] == [t.name for t in y.tasks]


def _moved(
    a: CascadeProblem, plan_a: CascadePlan, plan_b: CascadePlan, pairs: dict[int, int]
) -> list[Moved]:
    after = {(p.cascade, p.task): p for p in plan_b.placements}
    rows = []
    for p in plan_a.placements:
        other = after.get((pairs.get(p.cascade, -1), p.task))
        if other is not None:
            cascade = a.cascades[p.cascade]
            shape = f" ({cascade.label})" if cascade.label not in ("", cascade.id) else ""
            name = f"{cascade.tasks[p.task].name} of {cascade.id}{shape}"
            rows.append(Moved(name=name, before=p, after=other))
    return rows


def _named(gone: list[str], fresh: list[str]) -> list[tuple[list[str], str]]:
    both = ((gone, "gone"), (fresh, "new"))
    return [(ids, ("is " if len(ids) == 1 else "are ") + word) for ids, word in both if ids]


def _counted(ids: Sequence[str], noun: str) -> str:
    shown = ", ".join(ids[:5]) + (f" and {len(ids) - 5} more" if len(ids) > 5 else "")
    return f"{noun}{'' if len(ids) == 1 else 's'} {shown}"


def _task_line(m: Moved) -> str:
    parts = []
    if m.before.degree != m.after.degree:
        parts.append(f"degree {m.before.degree} → {m.after.degree}")
    parts.append(f"devices {ranges(m.before.devices)} → {ranges(m.after.devices)}")
    if m.delay_us:
        parts.append(f"starts {_shift(m.delay_us)}")
    return f"{m.name}: {', '.join(parts)}"


def _starts(moved: list[Moved]) -> list[str]:
    """The tasks that only start at other times, in one line."""
    if not moved:
        return []
    most = max(moved, key=lambda m: abs(m.delay_us))
    if len(moved) == 1:
        return [f"{most.name}: starts {_shift(most.delay_us)}"]
    text = f"{len(moved)} tasks start at other times on the same devices"
    return [f"{text}, most of all {most.name}: {_shift(most.delay_us)}"]


def _shift(delay_us: int) -> str:
    return f"{format_seconds(abs(delay_us))} {'later' if delay_us > 0 else 'earlier'}"


def ranges(numbers: Sequence[int]) -> str:
    """Numbers such as ``0-3, 8``."""
    runs: list[list[int]] = []
    for n in sorted(numbers):
        if runs and n == runs[-1][-1] + 1:
            runs[-1].append(n)
        else:
            runs.append([n])
    return ", ".join(f"{r[0]}-{r[-1]}" if len(r) > 1 else str(r[0]) for r in runs)
