"""Checks a pipeline plan against its problem; shares no code with solvers and their costs."""

from __future__ import annotations

import enum
import math
from collections.abc import Iterator
from dataclasses import dataclass

from arachne_opt.pipeline.closed_form import price_plan
from arachne_opt.pipeline.facts import Facts
from arachne_opt.pipeline.packing import pack
from arachne_opt.pipeline.placement import Group, free_devices, node_groups
from arachne_opt.pipeline.plan import Pipeline, PipelinePlan, ReplicaKind, Stage
from arachne_opt.pipeline.problem import PipelineProblem
from arachne_opt.units import format_bytes


class Fault(enum.StrEnum):
    """Kinds of violation."""

    WRONG_MODEL = "wrong-model"
    WRONG_BATCH = "wrong-batch"
    LAYERS = "layers"
    UNKNOWN_TYPE = "unknown-type"
    UNKNOWN_ZONE = "unknown-zone"
    TOO_WIDE = "too-wide"
    DEVICES = "devices"
    NODE = "node"
    PACKING = "packing"
    MICROBATCH = "microbatch"
    NO_TIMES = "no-times"
    NO_LINK = "no-link"
    MEMORY = "memory"
    SAMPLES = "samples"
    EXCESS = "excess"
    EXPERTS = "experts"
    NOT_ALLOWED = "not-allowed"


@dataclass(frozen=True, slots=True, kw_only=True)
class Violation:
    """One reason why a plan is not legal; ``where`` names the pipeline and the stage."""

    code: Fault
    where: str
    text: str

    def __str__(self) -> str:
        """Code, place and text on one line."""
        return f"[{self.code}] {self.where}: {self.text}"


def check_plan(problem: PipelineProblem, plan: PipelinePlan) -> tuple[Violation, ...]:
    """Every violation of a plan; none for a legal one."""
    return tuple(_Checker(problem, plan).violations())


