"""What differs between two pipeline plans, in words."""

from __future__ import annotations

from collections import Counter

from arachne_opt.pipeline.plan import Pipeline, PipelinePlan, Stage


def pipeline_changes(a: PipelinePlan, b: PipelinePlan) -> list[str]:
    """A line per change from one plan to the other; none where they are the same.

    Pipelines are compared with the most similar one of the other plan; pipelines and stages are
    numbered from 0, as they are shown.
    """
    lines = []
    if a.global_batch != b.global_batch:
        lines.append(f"global batch {a.global_batch} → {b.global_batch}")
    if a.zero1 != b.zero1:
        lines.append(f"optimizer state is {'now' if b.zero1 else 'no longer'} shared over replicas")
    pairs = paired(a, b)
    for p, pipeline in enumerate(a.pipelines):
        if p not in pairs:
            lines.append(f"pipeline {p} is gone ({_outline(pipeline)})")
            continue
        q = pairs[p]
        name = f"pipeline {p}" if p == q else f"pipeline {p} (now {q})"
        changes = _batches(pipeline, a.counts[p], b.pipelines[q], b.counts[q])
        changes += _stages(pipeline, b.pipelines[q])
        lines += [f"{name}: {text}" for text in changes]
    for q, pipeline in enumerate(b.pipelines):
        if q not in pairs.values():
            lines.append(f"pipeline {q} is new ({_outline(pipeline)})")
    return lines


def paired(a: PipelinePlan, b: PipelinePlan) -> dict[int, int]:
    """Pipelines of one plan with the most similar ones of the other."""
    options = sorted(
        (_unlike(x, y), abs(p - q), p, q)
        for p, x in enumerate(a.pipelines)
        for q, y in enumerate(b.pipelines)
    )
    pairs: dict[int, int] = {}
    for _, _, p, q in options:
        if p not in pairs and q not in pairs.values():
            pairs[p] = q
    return dict(sorted(pairs.items()))


def _unlike(x: Pipeline, y: Pipeline) -> int:
    """Replicas and rows that differ, stage by stage."""
    total = 100 * abs(len(x.stages) - len(y.stages))
    for s, t in zip(x.stages, y.stages, strict=False):
        mine, other = _kinds(s), _kinds(t)
        total += abs(s.end - t.end) + sum(((mine - other) + (other - mine)).values())
    return total


def _kinds(stage: Stage) -> Counter[str]:
    return Counter(r.kind.label for r in stage.replicas)


def _batches(x: Pipeline, count_x: int, y: Pipeline, count_y: int) -> list[str]:
    lines = []
    if x.microbatch != y.microbatch:
        lines.append(f"micro-batch {x.microbatch} → {y.microbatch}")
    if count_x != count_y:
        lines.append(f"{count_x} → {count_y} micro-batches")
    return lines


def _stages(x: Pipeline, y: Pipeline) -> list[str]:
    if len(x.stages) != len(y.stages):
        lines = [f"{len(x.stages)} → {len(y.stages)} stages"]
        lines += [f"was stage {i}: {_stage(s)}" for i, s in enumerate(x.stages)]
        return lines + [f"now stage {i}: {_stage(s)}" for i, s in enumerate(y.stages)]
    lines = []
    for i, (s, t) in enumerate(zip(x.stages[:-1], y.stages[:-1], strict=True)):
        if s.end != t.end:
            loser, winner = (i, i + 1) if t.end < s.end else (i + 1, i)
            count = abs(s.end - t.end)
            noun = "layer" if count == 1 else "layers"
            lines.append(f"stage {loser} loses {count} {noun} to stage {winner}")
    for i, (s, t) in enumerate(zip(x.stages, y.stages, strict=True)):
        if _kinds(s) != _kinds(t):
            lines.append(f"stage {i}: {_replicas(s)} → {_replicas(t)}")
        if s.recompute != t.recompute:
            word = "now" if t.recompute else "no longer"
            lines.append(f"stage {i} {word} rebuilds activations")
        nodes = [sorted((r.kind.device_type, r.node or 0) for r in z.replicas) for z in (s, t)]
        if _kinds(s) == _kinds(t) and nodes[0] != nodes[1]:
            lines.append(f"stage {i} moves to other nodes")
    return lines


def _replicas(stage: Stage) -> str:
    return ", ".join(f"{n} x {label}" for label, n in _kinds(stage).items())


def _stage(stage: Stage) -> str:
    return f"rows {stage.first}-{stage.end - 1} on {_replicas(stage)}"


def _outline(pipeline: Pipeline) -> str:
    return "; ".join(_stage(stage) for stage in pipeline.stages)
