"""What one run has to do: a model, iterations with their plans, and how to train; knows no torch.

Public: ``ReplayIteration``, ``ReplayJob`` and ``check_world_size``. A job is checked when it is
built, so that a run that starts has every task, legal degrees and shapes that the model takes.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from arachne_opt.cascade.plan import CascadePlan, Placement
from arachne_opt.cascade.problem import CascadeProblem, Task
from arachne_opt.errors import InputError
from arachne_opt.executor.model_config import EmulatedConfig, ModelChoice, ModelConfig
from arachne_opt.executor.options import CheckpointOptions, UpdateOptions, check_choice
from arachne_opt.executor.sampler import refuse_repeated_clips
from arachne_opt.workload import Iteration, MicroBatch

WEIGHT_RULES = ("clip", "token")
DEVICES = ("auto", "cpu", "cuda")
TASK_CHAIN = ("encode", "denoise")
# Before denoise come those of the others that the clips need, each by itself.
TASKS = ("text", *TASK_CHAIN)

DEFAULT_LEARNING_RATE = 1e-4
DEFAULT_WEIGHT_DECAY = 0.01
DEFAULT_TIMEOUT_FACTOR = 20.0
DEFAULT_TIMEOUT_FLOOR_S = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayIteration:
    """One optimizer step: its micro-batches, the problem made of them and the plan to follow.

    The id of a cascade is the id of its micro-batch. ``plan_id`` is the plan's in the database.
    """

    batches: Iteration
    problem: CascadeProblem
    plan: CascadePlan
    plan_id: str = ""

    def __post_init__(self) -> None:
        known = [batch.id for batch in self.batches.micro_batches]
        planned = [cascade.id for cascade in self.problem.cascades]
        where = f"iteration {self.name}"
        if strange := [name for name in planned if name not in known]:
            what = f"the plan is for micro-batch {strange[0]}, which the iteration does not have"
            raise InputError(what, where=where, hint=f"one of {', '.join(known)}")
        if missing := [name for name in known if name not in planned]:
            raise InputError(f"micro-batch {missing[0]} has no cascade", where=where)
        _check_tasks(self.problem, where)
        _check_placements(self.problem, self.plan, where)

    @property
    def name(self) -> str:
        """Name of the iteration."""
        return self.batches.name

    def batch_of(self, cascade: int) -> MicroBatch:
        """The micro-batch of a cascade by its index."""
        wanted = self.problem.cascades[cascade].id
        return next(batch for batch in self.batches.micro_batches if batch.id == wanted)

    def task_name(self, placement: Placement) -> str:
        """Name of the task of a placement: one of ``TASKS``."""
        return self.problem.cascades[placement.cascade].tasks[placement.task].name

    def encodes(self, placement: Placement) -> bool:
        """Whether a placement is of an encode task."""
        return self.task_name(placement) == "encode"

    def denoises(self, placement: Placement) -> bool:
        """Whether a placement is of a denoise task."""
        return self.task_name(placement) == "denoise"

    def has_task(self, cascade: int, name: str) -> bool:
        """Whether a cascade has a task of some name."""
        return any(task.name == name for task in self.problem.cascades[cascade].tasks)

    def is_encoded(self, cascade: int) -> bool:
        """Whether a cascade has an encode task; else its latents lie in files."""
        return self.has_task(cascade, "encode")

    def label(self, placement: Placement) -> str:
        """A placement for people, such as ``denoise of b3``."""
        cascade = self.problem.cascades[placement.cascade]
        return f"{cascade.tasks[placement.task].name} of {cascade.id}"


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayJob:
    """All that a rank needs to know.

    Args:
        weight_rule: ``clip`` weighs every clip of an iteration the same, ``token`` every token.
        seed: with a clip's id and the step it decides noise, timestep and synthetic data.
        epochs: how often the iterations are run, one after the other.
        threads_per_rank: threads of torch on a CPU; 0 shares the cores among the ranks.
        device: ``auto`` takes CUDA where it is.
        timeout_factor: a task that takes this many times its planned duration is stuck ...
        timeout_floor_s: ... but never before this time.
        save_parameters: file for the parameters at the end (torch format); none where empty.
            Their moving average goes beside it, with ``.ema`` before the suffix.
        update: how gradients become weights.
        checkpoints: where the training is kept.
        opening: the iterations of a begun epoch, where they differ from those of later ones.
        opening_epoch: the epoch that ``opening`` ends.
        plan_folder: newer plans may appear here while the job runs; none where empty.
    """

    model: ModelChoice
    iterations: tuple[ReplayIteration, ...]
    weight_rule: str = "clip"
    learning_rate: float = DEFAULT_LEARNING_RATE
    weight_decay: float = DEFAULT_WEIGHT_DECAY
    seed: int = 0
    epochs: int = 1
    threads_per_rank: int = 0
    device: str = "auto"
    timeout_factor: float = DEFAULT_TIMEOUT_FACTOR
    timeout_floor_s: float = DEFAULT_TIMEOUT_FLOOR_S
    save_parameters: str = ""
    update: UpdateOptions = field(default_factory=UpdateOptions)
    checkpoints: CheckpointOptions = field(default_factory=CheckpointOptions)
    opening: tuple[ReplayIteration, ...] = ()
    opening_epoch: int = 0
    plan_folder: str = ""

    def __post_init__(self) -> None:
        if not self.iterations:
            raise InputError("a replay job needs at least one iteration")
        check_choice("weight rule", self.weight_rule, WEIGHT_RULES)
        check_choice("device", self.device, DEVICES)
        if self.epochs < 1 or self.threads_per_rank < 0 or self.learning_rate < 0:
            raise InputError("epochs must be positive, threads and learning rate not negative")
        if self.timeout_factor <= 0 or self.timeout_floor_s <= 0:
            raise InputError("timeout_factor and timeout_floor_s must be positive")
        every = self.iterations + self.opening
        counts = {it.problem.cluster.device_count for it in every}
        if len(counts) > 1:
            raise InputError(f"the plans are for {sorted(counts)} devices, a run has one number")
        config = self.model.config()
        for iteration in every:
            check_iteration(config, iteration, self.model.name)
        if self.checkpoints.folder:
            refuse_repeated_clips(self)

    @property
    def world_size(self) -> int:
        """Number of devices that the plans are for."""
        return self.iterations[0].problem.cluster.device_count

    @property
    def steps(self) -> int:
        """Number of optimizer steps."""
        return self.epochs * len(self.iterations)

    def iteration_of(self, step: int) -> ReplayIteration:
        """The iteration that a step runs."""
        return self.iterations[step % len(self.iterations)]

    def timeout_s(self, placement: Placement) -> float:
        """Time after which a task counts as stuck."""
        planned_s = (placement.end_us - placement.start_us) / 1e6
        return max(self.timeout_floor_s, self.timeout_factor * planned_s)

    @property
    def iteration_timeout_s(self) -> float:
        """Time after which a whole iteration counts as stuck."""
        every = self.iterations + self.opening
        planned_s = max(it.plan.makespan_us for it in every) / 1e6
        return self.timeout_floor_s + self.timeout_factor * planned_s


def check_iteration(config: ModelConfig, iteration: ReplayIteration, model: str) -> None:
    """Refuses shapes that the model cannot take and degrees that do not divide its heads."""
    _check_shapes(config, iteration)
    _check_sources(config, iteration)
    _check_degrees(config, iteration, model)


def check_world_size(job: ReplayJob, world_size: int) -> None:
    """Refuses a run whose number of ranks is not the number of devices that the plans are for."""
    if job.world_size != world_size:
        what = f"the plan is for {job.world_size} devices, this run has {world_size} ranks"
        hint = f"{job.world_size} ranks, or solve again for a cluster of {world_size} devices"
        raise InputError(what, hint=hint)


def _check_tasks(problem: CascadeProblem, where: str) -> None:
    for cascade in problem.cascades:
        names = tuple(task.name for task in cascade.tasks)
        *before, last = cascade.tasks
        known = names == tuple(name for name in TASKS if name in names)
        alone = not any(task.predecessors for task in before)
        joined = last.predecessors == tuple(range(len(before)))
        if not (known and alone and joined and last.name == "denoise"):
            what = f"cascade {cascade.id} has the tasks {', '.join(names)}; the runtime replays"
            what += " encode followed by denoise, or denoise alone, text beside encode or not"
            raise InputError(what, where=where)


def _check_placements(problem: CascadeProblem, plan: CascadePlan, where: str) -> None:
    counts = Counter((p.cascade, p.task) for p in plan.placements)
    tasks = {(c, t): f"{task.name} of {problem.cascades[c].id}" for c, t, task in problem.tasks()}
    if strange := [key for key in counts if key not in tasks]:
        raise InputError(f"the plan has a task {strange[0]} that no cascade has", where=where)
    if missing := [name for key, name in tasks.items() if key not in counts]:
        raise InputError(f"the plan lacks {missing[0]}", where=where, hint="solving again")
    if double := [name for key, name in tasks.items() if counts[key] > 1]:
        raise InputError(f"the plan has {double[0]} twice", where=where)
    ended: set[tuple[int, int]] = set()
    for p in plan.placements:
        name, width = tasks[p.cascade, p.task], problem.cluster.device_count
        if not p.devices or len(set(p.devices)) != p.degree:
            raise InputError(f"{name} runs on {p.devices}: no proper group", where=where)
        if not all(0 <= d < width for d in p.devices):
            what = f"{name} runs on devices {p.devices}, the cluster has {width}"
            raise InputError(what, where=where)
        if any((p.cascade, q) not in ended for q in _task(problem, p).predecessors):
            raise InputError(f"{name} starts before its predecessor", where=where)
        ended.add((p.cascade, p.task))


def _task(problem: CascadeProblem, placement: Placement) -> Task:
    return problem.cascades[placement.cascade].tasks[placement.task]


def _check_shapes(config: ModelConfig, iteration: ReplayIteration) -> None:
    for batch in iteration.batches.micro_batches:
        try:
            config.latent_size(batch.shape)
        except InputError as error:
            where = f"iteration {iteration.name}, micro-batch {batch.id}"
            raise InputError(error.what, where=where, hint=error.hint) from error


def _check_sources(config: ModelConfig, iteration: ReplayIteration) -> None:
    """Refuses tasks that do not fit what the clips have: files of latents, or something to encode.

    A rehearsal reads no files.
    """
    for index, cascade in enumerate(iteration.problem.cascades):
        batch, encoded = iteration.batch_of(index), iteration.is_encoded(index)
        where = f"iteration {iteration.name}, micro-batch {cascade.id}"
        bare = [clip.id for clip in batch.clips if not clip.latents]
        if not encoded and bare and not isinstance(config, EmulatedConfig):
            what = f"there is no encode task, and clip {bare[0]} has no latents"
            raise InputError(what, where=where)
        if encoded and len(bare) < batch.size:
            what = "there is an encode task, but latents of clips are cached"
            raise InputError(what, where=where, hint="planning these clips anew")


def _check_degrees(config: ModelConfig, iteration: ReplayIteration, model: str) -> None:
    legal = config.legal_degrees(iteration.problem.cluster.device_count)
    for p in iteration.plan.placements:
        if _task(iteration.problem, p).name != "denoise":
            continue
        where = f"iteration {iteration.name}, {iteration.label(p)}"
        if p.degree not in legal:
            what = f"degree {p.degree} does not divide the {config.heads} heads of {model}"
            raise InputError(what, where=where, hint=f"degrees {', '.join(map(str, legal))}")
        tokens = config.token_count(iteration.batch_of(p.cascade).shape)
        if tokens < p.degree:
            raise InputError(f"degree {p.degree} is wider than the {tokens} tokens", where=where)
