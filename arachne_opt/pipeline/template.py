"""Templates: the structure of a pipeline, without layers and micro-batch."""

from __future__ import annotations

import re
from dataclasses import dataclass
from itertools import groupby

from arachne_opt.errors import InputError
from arachne_opt.pipeline.plan import Pipeline, Replica, ReplicaKind, Stage

_GROUP = re.compile(
    r"(?P<type>[A-Za-z][\w.-]*?)(?:[×x](?P<count>\d+))?"
    r"\s+tp(?P<tp>\d+)(?:\s+ep(?P<ep>\d+)(?P<local>L)?)?(?:\s*@\s*(?P<zone>[\w.-]+))?"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaBlock:
    """``count`` equal replicas of a stage."""

    kind: ReplicaKind
    count: int = 1

    def __post_init__(self) -> None:
        if self.count < 1 or self.count % self.kind.ep:
            what = f"{self.count} replicas of {self.kind.label}"
            raise InputError(what, hint="a positive multiple of the expert degree")

    def __str__(self) -> str:
        """Short form, which ``parse_template`` reads: ``V100-16×3 tp2``."""
        kind = self.kind
        text = f"{kind.device_type}×{self.count} tp{kind.tp}"
        if kind.ep > 1:
            text += f" ep{kind.ep}{'L' if kind.ep_local else ''}"
        return text if kind.zone == "default" else f"{text} @{kind.zone}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Template:
    """Ordered stages, each of one or more blocks of replicas."""

    stages: tuple[tuple[ReplicaBlock, ...], ...]

    def __post_init__(self) -> None:
        if not self.stages or not all(self.stages):
            raise InputError("a template needs stages, and every stage a block of replicas")

    def __str__(self) -> str:
        """Short form: blocks of a stage joined by ``+``, stages by ``|``."""
        return " | ".join(" + ".join(map(str, stage)) for stage in self.stages)

    def devices(self) -> dict[str, int]:
        """Devices of each type."""
        used: dict[str, int] = {}
        for block in (b for stage in self.stages for b in stage):
            kind = block.kind
            used[kind.device_type] = used.get(kind.device_type, 0) + kind.tp * block.count
        return used

    def pipeline(
        self, cuts: tuple[int, ...], microbatch: int, microbatches: int | None = None
    ) -> Pipeline:
        """The pipeline with these layers; ``cuts`` has one entry more than there are stages."""
        assert len(cuts) == len(self.stages) + 1
        stages = tuple(
            Stage(
                first=cuts[i],
                end=cuts[i + 1],
                replicas=tuple(Replica(b.kind) for b in blocks for _ in range(b.count)),
            )
            for i, blocks in enumerate(self.stages)
        )
        return Pipeline(microbatch=microbatch, stages=stages, microbatches=microbatches)


def template_of(pipeline: Pipeline) -> Template:
    """The structure of a pipeline."""
    stages = []
    for stage in pipeline.stages:
        runs = groupby(stage.replicas, key=lambda r: r.kind)
        stages.append(tuple(ReplicaBlock(kind=k, count=len(list(run))) for k, run in runs))
    return Template(stages=tuple(stages))


def parse_template(text: str) -> Template:
    """Reads the short form, such as ``V100-16×3 tp2 | A100-40×2 tp1``."""
    return Template(
        stages=tuple(
            tuple(_block(part.strip()) for part in stage.split("+")) for stage in text.split("|")
        )
    )


def _block(text: str) -> ReplicaBlock:
    match = _GROUP.fullmatch(text)
    if match is None:
        raise InputError(f"cannot read the replicas {text!r}", hint='"V100-16×3 tp2"')
    kind = ReplicaKind(
        match["type"],
        int(match["tp"]),
        int(match["ep"] or 1),
        match["local"] is not None,
        match["zone"] or "default",
    )
    return ReplicaBlock(kind=kind, count=int(match["count"] or 1))
