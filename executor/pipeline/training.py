"""Trains a decoder under a pipeline plan: one object per process, one step per iteration.

The loss of a step is the mean over the tokens of the whole global batch, whatever the plan, and
so is its gradient. Samples are numbered through the training; a position is the number of those
that were trained, so that another plan, which may take other batches, goes on where one stopped.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Protocol

import torch
import torch.distributed as dist
from torch import Tensor

from arachne_opt.errors import InputError
from arachne_opt.executor.groups import GroupPool
from arachne_opt.executor.pipeline.models.experts import weigh_balance
from arachne_opt.executor.pipeline.models.parameters import row_parameters, tied_parameters
from arachne_opt.executor.pipeline.models.rows import build_row, token_loss
from arachne_opt.executor.pipeline.models.spec import DecoderSpec
from arachne_opt.executor.pipeline.prove import prove
from arachne_opt.executor.pipeline.runner import Observer, Phase, TableRunner, Unobserved
from arachne_opt.executor.pipeline.schedule import make_table, make_tables
from arachne_opt.executor.pipeline.seams import join_group, keep_parts
from arachne_opt.executor.pipeline.seats import Seats
from arachne_opt.executor.pipeline.stage import RowChain, StageWorker
from arachne_opt.executor.pipeline.uniform import Engine, chains_of_ranks, refuse_engine
from arachne_opt.executor.pipeline.update import PipelineUpdate
from arachne_opt.executor.pipeline.wires import Wires
from arachne_opt.pipeline.cells import Key, Model, make_bundles, parts_of
from arachne_opt.pipeline.layout import Layout, Member
from arachne_opt.pipeline.plan import PipelinePlan
from arachne_opt.pipeline.problem import Schedule

if TYPE_CHECKING:
    from arachne_opt.executor.pipeline.torch_runner import TorchRunner


class Samples(Protocol):
    """Where tokens come from; every rank that asks for a sample gets the same."""

    @property
    def length(self) -> int:
        """Tokens of every sample."""

    def __call__(self, numbers: Sequence[int]) -> tuple[Tensor, Tensor]:
        """Tokens (B, T) and targets (B, T) of samples by their numbers in the training."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingOptions:
    """How to train.

    Args:
        seed: of the weights.
        weight_decay: of AdamW.
        clip_norm: largest norm of the gradient; 0 for any.
        balance: weight of the experts' load-balance loss.
        schedule: order of forwards and backwards; interleaved stages need torch's engine.
        chunks: runs of rows per stage, for interleaved stages.
        engine: tables run any plan and are measured span by span; torch.distributed.pipelining
            runs uniform stages.
        timeout_s: of the process groups.
    """

    seed: int = 0
    dtype: torch.dtype = torch.float32
    weight_decay: float = 0.01
    clip_norm: float = 0.0
    balance: float = 0.0
    schedule: Schedule = Schedule.ONE_F_ONE_B
    chunks: int = 1
    engine: Engine = Engine.TABLES
    timeout_s: float = 600.0


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingPosition:
    """How far a training has come: optimizer steps, and samples they took."""

    step: int = 0
    samples: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class StepResult:
    """A step.

    Args:
        loss: mean over the tokens of the global batch.
        norm: of the gradient, before clipping.
        tokens: that counted.
    """

    loss: float
    norm: float
    tokens: int


def model_of(spec: DecoderSpec) -> Model:
    """How the parameters of a decoder are cut."""
    return Model(
        rows=tuple(row_parameters(spec, row) for row in range(spec.row_count)),
        tied=tuple(Key(*copy) for copy in tied_parameters(spec)),
    )