class _Checker:
    def __init__(self, problem: PipelineProblem, plan: PipelinePlan) -> None:
        self.problem = problem
        self.plan = plan
        self.facts = Facts(problem)

    def violations(self) -> Iterator[Violation]:
        """The plan as a whole, each pipeline's rows, each stage, then devices and links."""
        yield from self.head()
        rows = [v for p, pipe in enumerate(self.plan.pipelines) for v in self.layers(p, pipe)]
        stages = [v for v in self.all_stages() if not (rows and v.code is Fault.MEMORY)]
        yield from rows
        yield from stages
        yield from self.devices()
        # A link matters only where there is something to price.
        if not rows and not any(v.code in _UNPRICED for v in stages):
            yield from self.links()

    def head(self) -> Iterator[Violation]:
        """Model, global batch, samples of an iteration, and what the options allow."""
        plan, problem = self.plan, self.problem
        if plan.model != problem.model.name:
            text = f"the plan is for {plan.model!r}, the problem is {problem.model.name!r}"
            yield _violation(Fault.WRONG_MODEL, "plan", text)
        if plan.global_batch != problem.global_batch:
            text = f"{plan.global_batch} samples, the problem asks for {problem.global_batch}"
            yield _violation(Fault.WRONG_BATCH, "plan", text)
        if plan.samples < problem.global_batch:
            text = f"trains {plan.samples} of {problem.global_batch} samples"
            yield _violation(Fault.SAMPLES, "plan", text)
        excess = plan.samples - problem.global_batch
        if excess > 0 and not problem.options.allow_excess:
            yield _violation(Fault.EXCESS, "plan", f"trains {excess} samples too many")
        if plan.zero1 and not problem.options.zero1:
            yield _violation(Fault.NOT_ALLOWED, "plan", "shares optimizer state (ZeRO-1)")

    def layers(self, number: int, pipeline: Pipeline) -> Iterator[Violation]:
        """A pipeline holds every row once, in order, and no stage is empty."""
        at = 0
        for i, stage in enumerate(pipeline.stages):
            if stage.first != at or stage.end <= stage.first:
                text = f"rows {stage.first} to {stage.end}: empty, or row {at} should come next"
                yield _violation(Fault.LAYERS, _place(number, i), text)
            at = stage.end
        if at != self.problem.model.row_count:
            text = f"ends at row {at} of {self.problem.model.row_count}"
            yield _violation(Fault.LAYERS, f"pipeline {number}", text)

    def all_stages(self) -> Iterator[Violation]:
        """Each stage alone: kinds, experts, shares of the micro-batch, times and memory."""
        for p, i, stage in self.plan.stages():
            pipeline, where = self.plan.pipelines[p], _place(p, i)
            if stage.recompute and not self.problem.options.recomputation:
                yield _violation(Fault.NOT_ALLOWED, where, "rebuilds activations")
            yield from self.experts(stage, where)
            samples, rest = divmod(pipeline.batch, len(stage.replicas))
            if rest:
                text = f"{pipeline.batch} samples over {len(stage.replicas)} replicas"
                yield _violation(Fault.MICROBATCH, where, f"{text} are not whole")
            for kind in stage.kinds:
                found = self.kind(kind, where)
                yield from ([found] if found else [])
                if not rest and (found is None or found.code is Fault.TOO_WIDE):
                    in_flight = len(pipeline.stages) - i
                    yield from self.fits(stage, kind, samples, in_flight, where)

    def kind(self, kind: ReplicaKind, where: str) -> Violation | None:
        """Type, zone and width of a kind of replica."""
        nodes = self.problem.nodes_of_type.get(kind.device_type, ())
        if not nodes:
            types = ", ".join(self.problem.nodes_of_type)
            text = f"no {kind.device_type} in the cluster; it has {types}"
            return _violation(Fault.UNKNOWN_TYPE, where, text)
        sizes = [n.device_count for n in nodes if n.zone == kind.zone]
        if not sizes:
            text = f"no {kind.device_type} in zone {kind.zone}"
            return _violation(Fault.UNKNOWN_ZONE, where, text)
        limit = self.problem.options.max_tp
        if limit is not None and kind.tp > limit:
            text = f"tp {kind.tp} is wider than the allowed {limit}"
            return _violation(Fault.TOO_WIDE, where, text)
        width = kind.tp * (kind.ep if kind.ep_local else 1)
        if width > max(sizes):
            text = f"{kind.label} needs {width} devices of one node, the largest has {max(sizes)}"
            return _violation(Fault.TOO_WIDE, where, text)
        return None

    def experts(self, stage: Stage, where: str) -> Iterator[Violation]:
        """One expert degree per stage, a divisor of the experts, in whole groups of neighbours."""
        degrees = {r.kind.ep for r in stage.replicas}
        if degrees == {1}:
            return
        known = self.problem.model.expert_degrees
        if len(degrees) > 1 or not degrees <= set(known):
            text = f"expert degrees {sorted(degrees)}; one of {', '.join(map(str, known))}"
            yield _violation(Fault.EXPERTS, where, text)
            return
        (ep,) = degrees
        kinds = [r.kind for r in stage.replicas]
        groups = [kinds[at : at + ep] for at in range(0, len(kinds), ep)]
        if any(len(g) < ep or len(set(g)) > 1 for g in groups):
            text = f"replicas do not fall into groups of {ep} equal neighbours"
            yield _violation(Fault.EXPERTS, where, text)

    def fits(
        self, stage: Stage, kind: ReplicaKind, samples: int, in_flight: int, where: str
    ) -> Iterator[Violation]:
        """Step times are known, and the memory suffices."""
        if self.facts.step(kind, samples) is None:
            text = f"no times of {kind.device_type} at tp {kind.tp}, micro-batch {samples}"
            yield _violation(Fault.NO_TIMES, where, text)
            return
        if not 0 <= stage.first < stage.end <= self.problem.model.row_count:
            return
        zero1 = self.plan.zero1
        need = self.facts.memory_bytes(stage, kind, samples, in_flight, zero1=zero1)
        has = self.problem.cluster.device_types[kind.device_type].memory_bytes
        if need > has:
            text = f"{kind.label} needs {format_bytes(math.ceil(need))}, has {format_bytes(has)}"
            yield _violation(Fault.MEMORY, where, text)

    def devices(self) -> Iterator[Violation]:
        """No more devices than there are; named nodes suffice, the others can be packed."""
        groups: dict[tuple[str, str], list[Group]] = {}
        for g in node_groups(self.plan):
            groups.setdefault((g.kind.device_type, g.kind.zone), []).append(g)
        for (kind, zone), mine in groups.items():
            if any(n.zone == zone for n in self.problem.nodes_of_type.get(kind, ())):
                yield from self.nodes(kind, zone, mine)

    def nodes(self, kind: str, zone: str, groups: list[Group]) -> Iterator[Violation]:
        """The same for one type in one zone."""
        nodes = self.problem.nodes_of_type[kind]
        has = sum(n.device_count for n in nodes if n.zone == zone)
        used = sum(g.devices for g in groups)
        name = kind if len({n.zone for n in nodes}) == 1 else f"{kind} in {zone}"
        if used > has:
            yield _violation(Fault.DEVICES, name, f"uses {used} devices, there are {has}")
        named_wrong = False
        for g in groups:
            if g.node is not None and not self.named_rightly(g):
                named_wrong = True
                text = f"node {g.node} of {kind} is not there, or not that of its whole group"
                yield _violation(Fault.NODE, _place(g.pipeline, g.stage), text)
        free = free_devices(self.problem, kind, zone, groups)
        for n in [n for n, left in free.items() if left < 0]:
            size = nodes[n].device_count
            text = f"uses {size - free[n]} devices of node {n}, it has {size}"
            yield _violation(Fault.NODE, name, text)
        if used <= has and not named_wrong and min(free.values()) >= 0:
            sizes = [g.devices for g in groups if g.node is None]
            if pack(sizes, list(free.values())) is None:
                text = f"groups of {_counted(sizes)} devices do not fit into nodes with "
                text += f"{_counted(list(free.values()))} free"
                yield _violation(Fault.PACKING, name, text)

    def named_rightly(self, g: Group) -> bool:
        """A named node exists in the zone, and all members of an expert group name it or none."""
        nodes = self.problem.nodes_of_type[g.kind.device_type]
        replicas = self.plan.pipelines[g.pipeline].stages[g.stage].replicas
        named = {replicas[m].node for m in g.members} - {None}
        there = g.node is not None and 0 <= g.node < len(nodes)
        return there and named == {g.node} and nodes[g.node or 0].zone == g.kind.zone

    def links(self) -> Iterator[Violation]:
        """Every send and exchange of the plan has a curve."""
        price = price_plan(self.problem, self.plan)
        for p, part in enumerate(price.pipelines):
            for i, seconds in enumerate(part.loads_s):
                if not math.isfinite(seconds):
                    text = "no link for the sends or the all-to-all of this stage"
                    yield _violation(Fault.NO_LINK, _place(p, i), text)
        if not math.isfinite(price.sync_s):
            yield _violation(Fault.NO_LINK, "plan", "no link for the gradient exchange")


# Without step times or a legal shape there is nothing to price.
_UNPRICED = (
    Fault.UNKNOWN_TYPE,
    Fault.UNKNOWN_ZONE,
    Fault.EXPERTS,
    Fault.MICROBATCH,
    Fault.NO_TIMES,
)


def _violation(code: Fault, where: str, text: str) -> Violation:
    return Violation(code=code, where=where, text=text)


def _place(pipeline: int, stage: int) -> str:
    return f"pipeline {pipeline}, stage {stage}"


def _counted(sizes: list[int]) -> str:
    """Sizes for people: ``3×4 + 1×2``."""
    return " + ".join(f"{sizes.count(s)}×{s}" for s in sorted(set(sizes), reverse=True))
