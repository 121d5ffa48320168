"""``arachne workload``: read clips and group them."""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from arachne_opt.cli.options import (
    FILE,
    OUTPUT,
    database_option,
    format_option,
    group_option,
    limit_options,
    recompute_option,
    text_encoder_option,
    workload_options,
)
from arachne_opt.cli.output import emit_json, emit_table
from arachne_opt.cli.sources import GroupingOptions, load_workload, refusals
from arachne_opt.cli.workload_import import import_buckets, import_manifest
from arachne_opt.errors import INTERRUPTED
from arachne_opt.settings import database_url
from arachne_opt.workload import Clip, Workload

if TYPE_CHECKING:
    from arachne_opt.grouping import Refusal
    from arachne_opt.quarantine import Quarantined


@click.group()
def workload() -> None:
    """Read clips and group them into micro-batches and iterations."""


for _command in (import_manifest, import_buckets):
    workload.add_command(_command)


@workload.command()
@click.argument("manifest", type=FILE)
@click.option("--buckets", type=FILE, help="Say which clips fit these buckets.")
@click.option("--files", is_flag=True, help="Read every file to its end, quarantine bad ones.")
@format_option
def scan(manifest: Path, buckets: Path | None, files: bool, form: str) -> int:
    """Count the clips of a manifest by shape; exit 2 when some fit no bucket or cannot be read.

    With --files a clip whose file is damaged, or is not what the manifest says, goes into a
    quarantine beside the manifest; training leaves it out.

    Example: arachne workload scan clips.csv --buckets buckets.json --files
    """
    from arachne_opt.manifest import read_manifest

    clips = read_manifest(manifest)
    bad = _bad_files(clips, manifest) if files else ()
    clips = tuple(clip for clip in clips if clip.id not in {entry.id for entry in bad})
    refused = _refused(clips, buckets)
    shapes = Counter(clip.shape for clip in clips)
    if form == "json":
        body = [{"shape": str(shape), "clips": n} for shape, n in sorted(shapes.items())]
        lost = [{"clip": r.clip_id, "reason": r.reason} for r in refused]
        value = {"clips": len(clips), "shapes": body, "refused": lost}
        emit_json("workload-scan", {**value, "quarantined": [asdict(entry) for entry in bad]})
    else:
        emit_table(["shape", "clips"], [[shape, n] for shape, n in sorted(shapes.items())])
        tokens = [clip.text_tokens for clip in clips]
        span = f", text tokens {min(tokens)} to {max(tokens)}" if tokens else ""
        click.echo(f"{len(clips)} clips{span}")
    for entry in bad:
        click.echo(f"quarantined: clip {entry.id}: {entry.reason}", err=True)
    if refused:
        click.echo(refusals(refused), err=True)
    return 2 if bad or refused else 0


@workload.command()
@click.argument("manifest", type=FILE)
@click.option("--model", help="Round shapes down to what this model takes.")
@workload_options
@group_option
@click.option("--cluster", help="With --group clips: cluster file or shorthand.")
@click.option("--costs", "cost_table", type=FILE, help="With --group clips: measured costs.")
@text_encoder_option
@recompute_option
@limit_options
@database_option
@format_option
def show(manifest: Path, form: str, **options: Any) -> int:  # noqa: ANN401
    """Show the iterations and micro-batches that a manifest becomes.

    With --group clips they are planned, as micro-batches are chosen with their placement.

    Example: arachne workload show clips.csv --max-tokens 80000 --model wan2.1-14b
    """
    from arachne_opt.cli.named_models import video_model

    spec = video_model(options["model"]) if options["model"] else None
    grouping = GroupingOptions.taken_from(options)
    found = load_workload(manifest, grouping, spec)
    if options["group"] == "clips":
        chosen = _chosen(found, options, grouping)
        if chosen is None:
            return INTERRUPTED
        found = chosen
    _show(found, form)
    return 0


def _chosen(found: Workload, options: dict[str, Any], grouping: GroupingOptions) -> Workload | None:
    from arachne_opt.cli.batching import chosen_workload
    from arachne_opt.db.store import PlanStore
    from arachne_opt.planning.service import PlanService

    with PlanStore.open(database_url(options["db_url"])) as store:
        planned = chosen_workload(PlanService(store), found, options, grouping.max_tokens)
    return planned[0] if planned else None


def _show(found: Workload, form: str) -> None:
    if form == "json":
        emit_json(
            "workload",
            {
                "name": found.name,
                "iterations": [
                    {
                        "name": it.name,
                        "micro_batches": [
                            {
                                "id": b.id,
                                "shape": str(b.shape),
                                "text_tokens": b.text_tokens,
                                "clips": [clip.id for clip in b.clips],
                            }
                            for b in it.micro_batches
                        ],
                    }
                    for it in found.iterations
                ],
            },
        )
        return
    rows = [
        [it.name, batch.id, batch.label, batch.text_tokens]
        for it in found.iterations
        for batch in it.micro_batches
    ]
    emit_table(["iteration", "micro-batch", "clips x shape", "text tokens"], rows)
    click.echo(f"{found.clip_count} clips in {len(found.iterations)} iterations")


@workload.command()
@click.option(
    "--clips", type=click.IntRange(min=1), default=64, show_default=True, help="Clips to generate."
)
@click.option("--preset", default="tiny", show_default=True, help="Mixture of shapes by name.")
@click.option("--seed", type=int, default=0, show_default=True, help="Seed of shapes and lengths.")
@click.option("--out", type=OUTPUT, required=True, help="Manifest to write, CSV or JSONL.")
def generate(clips: int, preset: str, seed: int, out: Path) -> None:
    """Write a manifest of synthetic clips of mixed shapes (see the module's sources).

    Example: arachne workload generate --clips 2000 --preset mixed --out clips.csv
    """
    from arachne_opt.manifest import write_manifest
    from arachne_opt.workload_generator import generate_clips

    made = generate_clips(preset, count=clips, seed=seed)
    write_manifest(made, out)
    click.echo(f"{len(made)} clips of preset {preset} written to {out}", err=True)


def _bad_files(clips: tuple[Clip, ...], manifest: Path) -> tuple[Quarantined, ...]:
    """Reads all files; keeps bad ones in the quarantine."""
    from arachne_opt.cli.progress import ProgressLine
    from arachne_opt.executor.file_scan import scan_files
    from arachne_opt.quarantine import add_to_quarantine, quarantine_path

    line = ProgressLine()
    try:
        bad = scan_files(clips, lambda done: line.show(f"read {done}/{len(clips)} files"))
    finally:
        line.clear()
    if bad:
        file = quarantine_path(manifest)
        new = add_to_quarantine(file, bad)
        click.echo(f"{new} clips added to {file}", err=True)
    return bad


def _refused(clips: tuple[Clip, ...], buckets: Path | None) -> tuple[Refusal, ...]:
    if buckets is None:
        return ()
    from arachne_opt.buckets import read_buckets
    from arachne_opt.grouping import Refusal

    table = read_buckets(buckets)
    found = [(clip, table.assign(clip.shape)) for clip in clips]
    return tuple(
        Refusal(clip_id=clip.id, shape=clip.shape, reason=bucket)
        for clip, bucket in found
        if isinstance(bucket, str)
    )
