"""Trains the template policy: from cells with exact prices to a network that foresees them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from arachne_opt.costs.pipeline.base import Floats, Ints
from arachne_opt.costs.pipeline.tables import TableCosts
from arachne_opt.pipeline.plan import ReplicaKind
from arachne_opt.pipeline.problem import PipelineProblem
from arachne_opt.solvers.pipeline.options import Space
from arachne_opt.solvers.seeds.cells import features, grid
from arachne_opt.solvers.seeds.network import Array
from arachne_opt.solvers.seeds.policy_file import PolicyFile
from arachne_opt.solvers.seeds.structures import structures_of
from arachne_opt.solvers.seeds.templates import FIRST, score

if TYPE_CHECKING:
    import torch

_WIDTH, _EPOCHS, _RATE = 64, 350, 3e-3
_DECAY = 1e-4
_SHARP = 0.02  # of the logarithm of seconds: cells this close to the best count as good as it
_IMPOSSIBLE = 1.0  # logarithm of the seconds of what fits nowhere, beyond its estimate
_WEIGHTS = (10.0, 0.2, 0.3)  # of error, possibility and order


@dataclass(frozen=True, slots=True, eq=False)
class Lesson:
    """The cells of one problem that have exact prices.

    Args:
        x: features in rows.
        ratio: logarithm of exact seconds over the estimate; infinite for what fits nowhere.
        estimate: logarithm of the estimate.
    """

    x: Floats
    ratio: Floats
    estimate: Floats


def lesson(problem: PipelineProblem, priced: Sequence[Sequence[float | None]]) -> Lesson | None:
    """What a priced problem teaches; None where nothing fits."""
    if not any(row[3] is not None for row in priced):
        return None
    space = Space(problem, TableCosts(problem))
    structures = structures_of(space, grid(space))
    cells: Ints = np.array([row[:3] for row in priced], dtype=np.int64)
    seconds = np.array([np.inf if row[3] is None else row[3] for row in priced])
    estimate = structures.estimate_s[tuple(cells.T)]
    return Lesson(
        x=features(space, structures, cells),
        ratio=np.log(seconds / estimate),
        estimate=np.log(estimate),
    )


def train(
    lessons: Sequence[Lesson], seed: int, start: Mapping[str, Array] | None = None
) -> dict[str, Array]:
    """Weights of a network that was trained on lessons, from ``start`` on where that is given."""
    import torch

    torch.manual_seed(seed)
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # equal sums on every machine
    try:
        return _trained(lessons, start)
    finally:
        torch.set_num_threads(threads)


def _trained(lessons: Sequence[Lesson], start: Mapping[str, Array] | None) -> dict[str, Array]:
    import torch

    x = np.concatenate([one.x for one in lessons])
    mean = x.mean(axis=0) if start is None else start["mean"]
    width = x.std(axis=0) + 1e-6 if start is None else start["width"]
    rows = torch.tensor(((x - mean) / width).clip(-6, 6), dtype=torch.float32)
    net = torch.nn.Sequential(
        torch.nn.Linear(rows.shape[1], _WIDTH),
        torch.nn.SiLU(),
        torch.nn.Linear(_WIDTH, _WIDTH),
        torch.nn.SiLU(),
        torch.nn.Linear(_WIDTH, 2),
    )
    layers = [layer for layer in net if isinstance(layer, torch.nn.Linear)]
    if start is not None:
        for i, layer in enumerate(layers):
            layer.weight.data = torch.tensor(start[f"cells.{i}.weight"])
            layer.bias.data = torch.tensor(start[f"cells.{i}.bias"])
    rate = _RATE if start is None else _RATE / 3
    optimizer = torch.optim.AdamW(net.parameters(), lr=rate, weight_decay=_DECAY)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, _EPOCHS)
    ratio = torch.tensor(np.concatenate([one.ratio for one in lessons]), dtype=torch.float32)
    estimate = torch.tensor(np.concatenate([one.estimate for one in lessons]), dtype=torch.float32)
    owner = torch.tensor(np.repeat(np.arange(len(lessons)), [len(one.x) for one in lessons]))
    for _ in range(_EPOCHS):
        optimizer.zero_grad()
        loss = _loss(net(rows), ratio, estimate, owner, len(lessons))
        loss.backward()  # type: ignore[no-untyped-call]  # torch's stub
        optimizer.step()
        schedule.step()
    found: dict[str, Array] = {"mean": mean.astype(np.float32), "width": width.astype(np.float32)}
    for i, layer in enumerate(layers):
        found[f"cells.{i}.weight"] = layer.weight.detach().numpy()
        found[f"cells.{i}.bias"] = layer.bias.detach().numpy()
    return found


def _loss(
    out: torch.Tensor,
    ratio: torch.Tensor,
    estimate: torch.Tensor,
    owner: torch.Tensor,
    problems: int,
) -> torch.Tensor:
    """Error of the ratio, whether a cell is possible, and the order of the cells of a problem."""
    import torch

    possible = torch.isfinite(ratio)
    error = torch.nn.functional.smooth_l1_loss(out[possible, 0], ratio[possible].clip(-1, 1))
    doubt = torch.nn.functional.binary_cross_entropy_with_logits(out[:, 1], possible.float())
    truth = estimate + torch.where(possible, ratio, torch.tensor(_IMPOSSIBLE))
    wanted = _shares(-truth / _SHARP, owner, problems).exp()
    foreseen = _shares(-(estimate + out[:, 0]) / _SHARP, owner, problems)
    order = -(wanted * foreseen).sum() / problems
    weights = _WEIGHTS
    return weights[0] * error + weights[1] * doubt + weights[2] * order


def _shares(score: torch.Tensor, owner: torch.Tensor, problems: int) -> torch.Tensor:
    """The logarithm of the softmax of the scores inside each problem."""
    import torch

    top = torch.full((problems,), -torch.inf).scatter_reduce(0, owner, score.detach(), "amax")
    shifted = score - top[owner]
    total = torch.zeros(problems).scatter_add(0, owner, shifted.exp())
    return shifted - total.log()[owner]


@dataclass(frozen=True, slots=True, kw_only=True)
class TemplateScore:
    """How a policy did on a problem that it was not trained on.

    Args:
        rank: place of the structure with the best exact price, from 0; None where it is missing.
        plan_rank: place of the structure of the best known plan.
        regret: best exact seconds of the first structures over the best of all, minus one.
    """

    rank: int | None
    plan_rank: int | None
    regret: float


def examine(
    problem: PipelineProblem,
    priced: Sequence[Sequence[float | None]],
    wanted: tuple[ReplicaKind, ...] | None,
    policy: PolicyFile | None,
) -> TemplateScore | None:
    """The score on a priced problem; None where nothing fits."""
    best: dict[int, float] = {}
    for n, _, _, seconds in priced:
        if seconds is not None and n is not None:
            best[int(n)] = min(seconds, best.get(int(n), np.inf))
    if not best:
        return None
    scored = score(Space(problem, TableCosts(problem)), policy)
    place = {n: i for i, n in enumerate(scored.order)}
    least = min(best, key=lambda n: best[n])
    names = {scored.structures.names(n): i for n, i in place.items()}
    first = [best[n] for n in scored.order[:FIRST] if n in best]
    return TemplateScore(
        rank=place.get(least),
        plan_rank=None if wanted is None else names.get(wanted),
        regret=min(first, default=np.inf) / best[least] - 1,
    )
