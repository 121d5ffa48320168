"""What an exporter gives back."""

from __future__ import annotations

from dataclasses import dataclass

from arachne_opt.exporters.grid import Grid
from arachne_opt.exporters.rank_order import hosts_of, torn


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportedText:
    """A file for a trainer.

    Args:
        suffix: of the file.
        lost: what it cannot say.
    """

    text: str
    suffix: str
    lost: tuple[str, ...] = ()


def heading(grid: Grid, trainer: str, source: str) -> list[str]:
    """Lines that say what a file is for and where its ranks belong."""
    lines = [f"{grid.model} for {trainer}, by arachne {source}".rstrip()]
    lines.append(f"{grid.world_size} ranks: tp {grid.tp}, dp {grid.dp}, pp {grid.pp}, ep {grid.ep}")
    lines += [host.label for host in hosts_of(grid)]
    return lines


def lost_places(grid: Grid) -> tuple[str, ...]:
    """Nodes that a launcher cannot give their ranks."""
    return torn(hosts_of(grid))
