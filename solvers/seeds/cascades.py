"""The cascade policy: degrees and an order of the tasks, decoded into plans to begin with."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from arachne_opt.costs.pipeline.base import Floats, Ints
from arachne_opt.solvers.cascade.decoder import ONE_NODE, TWO_NODES, FastDecoder, State
from arachne_opt.solvers.cascade.schedule import Schedule
from arachne_opt.solvers.seeds.cascade_features import CascadeView, view
from arachne_opt.solvers.seeds.network import Array, forward
from arachne_opt.solvers.seeds.policy_file import PolicyFile

_SAMPLES = 400  # states that are decoded at most
_HEATS = (0.3, 0.6, 1.0)  # of the draws, in turn; the first state takes what is likeliest
_NUDGE = 0.05  # of the bound: random shifts of starts, times the heat
_REALISED = 3  # of the best states that become schedules


@dataclass(frozen=True, slots=True, eq=False)
class Advice:
    """What the policy says.

    Args:
        logits: of each mode of each task, in the order of the decoder.
        start: of each task as a part of the bound.
    """

    logits: Floats
    start: Floats


def advise(policy: PolicyFile, seen: CascadeView) -> Advice:
    """Runs the network; the training has the same one in torch."""
    tensors = policy.tensors
    mode_x, task_x, problem_x = (
        _scaled(tensors, name, x)
        for name, x in (("mode", seen.mode_x), ("task", seen.task_x), ("problem", seen.problem_x))
    )
    tasks = len(task_x)
    of_modes = _mean(forward(tensors, "modes", mode_x), seen.task_of_mode, tasks)
    everywhere = np.broadcast_to(problem_x, (tasks, len(problem_x)))
    own = forward(tensors, "tasks", np.concatenate([task_x, of_modes, everywhere], axis=1))
    cascades = int(seen.cascade_of_task.max()) + 1
    siblings = _mean(own, seen.cascade_of_task, cascades)[seen.cascade_of_task]
    all_ = np.concatenate([own.mean(axis=0), own.max(axis=0)])
    everyone = np.broadcast_to(all_, (tasks, len(all_)))
    context = forward(tensors, "context", np.concatenate([own, siblings, everyone], axis=1))
    start = forward(tensors, "start", context)[:, 0]
    pick = np.concatenate([mode_x, context[seen.task_of_mode]], axis=1)
    logits = forward(tensors, "pick", pick)[:, 0]
    return Advice(logits=logits.astype(np.float64), start=start.astype(np.float64))


def _scaled(tensors: Mapping[str, Array], name: str, x: Floats) -> Array:
    values = (x - tensors[f"{name}.mean"]) / tensors[f"{name}.width"]
    found: Array = values.clip(-6, 6).astype(np.float32)
    return found


def _mean(values: Array, owner: Ints, count: int) -> Array:
    total = np.zeros((count, values.shape[1]), dtype=np.float32)
    np.add.at(total, owner, values)
    sizes: Array = np.bincount(owner, minlength=count).astype(np.float32)[:, None]
    found: Array = total / sizes
    return found


def seed_schedule(
    decoder: FastDecoder,
    policy: PolicyFile,
    bound_us: int,
    seed: int,
    spent: Callable[[int], bool],
) -> Schedule:
    """The best schedule of the states that the policy draws.

    Args:
        decoder: of the problem.
        policy: with weights for cascades.
        bound_us: a lower bound of the makespan.
        seed: of the draws.
        spent: told how many tasks were placed since it was last asked; says whether to stop.
    """
    advice = advise(policy, view(decoder, bound_us))
    rng = np.random.default_rng(seed)
    tasks = len(decoder.modes)
    found: list[tuple[int, State]] = []
    for number in range(_SAMPLES):
        heat = 0.0 if number == 0 else _HEATS[number % len(_HEATS)]
        state = _draw(decoder, advice, heat, rng)
        ends, _ = decoder.decode(state)
        found.append((max(ends), state))
        found = sorted(found, key=lambda entry: entry[0])[:_REALISED]
        if spent(tasks) or found[0][0] <= bound_us:
            break
    schedules = [decoder.realise(state, *decoder.decode(state)) for _, state in found]
    return min(schedules, key=lambda schedule: schedule.key)


def _draw(decoder: FastDecoder, advice: Advice, heat: float, rng: np.random.Generator) -> State:
    """A state: modes by their likelihood, tasks by their start, predecessors first."""
    logits, start = advice.logits, advice.start
    if heat > 0:
        # The largest of logits with Gumbel noise is a draw from their softmax.
        logits = logits + heat * rng.gumbel(size=len(logits))
        start = start + heat * _NUDGE * rng.standard_normal(len(start))
    picks, first = [], 0
    for lines in decoder.modes:
        picks.append(int(logits[first : first + len(lines)].argmax()))
        first += len(lines)
    begin = start.tolist()
    for t, predecessors in enumerate(decoder.predecessors):
        for p in predecessors:
            begin[t] = max(begin[t], begin[p] + 1e-6)
    order = sorted(range(len(begin)), key=lambda t: (begin[t], t))
    sites = [ONE_NODE] * len(begin)
    for t, pick in enumerate(picks):
        line = decoder.modes[t][pick]
        if line.degree > max(decoder.sizes[n] for n in line.nodes):
            sites[t] = TWO_NODES
    return State(order, picks, sites)
