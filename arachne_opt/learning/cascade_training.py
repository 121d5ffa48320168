"""Trains the cascade policy: to choose the degrees and starts that the best known plans have."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from arachne_opt.cascade.plan import CascadePlan
from arachne_opt.cascade.problem import CascadeProblem
from arachne_opt.costs.pipeline.base import Floats, Ints
from arachne_opt.solvers.cascade.bounds import lower_bound
from arachne_opt.solvers.cascade.decoder import FastDecoder
from arachne_opt.solvers.cascade.digest import Digest
from arachne_opt.solvers.cascade.schedule import from_plan, in_start_order
from arachne_opt.solvers.seeds.cascade_features import CascadeView, view
from arachne_opt.solvers.seeds.cascades import Advised, SeedSearch
from arachne_opt.solvers.seeds.network import Array
from arachne_opt.solvers.seeds.policy_file import PolicyFile

if TYPE_CHECKING:
    import torch

_WIDTH = 48
_EPOCHS, _RATE, _DECAY = 250, 4e-3, 1e-4
_START_WEIGHT = 4.0
# Tasks placed in an exam, in about a tenth of a second.
_EXAM_PLACED = 400_000
_NETWORKS = ("modes", "tasks", "context", "start", "pick")


@dataclass(frozen=True, slots=True, eq=False)
class CascadeLesson:
    """A problem as the network sees it, with what the best known plan does.

    Args:
        picked: for each mode whether the plan runs its task so.
        start: start of each task as a part of the bound.
    """

    seen: CascadeView
    picked: Floats
    start: Floats


def cascade_lesson(problem: CascadeProblem, plan: CascadePlan) -> CascadeLesson | None:
    """What a plan teaches; None where the solvers cannot read it as a schedule."""
    digest = Digest(problem)
    schedule = from_plan(digest, plan)
    if schedule is None:
        return None
    decoder = FastDecoder(digest)
    bound_us = lower_bound(digest)
    schedule = in_start_order(digest, schedule)
    picks = decoder.picks_of(schedule)
    picked = [
        float(k == picks[t]) for t, rows in enumerate(decoder.modes) for k in range(len(rows))
    ]
    return CascadeLesson(
        seen=view(decoder, bound_us),
        picked=np.array(picked),
        start=np.array(schedule.starts_us) / bound_us,
    )


def train_cascades(
    lessons: Sequence[CascadeLesson],
    seed: int,
    start: Mapping[str, Array] | None = None,
    *,
    epochs: int | None = None,
) -> dict[str, Array]:
    """Weights that were trained on lessons, from ``start`` on where that is given."""
    import torch

    torch.manual_seed(seed)
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # equal sums on every machine
    try:
        return _trained(lessons, start, epochs or _EPOCHS)
    finally:
        torch.set_num_threads(threads)


@dataclass(frozen=True, slots=True, eq=False)
class _Batch:
    """All lessons as one: rows of modes and tasks one after the other."""

    mode_x: torch.Tensor
    task_x: torch.Tensor
    problem_x: torch.Tensor
    task_of_mode: torch.Tensor
    cascade_of_task: torch.Tensor
    problem_of_task: torch.Tensor
    picked: torch.Tensor
    start: torch.Tensor


def _trained(
    lessons: Sequence[CascadeLesson], start: Mapping[str, Array] | None, epochs: int
) -> dict[str, Array]:
    import torch

    scales = (
        _scales(lessons)
        if start is None
        else {k: start[k] for k in start if "mean" in k or "width" in k}
    )
    batch = _batch(lessons, scales)
    sizes = [x.shape[1] for x in (batch.mode_x, batch.task_x, batch.problem_x)]
    nets = _networks(*sizes)
    if start is not None:
        _load(nets, start)
    rate = _RATE if start is None else _RATE / 3
    parameters = [p for net in nets.values() for p in net.parameters()]
    optimizer = torch.optim.AdamW(parameters, lr=rate, weight_decay=_DECAY)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, epochs)
    for _ in range(epochs):
        optimizer.zero_grad()
        logits, begin = _run(nets, batch)
        tasks = len(batch.task_x)
        likely = _log_softmax(logits, batch.task_of_mode, tasks)
        loss = -(batch.picked * likely).sum() / tasks
        loss = loss + _START_WEIGHT * (begin - batch.start).square().mean()
        loss.backward()  # type: ignore[no-untyped-call]  # torch's stub
        optimizer.step()
        schedule.step()
    found: dict[str, Array] = dict(scales)
    for name, net in nets.items():
        for i, layer in enumerate(m for m in net if isinstance(m, torch.nn.Linear)):
            found[f"{name}.{i}.weight"] = layer.weight.detach().numpy()
            found[f"{name}.{i}.bias"] = layer.bias.detach().numpy()
    return found


def _networks(modes: int, tasks: int, problem: int) -> dict[str, Any]:
    import torch

    def net(inputs: int, outputs: int) -> torch.nn.Sequential:
        return torch.nn.Sequential(
            torch.nn.Linear(inputs, _WIDTH), torch.nn.SiLU(), torch.nn.Linear(_WIDTH, outputs)
        )

    found = {
        "modes": net(modes, _WIDTH),
        "tasks": net(tasks + _WIDTH + problem, _WIDTH),
        "context": net(4 * _WIDTH, _WIDTH),
        "start": net(_WIDTH, 1),
        "pick": net(modes + _WIDTH, 1),
    }
    assert tuple(found) == _NETWORKS
    return found


def _load(nets: Mapping[str, Any], start: Mapping[str, Array]) -> None:
    import torch

    for name, net in nets.items():
        for i, layer in enumerate(m for m in net if isinstance(m, torch.nn.Linear)):
            layer.weight.data = torch.tensor(start[f"{name}.{i}.weight"])
            layer.bias.data = torch.tensor(start[f"{name}.{i}.bias"])


def run_tensors(
    tensors: Mapping[str, Array], lessons: Sequence[CascadeLesson]
) -> tuple[torch.Tensor, torch.Tensor]:
    """Logits of the modes and starts of the tasks: what ``advise`` computes without torch."""
    batch = _batch(lessons, tensors)
    nets = _networks(*(x.shape[1] for x in (batch.mode_x, batch.task_x, batch.problem_x)))
    _load(nets, tensors)
    return _run(nets, batch)


def _run(nets: Mapping[str, Any], batch: _Batch) -> tuple[torch.Tensor, torch.Tensor]:
    import torch

    tasks, problems = len(batch.task_x), len(batch.problem_x)
    of_modes = _mean(nets["modes"](batch.mode_x), batch.task_of_mode, tasks)
    everywhere = batch.problem_x[batch.problem_of_task]
    own = nets["tasks"](torch.cat([batch.task_x, of_modes, everywhere], dim=1))
    cascades = int(batch.cascade_of_task.max()) + 1
    siblings = _mean(own, batch.cascade_of_task, cascades)[batch.cascade_of_task]
    index = batch.problem_of_task[:, None].expand_as(own)
    most = torch.full((problems, own.shape[1]), -torch.inf).scatter_reduce(0, index, own, "amax")
    all_ = torch.cat([_mean(own, batch.problem_of_task, problems), most], dim=1)
    everyone = all_[batch.problem_of_task]
    context = nets["context"](torch.cat([own, siblings, everyone], dim=1))
    begin = nets["start"](context)[:, 0]
    pick = torch.cat([batch.mode_x, context[batch.task_of_mode]], dim=1)
    return nets["pick"](pick)[:, 0], begin


def _mean(values: torch.Tensor, owner: torch.Tensor, count: int) -> torch.Tensor:
    import torch

    total = torch.zeros((count, values.shape[1])).index_add(0, owner, values)
    return total / torch.bincount(owner, minlength=count)[:, None]


def _log_softmax(score: torch.Tensor, owner: torch.Tensor, count: int) -> torch.Tensor:
    import torch

    top = torch.full((count,), -torch.inf).scatter_reduce(0, owner, score.detach(), "amax")
    shifted = score - top[owner]
    total = torch.zeros(count).index_add(0, owner, shifted.exp())
    return shifted - total.log()[owner]


def _scales(lessons: Sequence[CascadeLesson]) -> dict[str, Array]:
    found: dict[str, Array] = {}
    for name, rows in (
        ("mode", np.concatenate([one.seen.mode_x for one in lessons])),
        ("task", np.concatenate([one.seen.task_x for one in lessons])),
        ("problem", np.stack([one.seen.problem_x for one in lessons])),
    ):
        found[f"{name}.mean"] = rows.mean(axis=0).astype(np.float32)
        found[f"{name}.width"] = np.maximum(rows.std(axis=0), 1e-3).astype(np.float32)
    return found


def _batch(lessons: Sequence[CascadeLesson], scales: Mapping[str, Array]) -> _Batch:
    import torch

    def scaled(name: str, rows: Floats) -> torch.Tensor:
        values = (rows - scales[f"{name}.mean"]) / scales[f"{name}.width"]
        return torch.tensor(values.clip(-6, 6), dtype=torch.float32)

    def shifted(parts: Sequence[Ints], sizes: Sequence[int]) -> torch.Tensor:
        first = np.concatenate([[0], np.cumsum(sizes)[:-1]])
        rows = [part + offset for part, offset in zip(parts, first, strict=True)]
        return torch.tensor(np.concatenate(rows))

    views = [one.seen for one in lessons]
    tasks = [len(v.task_x) for v in views]
    return _Batch(
        mode_x=scaled("mode", np.concatenate([v.mode_x for v in views])),
        task_x=scaled("task", np.concatenate([v.task_x for v in views])),
        problem_x=scaled("problem", np.stack([v.problem_x for v in views])),
        task_of_mode=shifted([v.task_of_mode for v in views], tasks),
        cascade_of_task=shifted(
            [v.cascade_of_task for v in views],
            [int(v.cascade_of_task.max()) + 1 for v in views],
        ),
        problem_of_task=torch.tensor(np.repeat(np.arange(len(views)), tasks)),
        picked=torch.tensor(np.concatenate([o.picked for o in lessons]), dtype=torch.float32),
        start=torch.tensor(np.concatenate([o.start for o in lessons]), dtype=torch.float32),
    )


def examine_cascades(problem: CascadeProblem, policy: PolicyFile) -> float:
    """The makespan over the lower bound after a short race of what the policy draws.

    Its length is in placed tasks, so that equal machines come to equal scores.
    """
    digest = Digest(problem)
    bound_us = lower_bound(digest)
    search, placed = SeedSearch(Advised(FastDecoder(digest), policy, bound_us), 0), 0

    def progress(more: int) -> float:
        nonlocal placed
        placed += more
        return placed / _EXAM_PLACED

    for _ in search.turn(progress):
        pass
    return search.makespan_us / bound_us
