"""Problems and workloads from what the user names on the command line."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from arachne_opt.cascade.problem import CascadeProblem
from arachne_opt.cli.named_models import video_model
from arachne_opt.cluster import Cluster
from arachne_opt.costs.base import CostModel
from arachne_opt.errors import InputError
from arachne_opt.models import ModelSpec
from arachne_opt.workload import Clip, Workload

if TYPE_CHECKING:
    from arachne_opt.grouping import Refusal

_SHOWN_CLIPS = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupingOptions:
    """How a manifest becomes iterations, as asked on the command line."""

    buckets: Path | None = None
    iteration_size: int = 8
    batch: int = 1
    max_tokens: int | None = None
    span: str | None = None
    drop_refused: bool = False
    fps: float | None = None
    shuffle_seed: int = 0

    @classmethod
    def taken_from(cls, options: dict[str, Any]) -> GroupingOptions:
        """The part of a command's options that is about grouping; removes it from them."""
        return cls(**{field.name: options.pop(field.name) for field in fields(cls)})


def load_workload(
    manifest: Path,
    options: GroupingOptions,
    model: ModelSpec | None,
    *,
    on_dropped: Callable[[str, str], None] | None = None,
) -> Workload:
    """Reads and groups the clips of a manifest; says what was shortened, resized and dropped.

    Clips in the manifest's quarantine are left out, and counted.

    Args:
        manifest: file of clips.
        options: how they are grouped.
        model: says which shapes it takes.
        on_dropped: told the id of each clip that no iteration gets, and why.

    Raises:
        InputError: the manifest cannot be read, or clips fit no bucket and were not given up.
    """
    from arachne_opt.buckets import read_buckets
    from arachne_opt.frame_rate import at_frame_rate, frame_lines
    from arachne_opt.grouping import group_clips

    dropped = on_dropped or (lambda _clip, _why: None)
    clips = usable_clips(manifest, dropped)
    grouped = group_clips(
        at_frame_rate(clips, options.fps) if options.fps else clips,
        buckets=read_buckets(options.buckets) if options.buckets else None,
        model=model,
        iteration_size=options.iteration_size,
        batch=options.batch,
        max_tokens=options.max_tokens,
        seed=options.shuffle_seed,
        name=manifest.stem,
    )
    if grouped.shortened or grouped.resized:
        what = f"{grouped.shortened} clips lose frames, {grouped.resized} are resized"
        click.echo(f"{what} to the shapes of their micro-batches", err=True)
    if grouped.refused:
        text = refusals(grouped.refused)
        if not options.drop_refused:
            hint = "other buckets, or --drop-refused to go on without them"
            raise InputError(text, where=str(manifest), hint=hint)
        click.echo(f"dropped: {text}", err=True)
        for one in grouped.refused:
            dropped(one.clip_id, one.reason)
    chosen = select(grouped.workload, options.span)
    lines = frame_lines(clips, chosen)
    for line in lines[:_SHOWN_CLIPS] if any("->" in line for line in lines) else ():
        click.echo(line, err=True)
    return chosen


def usable_clips(
    manifest: Path, on_dropped: Callable[[str, str], None] | None = None
) -> tuple[Clip, ...]:
    """The clips of a manifest without those in its quarantine, which are counted on stderr."""
    from arachne_opt.manifest import read_manifest
    from arachne_opt.quarantine import quarantine_path, read_quarantine

    clips, file = read_manifest(manifest), quarantine_path(manifest)
    entries = read_quarantine(file)
    out = {entry.id for entry in entries}
    if on_dropped is not None:
        known = {clip.id for clip in clips}
        for entry in entries:
            if entry.id in known:
                on_dropped(entry.id, f"in quarantine: {entry.reason}")
    left = tuple(clip for clip in clips if clip.id not in out)
    if len(left) < len(clips):
        click.echo(f"{len(clips) - len(left)} clips are in quarantine: {file}", err=True)
    if not left:
        raise InputError("every clip is in quarantine", where=str(file))
    return left


def refusals(refused: Sequence[Refusal]) -> str:
    """The clips that fit nowhere, the first ones with their reason."""
    lines = [f"  {r.clip_id} ({r.shape}): {r.reason}" for r in refused[:_SHOWN_CLIPS]]
    if len(refused) > _SHOWN_CLIPS:
        lines.append(f"  and {len(refused) - _SHOWN_CLIPS} more")
    return "\n".join([f"{len(refused)} clips fit nowhere:", *lines])


def select(workload: Workload, span: str | None) -> Workload:
    """The iterations A to B of a workload, B not included."""
    if span is None:
        return workload
    first, colon, last = span.partition(":")
    try:
        begin = int(first or 0)
        end = int(last) if last else (len(workload.iterations) if colon else begin + 1)
    except ValueError as error:
        raise InputError(f"cannot read the span {span!r}", hint="--iterations 0:4") from error
    chosen = workload.iterations[begin:end]
    if begin < 0 or not chosen:
        count = len(workload.iterations)
        raise InputError(f"no iteration in {span}", hint=f"a span within 0:{count}")
    return Workload(name=workload.name, iterations=chosen)


def load_costs(
    table: Path | None,
    model: str | None,
    cluster: Cluster,
    *,
    text_encoder: bool = False,
    recompute: str | None = None,
    sharding: str = "zero1",
) -> CostModel:
    """Measured costs of a table, else the analytic model of a named architecture.

    Args:
        table: file of measured costs.
        model: name of an architecture instead, or the path of its ``config.json``.
        cluster: where its tasks run.
        text_encoder: texts are encoded, too.
        recompute: where activations are computed again: ``always``, ``never`` or as ``planned``.
            Analytic memory is then that of our runtime; None leaves what is priced by default.
        sharding: of the runtime.
    """
    if table is not None and text_encoder:
        raise click.UsageError("--text-encoder goes with --model: a table has the tasks it has")
    if (table is None) == (model is None):
        raise click.UsageError("name either --costs FILE (measured) or --model NAME (analytic)")
    if table is not None:
        from arachne_opt.costs.table import read_cost_table

        measured = read_cost_table(table)
        return measured if recompute is None else measured.recomputing(recompute)
    from arachne_opt.costs.analytic import analytic_for_cluster
    from arachne_opt.costs.runtime_memory import RuntimeMemory

    assert model is not None
    spec, runtime = video_model(model), None
    if recompute is not None:
        runtime = RuntimeMemory(model=spec, ranks=cluster.device_count, sharding=sharding)
    return analytic_for_cluster(
        spec,
        cluster,
        text_encoder=text_encoder,
        checkpointing=recompute != "never",
        recompute=recompute == "planned",
        runtime=runtime,
    )


def build_problems(
    workload: Workload,
    cluster: Cluster,
    costs: CostModel,
    degrees: Sequence[int] | None,
    forbidden: Sequence[int] = (),
) -> tuple[CascadeProblem, ...]:
    """One problem per iteration."""
    from arachne_opt.costs.build import build_problem

    return tuple(
        build_problem(it, cluster, costs, degrees=degrees, forbidden_devices=forbidden)
        for it in workload.iterations
    )


def parse_degrees(text: str | None) -> tuple[int, ...] | None:
    """Degrees such as ``1,2,4``."""
    if text is None:
        return None
    try:
        degrees = tuple(sorted({int(part) for part in text.split(",")}))
    except ValueError as error:
        raise click.BadParameter(f"cannot read {text!r}; try --degrees 1,2,4") from error
    if not degrees or degrees[0] < 1:
        raise click.BadParameter("degrees are at least 1")
    return degrees
