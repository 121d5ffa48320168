"""What a run under a pipeline plan has to do; knows no torch.

The JSON form is ``arachne.pipeline-job/1``, which the launcher hands to every rank.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, field, fields
from functools import cached_property
from typing import Any

from arachne_opt.errors import InputError
from arachne_opt.executor.options import CheckpointOptions, UpdateOptions, check_choice
from arachne_opt.executor.pipeline.models.spec import DecoderSpec, Rotary
from arachne_opt.executor.pipeline.uniform import Engine, refuse_engine
from arachne_opt.fields import Fields
from arachne_opt.pipeline.architecture import ExpertLayers
from arachne_opt.pipeline.facts import Facts
from arachne_opt.pipeline.layout import Layout
from arachne_opt.pipeline.plan import PipelinePlan
from arachne_opt.pipeline.plan_json import plan_from_json, plan_to_json
from arachne_opt.pipeline.problem import PipelineProblem, Schedule
from arachne_opt.pipeline.problem_json import problem_from_json, problem_to_json
from arachne_opt.pipeline.schedules import peak_in_flight, stage_order
from arachne_opt.pipeline.simulate import Simulation, simulate
from arachne_opt.units import US_PER_S

PIPELINE_JOB_FORMAT = "arachne.pipeline-job/1"

DEVICES = ("auto", "cpu", "cuda")
TOKEN_TYPES = ("uint16", "uint32", "int32", "int64")


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenSource:
    """Where tokens come from.

    Args:
        path: a ``.npy`` file, or one of bare numbers; empty for made-up text.
        dtype: of bare numbers.
        length: tokens of a sample.
    """

    path: str = ""
    dtype: str = "uint16"
    length: int

    def __post_init__(self) -> None:
        check_choice("type of tokens", self.dtype, TOKEN_TYPES)
        if self.length < 1:
            raise InputError("a sample needs at least one token")


@dataclass(frozen=True, kw_only=True)
class PipelineJob:
    """A training, or its rehearsal.

    Args:
        problem: has prices, sizes and the cluster.
        plan: with a node for every replica.
        plan_id: in the database; empty where it is not kept.
        spec: the model; None in a rehearsal.
        pretrained: folder of a Hugging Face checkpoint to begin with; empty for random weights.
        source: of tokens; None in a rehearsal.
        steps: optimizer steps in all.
        balance: weight of the experts' load-balance loss.
        any_device: run although devices are not those of the plan.
        save: folder for a Hugging Face checkpoint at the end; empty for none.
        speed: a rehearsal is so many times faster than planned.
        engine: ``tables``, or ``torch`` for uniform stages; a rehearsal has tables.
        schedule: order of forwards and backwards.
        chunks: runs of rows per stage, where they are interleaved.
        moves: folder where plans are handed over to the training; empty for none.
    """

    problem: PipelineProblem
    plan: PipelinePlan
    plan_id: str = ""
    spec: DecoderSpec | None = None
    pretrained: str = ""
    source: TokenSource | None = None
    steps: int = 1
    learning_rate: float = 1e-4
    weight_decay: float = 0.01
    balance: float = 0.0
    seed: int = 0
    threads_per_rank: int = 0
    device: str = "auto"
    any_device: bool = False
    timeout_s: float = 600.0
    save: str = ""
    speed: float = 1.0
    engine: str = Engine.TABLES.value
    schedule: str = Schedule.ONE_F_ONE_B.value
    chunks: int = 1
    moves: str = ""
    update: UpdateOptions = field(default_factory=UpdateOptions)
    checkpoints: CheckpointOptions = field(default_factory=CheckpointOptions)

    def __post_init__(self) -> None:
        check_choice("device", self.device, DEVICES)
        if self.steps < 1 or self.threads_per_rank < 0 or self.learning_rate < 0:
            raise InputError("steps must be positive, threads and learning rate not negative")
        if self.speed <= 0 or self.timeout_s <= 0:
            raise InputError("speed and time-out must be positive")
        if (self.spec is None) != (self.source is None):
            raise InputError("a training needs a model and tokens, a rehearsal neither")
        check_choice("engine", self.engine, tuple(Engine))
        check_choice("schedule", self.schedule, tuple(Schedule))
        if self.emulated and self.engine != Engine.TABLES:
            raise InputError("a rehearsal runs tables", hint="engine tables")
        if self.emulated and self.moves:
            raise InputError("a rehearsal has nothing that could move to another plan")
        refuse_engine(self.layout, Engine(self.engine), Schedule(self.schedule))

    @property
    def emulated(self) -> bool:
        """Whether ranks sleep instead of computing."""
        return self.spec is None

    @cached_property
    def layout(self) -> Layout:
        """The ranks of the plan."""
        return Layout(self.plan, self.chunks)

    @property
    def world_size(self) -> int:
        """Number of ranks."""
        return self.layout.world_size

    @property
    def model_name(self) -> str:
        """For reports."""
        return f"emulated {self.plan.model}" if self.spec is None else self.spec.name

    @cached_property
    def planned_us(self) -> int:
        """The simulated iteration, as fast as it is run."""
        return round(self.simulate().iteration_s / self.speed * US_PER_S)

    def simulate(self, *, keep_tasks: bool = False) -> Simulation:
        """The planned iteration in the order in which it is run."""
        return simulate(
            self.problem,
            self.plan,
            schedule=Schedule(self.schedule),
            chunks=self.chunks,
            keep_tasks=keep_tasks,
        )

    def needed_bytes(self, rank: int) -> int:
        """Memory that the plan expects on the device of a rank."""
        member, facts = self.layout.members[rank], Facts(self.problem)
        pipeline = self.plan.pipelines[member.pipeline]
        stage = pipeline.stages[member.stage]
        count = self.plan.counts[member.pipeline]
        order = stage_order(
            Schedule(self.schedule), member.stage, len(pipeline.stages), count, self.chunks
        )
        held = -(-peak_in_flight(order) // self.chunks)
        samples = pipeline.batch // len(stage.replicas)
        zero1 = self.plan.zero1
        return round(facts.memory_bytes(stage, member.kind, samples, held, zero1=zero1))


_PLAIN = tuple(
    f.name
    for f in fields(PipelineJob)
    if f.name not in ("problem", "plan", "spec", "source", "update", "checkpoints")
)


def job_to_json(job: PipelineJob) -> dict[str, Any]:
    """JSON values that ``job_from_json`` reads back to an equal job."""
    return {
        "format": PIPELINE_JOB_FORMAT,
        "problem": problem_to_json(job.problem),
        "plan": plan_to_json(job.plan),
        "spec": None if job.spec is None else asdict(job.spec),
        "source": None if job.source is None else asdict(job.source),
        "update": asdict(job.update),
        "checkpoints": asdict(job.checkpoints),
        **{name: getattr(job, name) for name in _PLAIN},
    }


def job_from_json(value: object, where: str = "job") -> PipelineJob:
    """Reads a job back.

    Raises:
        InputError: another format, an unknown key or a wrong value.
    """
    known = ("format", "problem", "plan", "spec", "source", "update", "checkpoints", *_PLAIN)
    top = Fields(value, where, known)
    top.require_format(PIPELINE_JOB_FORMAT)
    spec, source = top.raw("spec"), top.raw("source")
    try:
        return PipelineJob(
            problem=problem_from_json(top.raw("problem")),
            plan=plan_from_json(top.raw("plan")),
            spec=None if spec is None else spec_from_json(spec),
            source=None if source is None else TokenSource(**source),
            update=UpdateOptions(**top.raw("update")),
            checkpoints=CheckpointOptions(**top.raw("checkpoints")),
            **{name: top.raw(name) for name in _PLAIN},
        )
    except TypeError as error:
        raise InputError(f"malformed job: {error}", where=where) from error


def spec_from_json(value: dict[str, Any]) -> DecoderSpec:
    """Reads the fields of a spec back."""
    experts = value["experts"]
    return DecoderSpec(
        **{
            **value,
            "rotary": Rotary(**value["rotary"]),
            "windows": tuple(value["windows"]),
            "experts": None if experts is None else ExpertLayers(**experts),
        }
    )
