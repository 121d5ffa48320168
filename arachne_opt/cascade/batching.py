"""The batching problem: which clips of an iteration share a micro-batch, and where each runs.

Clips of one shape form a family, the clip with the longest text first. A candidate micro-batch is
a run of consecutive clips of a family: texts are padded to the longest of their micro-batch, so
that clips of like text belong together. A batching cuts every family into candidates.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from arachne_opt.canonical import digest
from arachne_opt.cascade.plan import CascadePlan
from arachne_opt.cascade.problem import Cascade, CascadeProblem
from arachne_opt.cluster import Cluster
from arachne_opt.errors import DisagreementError, InputError
from arachne_opt.workload import Clip, Iteration, MicroBatch, Shape

BATCHING_FORMAT = "arachne.batching-problem/1"

# Clips of the micro-batches of every family, in order of the family's clips.
Batching = tuple[tuple[int, ...], ...]

_ID = re.compile(r"s([0-9]+)c([0-9]+)x([0-9]+)")


class Segment(NamedTuple):
    """``size`` clips of a family from the clip number ``first`` on."""

    family: int
    first: int
    size: int

    @property
    def id(self) -> str:
        """Id of the micro-batch, from which ``batching_of_ids`` reads the segment back."""
        return f"s{self.family}c{self.first}x{self.size}"


@dataclass(frozen=True, slots=True, kw_only=True)
class ClipFamily:
    """Clips of one shape.

    Args:
        clips: the longest text first.
        kinds: ``kinds[first][size - 1]`` is the index of the priced micro-batch in the catalogue,
            None where the micro-batch fits no device or has no price.
    """

    shape: Shape
    clips: tuple[Clip, ...]
    kinds: tuple[tuple[int | None, ...], ...]

    def __post_init__(self) -> None:
        if not self.clips or len(self.kinds) != len(self.clips):
            what = f"{len(self.kinds)} rows of candidates for {len(self.clips)} clips"
            raise InputError(what, where=f"clips of {self.shape}")
        for first, row in enumerate(self.kinds):
            if len(row) > len(self.clips) - first:
                raise InputError(f"a candidate from clip {first} has more clips than there are")

    def kind(self, first: int, size: int) -> int | None:
        """The priced micro-batch of a run of clips, None where it is no candidate."""
        row = self.kinds[first]
        return row[size - 1] if size <= len(row) else None


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchingProblem:
    """The clips of one iteration with all micro-batches that they may form, priced.

    Args:
        catalogue: a priced cascade per kind of micro-batch, whose ids do not matter.
        tail_us: as in ``CascadeProblem``, like ``resident_bytes``.
    """

    name: str
    cluster: Cluster
    families: tuple[ClipFamily, ...]
    catalogue: tuple[Cascade, ...]
    cost_version: str = ""
    tail_us: int = 0
    resident_bytes: tuple[tuple[str, int], ...] = ()

    def __post_init__(self) -> None:
        if not self.families:
            raise InputError("an iteration needs a clip", where=self.name)
        used = {k for f in self.families for row in f.kinds for k in row if k is not None}
        if used and not 0 <= min(used) <= max(used) < len(self.catalogue):
            raise InputError("a candidate is not in the catalogue", where=self.name)

    @property
    def clip_count(self) -> int:
        """Number of clips."""
        return sum(len(family.clips) for family in self.families)

    def clips(self) -> Iterator[tuple[Shape, Clip]]:
        """All clips with the shapes that they are trained at."""
        for family in self.families:
            yield from ((family.shape, clip) for clip in family.clips)

    def segments(self, batching: Batching) -> tuple[Segment, ...]:
        """The micro-batches of a batching, family by family.

        Raises:
            InputError: the sizes do not cover every family, or one is no candidate.
        """
        if len(batching) != len(self.families):
            raise InputError(f"{len(batching)} rows of sizes for {len(self.families)} shapes")
        out = []
        for number, (family, sizes) in enumerate(zip(self.families, batching, strict=True)):
            first = 0
            for size in sizes:
                if size < 1 or first + size > len(family.clips):
                    break
                if family.kind(first, size) is None:
                    what = f"{size} clips of {family.shape} fit no device"
                    raise InputError(what, where=self.name)
                out.append(Segment(number, first, size))
                first += size
            if first != len(family.clips) or sum(sizes) != first:
                what = f"micro-batches of {list(sizes)} do not hold {len(family.clips)} clips"
                raise InputError(what, where=f"clips of {family.shape}")
        return tuple(out)

    def iteration(self, batching: Batching) -> Iteration:
        """The micro-batches of a batching; every clip is in exactly one."""
        batches = []
        for segment in self.segments(batching):
            family = self.families[segment.family]
            clips = family.clips[segment.first : segment.first + segment.size]
            batches.append(MicroBatch(id=segment.id, shape=family.shape, clips=clips))
        iteration = Iteration(name=self.name, micro_batches=tuple(batches))
        require_every_clip_once(self.clips(), iteration)
        return iteration

    def placement_problem(self, batching: Batching) -> CascadeProblem:
        """The problem of placing the micro-batches of a batching."""
        cascades = []
        for segment in self.segments(batching):
            family = self.families[segment.family]
            kind = family.kind(segment.first, segment.size)
            assert kind is not None  # segments() refuses what is no candidate
            label = f"{segment.size}x{family.shape}"
            cascades.append(replace(self.catalogue[kind], id=segment.id, label=label))
        return CascadeProblem(
            name=self.name,
            cluster=self.cluster,
            cascades=tuple(cascades),
            cost_version=self.cost_version,
            tail_us=self.tail_us,
            resident_bytes=self.resident_bytes,
        )

    def batching_of(self, iteration: Iteration) -> Batching:
        """The batching with the micro-batch sizes of an iteration, the largest first.

        Raises:
            InputError: the iteration has other shapes or other numbers of clips.
        """
        sizes: dict[Shape, list[int]] = {}
        for batch in iteration.micro_batches:
            sizes.setdefault(batch.shape, []).append(batch.size)
        counts = {shape: sum(row) for shape, row in sizes.items()}
        if counts != {family.shape: len(family.clips) for family in self.families}:
            raise InputError("the iteration has other clips", where=iteration.name)
        return tuple(tuple(sorted(sizes[f.shape], reverse=True)) for f in self.families)

    def carry_over(self, iteration: Iteration, plan: CascadePlan) -> CascadePlan:
        """The plan of an iteration with its groups and order given to ``batching_of(iteration)``.

        Micro-batches of equal shape and size stand for one another. Times are those of the given
        plan, and wrong where texts are dealt anew: shift the plan left before it is used.
        """
        free: dict[tuple[Shape, int], list[int]] = {}
        for index, segment in enumerate(self.segments(self.batching_of(iteration))):
            key = self.families[segment.family].shape, segment.size
            free.setdefault(key, []).append(index)
        cascades = {
            number: free[batch.shape, batch.size].pop(0)
            for number, batch in enumerate(iteration.micro_batches)
        }
        same = {d: d for d in range(self.cluster.device_count)}
        return plan.relabel(self.name, cascades, same)

    def prices(self) -> list[list[list[str | None]]]:
        """For every family and first clip the digest of each candidate, None for no candidate."""
        known = [digest(cascade.canonical()) for cascade in self.catalogue]
        return [
            [[None if k is None else known[k] for k in row] for row in family.kinds]
            for family in self.families
        ]

    def canonical(self) -> dict[str, Any]:
        """JSON values that are equal for problems that differ in names only.

        The order of the families counts: ids of micro-batches refer to it.
        """
        return canonical_clips(self, self.prices())

    def fingerprint(self) -> str:
        """Key of the problem in the plan database."""
        return digest(self.canonical())


def canonical_clips(
    problem: BatchingProblem | CascadeProblem, prices: Sequence[Sequence[Sequence[str | None]]]
) -> dict[str, Any]:
    """The canonical form of clips with these prices, or of a placement of some of them."""
    return {
        "format": BATCHING_FORMAT,
        "cluster": problem.cluster.canonical(),
        "families": prices,
        "cost_version": problem.cost_version,
        **({"tail_us": problem.tail_us} if problem.tail_us else {}),
        **({"resident_bytes": problem.resident_bytes} if problem.resident_bytes else {}),
    }


def batching_of_ids(ids: Iterable[str]) -> Batching:
    """The batching whose micro-batches have these ids.

    Raises:
        InputError: an id that is not one of a segment, or segments that do not follow another.
    """
    rows: dict[int, list[tuple[int, int]]] = {}
    for name in ids:
        found = _ID.fullmatch(name)
        if found is None:
            raise InputError(f"{name!r} is not the id of a chosen micro-batch")
        family, first, size = map(int, found.groups())
        rows.setdefault(family, []).append((first, size))
    if sorted(rows) != list(range(len(rows))):
        raise InputError(f"micro-batches of the shapes {sorted(rows)} only")
    return tuple(_sizes(sorted(rows[family])) for family in range(len(rows)))


def require_every_clip_once(clips: Iterable[tuple[Shape, Clip]], iteration: Iteration) -> None:
    """Checks that an iteration holds exactly the given clips, each at its shape.

    Raises:
        DisagreementError: a clip is lost, doubled, foreign, or in a micro-batch of another shape.
    """
    asked = Counter((clip.id, shape) for shape, clip in clips)
    held = Counter((clip.id, b.shape) for b in iteration.micro_batches for clip in b.clips)
    if asked != held:
        lost, extra = sorted(asked - held), sorted(held - asked)
        named = ", ".join(f"{clip} at {shape}" for clip, shape in (*lost, *extra)[:5])
        what = f"{len(lost)} clips are lost and {len(extra)} are too many: {named}"
        raise DisagreementError(what, where=f"iteration {iteration.name}")


def _sizes(segments: Sequence[tuple[int, int]]) -> tuple[int, ...]:
    at = 0
    for first, size in segments:
        if first != at:
            raise InputError(f"no micro-batch begins at clip {at}")
        at += size
    return tuple(size for _, size in segments)