class PipelineTraining:
    """A process in the training of a plan; one without a rank takes part in making groups only.

    Args:
        spec: the model.
        plan: legal for the model.
        samples: gives tokens.
        options: how to train.
        device: of this process.
        seats: process of each rank; the first ones unless given.
        observer: sees the time pass.
        pool: groups of earlier trainings of these processes.

    Raises:
        InputError: the plan is not for this model, or not for the engine.
        RunError: there are fewer processes than ranks.
        DisagreementError: the tables of the plan would hang.
    """

    def __init__(
        self,
        spec: DecoderSpec,
        plan: PipelinePlan,
        samples: Samples,
        options: TrainingOptions | None = None,
        *,
        device: torch.device | None = None,
        seats: tuple[int, ...] | None = None,
        observer: Observer | None = None,
        pool: GroupPool | None = None,
    ) -> None:
        self.spec, self.plan, self.samples = spec, plan, samples
        self.options = options or TrainingOptions()
        self.device = device or torch.device("cpu")
        self.layout, self.model = Layout(plan, self.options.chunks), model_of(spec)
        refuse_other_model(spec, self.layout)
        refuse_engine(self.layout, self.options.engine, self.options.schedule)
        self.position = TrainingPosition()
        self.seats = Seats(self.layout, seats, timeout_s=self.options.timeout_s, pool=pool)
        chains = chains_of_ranks(self.layout) if self.options.engine is Engine.TORCH else ()
        holders = [b.holders for b in make_bundles(self.layout, self.model)]
        self.seats.prepare([*holders, *chains])
        self._backward = self._own_group() if self.device.type == "cuda" else None
        self._observer = observer or Unobserved()
        self._fetched: dict[int, tuple[Tensor, Tensor]] = {}
        if self.seats.rank is not None:
            self._build(self.seats.rank)

    @property
    def takes_part(self) -> bool:
        """Whether this process has a rank in the plan."""
        return self.seats.rank is not None

    def step(self, learning_rate: float) -> StepResult:
        """One iteration: forwards, backwards, sums, update; on all ranks of the plan.

        Raises:
            RunError: the gradient is not finite.
        """
        result = self.backward()
        begin_s = self._observer.now_s()
        self.update.step(learning_rate, result.norm, self.options.clip_norm)
        self._observer.note(Phase.UPDATE, None, begin_s, self._observer.now_s())
        self.advance()
        return result

    def advance(self) -> None:
        """Takes note that an iteration was trained."""
        self.position = TrainingPosition(
            step=self.position.step + 1, samples=self.position.samples + self.plan.samples
        )

    def backward(self) -> StepResult:
        """All forwards and backwards of an iteration, and the sums of their gradients."""
        self._fetched.clear()
        tokens = round(self._sum([self._own_tokens()])[0])
        self._engine.begin(tokens)
        weigh_balance(self.chain, self.options.balance / tokens)
        self._engine.run()
        begin_s = self._observer.now_s()
        self.update.sum_gradients()
        loss = self._engine.loss if self._speaks else 0.0
        loss, square = self._sum([loss, self.update.square_sum()])
        self._observer.note(Phase.SYNC, None, begin_s, self._observer.now_s())
        return StepResult(loss=loss, norm=square**0.5, tokens=tokens)

    def _build(self, rank: int) -> None:
        layout, plan, options = self.layout, self.plan, self.options
        member = layout.members[rank]
        self.parts = parts_of(layout, self.model, rank)
        self.chain = self._rows(rank)
        self.parameters = {
            Key(row, name): parameter
            for row, module in zip(member.rows, self.chain.rows, strict=True)
            for name, parameter in module.named_parameters()
        }
        self.update = PipelineUpdate(
            self.seats,
            self.model,
            self.parameters,
            zero1=plan.zero1,
            weight_decay=options.weight_decay,
        )
        last = member.stage == len(plan.pipelines[member.pipeline].stages) - 1
        # Members of the last stage have equal losses; one of them counts.
        self._speaks = last and member.tp_index == 0
        torch_runs = options.engine is Engine.TORCH
        self._engine: TableEngine | TorchRunner = (
            self._torch(member) if torch_runs else self._tables(member)
        )

    def _tables(self, member: Member) -> TableEngine:
        first = member.stage == 0
        last = member.stage == len(self.plan.pipelines[member.pipeline].stages) - 1
        worker = StageWorker(self.chain, self._fetch, token_loss, first=first, last=last)
        if member.rank == 0:
            prove(self.layout, make_tables(self.layout, self.options.schedule))
        table = make_table(self.layout, member, self.options.schedule)
        return TableEngine(worker, TableRunner(table, worker, self._wires(member), self._observer))

    def _torch(self, member: Member) -> TorchRunner:
        # Late: loading it takes a second, which tables need not pay.
        from arachne_opt.executor.pipeline.torch_runner import TorchRunner

        length, spec = self.samples.length, self.spec
        return TorchRunner(
            self.seats,
            self.chain.cut([len(rows) for rows in member.chunks]),
            self._fetch,
            token_loss,
            self.options.schedule,
            shapes=((length,), (length, spec.hidden), (length, spec.vocabulary)),
            dtype=self.options.dtype,
            device=self.device,
            observer=self._observer,
        )

    def _rows(self, rank: int) -> RowChain:
        member, members, experts = (
            self.layout.members[rank],
            self.seats.members(),
            self.seats.experts(),
        )
        rows = []
        for row in member.rows:
            module = build_row(
                self.spec, row, seed=self.options.seed, device=self.device, dtype=self.options.dtype
            )
            keep_parts(module, {key.name: box for key, box in self.parts.items() if key.row == row})
            join_group(module, self.spec.vocabulary, members, experts)
            rows.append(module)
        return RowChain(rows, recompute=member.recompute)

    def _own_group(self) -> dist.ProcessGroup | None:
        """A second group of all ranks: NCCL knows no tags, and keeps the order of one direction."""
        if self.layout.world_size == 1:
            return None
        timeout = timedelta(seconds=self.options.timeout_s)
        group = dist.new_group(list(self.seats.all), timeout=timeout)
        return group if self.takes_part else None

    def _wires(self, member: Member) -> Wires:
        ranks = self.layout.tp_group(member.rank)
        forward = self.seats.group(range(self.layout.world_size))
        return Wires(
            self.layout.samples(member.pipeline, member.stage, member.replica),
            (self.samples.length, self.spec.hidden),
            dtype=self.options.dtype,
            device=self.device,
            seats=self.seats.seats,
            groups=(forward, self._backward or forward),
            first_member=ranks[0],
            group=self.seats.group(ranks),
        )

    def _fetch(self, microbatch: int) -> tuple[Tensor, Tensor]:
        """Tokens and targets of this rank in a micro-batch, kept for the iteration."""
        if microbatch not in self._fetched:
            assert self.seats.rank is not None  # a rank of the layout computes
            numbers = self.layout.iteration_samples(self.seats.rank, microbatch)
            first = self.position.samples
            tokens, targets = self.samples([first + n for n in numbers])
            self._fetched[microbatch] = tokens.to(self.device), targets.to(self.device)
        return self._fetched[microbatch]

    def _own_tokens(self) -> float:
        if not self._speaks:
            return 0.0
        assert self.seats.rank is not None  # a rank of the layout computes
        count = self.plan.counts[self.layout.members[self.seats.rank].pipeline]
        return float(sum(int((self._fetch(m)[1] >= 0).sum()) for m in range(count)))

    def _sum(self, values: list[float]) -> list[float]:
        """Sums over all ranks of the plan."""
        total = torch.tensor(values, dtype=torch.float64)
        if self.layout.world_size > 1:
            dist.all_reduce(total, group=self.seats.group(range(self.layout.world_size)))
        return total.tolist()


class TableEngine:
    """A table with the worker whose loss it makes."""

    def __init__(self, worker: StageWorker, runner: TableRunner) -> None:
        self._worker, self._runner = worker, runner

    def begin(self, tokens: float) -> None:
        """Starts an iteration whose loss is divided by so many tokens."""
        self._worker.begin(tokens)

    def run(self) -> None:
        """One iteration: all forwards and backwards of this rank."""
        self._runner.run()

    @property
    def loss(self) -> float:
        """This rank's part of the loss of the iteration."""
        return self._worker.loss


def refuse_other_model(spec: DecoderSpec, layout: Layout) -> None:
    """Refuses a plan whose rows or degrees a model does not have.

    Raises:
        InputError: the plan is not for this model.
    """
    if layout.row_count != spec.row_count:
        what = f"the plan has {layout.row_count} rows, {spec.name} has {spec.row_count}"
        raise InputError(what, where="plan")
    for member in layout.members:
        if (why := spec.why_illegal(member.kind.tp)) is not None:
            raise InputError(why, where=member.label)
        experts = spec.experts.count if spec.experts else 1
        if experts % member.kind.ep:
            what = f"ep {member.kind.ep} does not divide the {experts} experts of {spec.name}"
            raise InputError(what, where=member.label)
