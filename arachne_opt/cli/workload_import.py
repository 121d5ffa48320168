"""``arachne workload import`` and ``buckets``: what trainers' users have becomes ours."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import click

from arachne_opt.cli.options import OUTPUT, PATH, format_option
from arachne_opt.cli.output import emit_json, write_whole
from arachne_opt.cli.progress import ProgressLine
from arachne_opt.errors import InputError
from arachne_opt.suggest import did_you_mean

if TYPE_CHECKING:
    from collections.abc import Iterable

    from arachne_opt.importers.media import Imported, Probe, Skipped

_SHOWN = 10
_TRAINERS = "open-sora, finetrainers, diffusion-pipe, musubi, fastvideo"


@click.command("import")
@click.argument("source", type=PATH)
@click.option("--from", "trainer", metavar="FORMAT", help=f"One of {_TRAINERS}.  [default: sniff]")
@click.option("--out", "-o", type=OUTPUT, required=True, help="Manifest to write, CSV or JSONL.")
@click.option("--skip-bad", is_flag=True, help="Go on without rows that are no clips; list them.")
@click.option("--no-probe", is_flag=True, help="Read no files for sizes that SOURCE leaves out.")
@click.option(
    "--fps",
    type=click.FloatRange(min=0, min_open=True),
    help="Rate that the trainer resamples to, where the source leaves it open.",
)
@format_option
def import_manifest(
    source: Path,
    trainer: str | None,
    out: Path,
    skip_bad: bool,
    no_probe: bool,
    fps: float | None,
    form: str,
) -> None:
    """Turn a trainer's data set into a manifest of ours.

    SOURCE is a file or a folder. Sizes that it leaves out are read from the clips' files, which
    needs the extra decode. A row that is no clip is an error with its line, or is skipped and
    counted with --skip-bad.

    Example: arachne workload import metadata.csv --from finetrainers -o clips.jsonl
    """
    from arachne_opt.importers.manifests import MANIFEST_FORMATS, recognise_manifest
    from arachne_opt.importers.media import ImportOptions
    from arachne_opt.manifest import write_manifest

    name = chosen(trainer, MANIFEST_FORMATS) or sniffed(*recognise_manifest(source))
    line = ProgressLine()
    options = ImportOptions(probe=None if no_probe else _probe(line), fps=fps)
    try:
        found = MANIFEST_FORMATS[name].read(source, options)
    finally:
        line.clear()
    _judge(found, skip_bad=skip_bad)
    write_manifest(found.clips, out)
    tell(found.notes)
    if form == "json":
        skipped = [asdict(entry) for entry in found.skipped]
        body = {"from": name, "clips": len(found.clips), "skipped": skipped}
        emit_json("workload-import", {**body, "notes": list(found.notes), "out": str(out)})
        return
    click.echo(f"{len(found.clips)} clips from {name} written to {out}")


@click.command("buckets")
@click.argument("source", type=PATH)
@click.option("--from", "trainer", metavar="FORMAT", help=f"One of {_TRAINERS}.  [default: sniff]")
@click.option("--out", "-o", type=OUTPUT, required=True, help="Bucket table to write, JSON.")
@click.option(
    "--batch",
    type=click.IntRange(min=1),
    default=1,
    show_default=True,
    help="Clips of a micro-batch where the source does not say.",
)
@format_option
def import_buckets(source: Path, trainer: str | None, out: Path, batch: int, form: str) -> None:
    """Turn a trainer's bucket configuration into a bucket table of ours, for --buckets.

    Example: arachne workload buckets stage1.py --from open-sora -o buckets.json
    """
    from arachne_opt.buckets import buckets_to_dict
    from arachne_opt.importers.bucket_files import BUCKET_FORMATS, recognise_buckets

    name = chosen(trainer, BUCKET_FORMATS) or sniffed(*recognise_buckets(source))
    found = BUCKET_FORMATS[name].read(source, batch)
    write_whole(out, json.dumps(buckets_to_dict(found.table), indent=1) + "\n")
    tell(found.notes)
    count = len(found.table.buckets)
    if form == "json":
        body = {"from": name, "buckets": count, "notes": list(found.notes), "out": str(out)}
        emit_json("workload-buckets", body)
        return
    click.echo(f"{count} buckets from {name} written to {out}")


def chosen(name: str | None, known: Iterable[str]) -> str | None:
    """A format that the user names, or None where it is left open."""
    names = list(known)
    if name is not None and name not in names:
        what = f"no format is called {name!r}{did_you_mean(name, names)}"
        raise click.BadParameter(f"{what}; there are {', '.join(names)}", param_hint="--from")
    return name


def sniffed(name: str, reason: str) -> str:
    """Says what a file was recognised as."""
    click.echo(f"recognised as {name} by {reason}", err=True)
    return name


def _probe(line: ProgressLine) -> Probe:
    from arachne_opt.executor.video_files import FileFacts, file_facts, require_decoder

    count = 0

    def probe(path: str, where: str) -> FileFacts:
        nonlocal count
        require_decoder(path, where)
        count += 1
        line.show(f"reading file {count}: {path}")
        return file_facts(path, where)

    return probe


def _judge(found: Imported, *, skip_bad: bool) -> None:
    """Lists what was skipped; an error unless that was allowed, or where nothing is left."""
    if not found.skipped:
        return
    text = _listed(found.skipped)
    if not skip_bad:
        raise InputError(text, hint="--skip-bad to go on without them")
    if not found.clips:
        raise InputError(text, hint="another --from: no clip is left")
    click.echo(f"skipped: {text}", err=True)


def _listed(skipped: tuple[Skipped, ...]) -> str:
    """The rows that are no clips, the first ones with their reasons."""
    many = len(skipped) > 1
    count = f"{len(skipped)} rows are no clips" if many else "1 row is no clip"
    lines = [f"  {entry.where}: {entry.reason}" for entry in skipped[:_SHOWN]]
    if len(skipped) > _SHOWN:
        lines.append(f"  and {len(skipped) - _SHOWN} more")
    return "\n".join([f"{count}:", *lines])


def tell(notes: tuple[str, ...]) -> None:
    """Prints remarks of an importer."""
    for note in notes:
        click.echo(f"note: {note}", err=True)
