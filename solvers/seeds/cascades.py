"""The cascade policy: degrees and an order of the tasks, decoded into plans to begin with."""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate

import numpy as np

from arachne_opt.costs.pipeline.base import Floats, Ints
from arachne_opt.solvers.cascade.bounds import cascade_fronts
from arachne_opt.solvers.cascade.decoder import FastDecoder
from arachne_opt.solvers.cascade.list_schedule import (
    RULES,
    modes_for_deadline,
    priorities,
)
from arachne_opt.solvers.cascade.walks.choice import Choice, free_choice, ranked
from arachne_opt.solvers.cascade.walks.cooling import Progress
from arachne_opt.solvers.cascade.walks.race_search import RaceSearch
from arachne_opt.solvers.cascade.walks.walker import Walks
from arachne_opt.solvers.seeds.cascade_features import CascadeView, view
from arachne_opt.solvers.seeds.network import Array, forward
from arachne_opt.solvers.seeds.policy_file import PolicyFile

_HEATS = (0.05, 0.1, 0.2)  # of the draws, in turn
_LOOSEST = 1.5  # deadlines of the rule, as a multiple of the bound
_KEPT = 0.3  # most cascades that keep the policy's degrees beside those of a rule
_HOPELESS = 3.0  # times the bound: longer schedules are of no use
_STEPS = 1_000_000  # of the bound: starts that are told apart
_NUDGE = 0.05  # of the bound: random shifts of starts, times the heat


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


def _odds(logits: Floats, sizes: Sequence[int]) -> list[list[float]]:
    """Odds of the modes of each task, added up from the first on."""
    first, found = 0, []
    for size in sizes:
        own = logits[first : first + size]
        found.append(list(accumulate(np.exp(own - own.max()).tolist())))
        first += size
    return found


class Advised:
    """A problem and what a policy says of it once, for searches that may run beside each other.

    Args:
        decoder: of the problem.
        policy: with weights for cascades.
        bound_us: a lower bound of the makespan.
    """

    def __init__(self, decoder: FastDecoder, policy: PolicyFile, bound_us: int) -> None:
        self.decoder, self.bound_us = decoder, bound_us
        self.advice = advise(policy, view(decoder, bound_us))
        self.walks = Walks(decoder.digest)
        # Of the drawn modes of each task, added up from the first on.
        self.odds = _odds(self.advice.logits, [len(row) for row in decoder.modes])


class SeedSearch(RaceSearch):
    """Walks among list schedules that begin with what the policy and the rules draw.

    Args:
        advised: what they are drawn from.
        seed: of the draws.
    """

    def __init__(self, advised: Advised, seed: int) -> None:
        self._draws = Draws(advised.decoder, advised.advice, advised.bound_us, seed)
        walker = advised.walks.walker(seed, advised.odds)
        super().__init__(advised.walks, walker, self._drawn)
        self._made = 0

    def turn(self, progress: Progress, below_us: int | None = None) -> Iterator[None]:
        """See ``RaceSearch``.

        Args:
            progress: as there.
            below_us: a makespan that is known to be possible.
        """
        if below_us is not None:
            self._draws.below_us = min(self._draws.below_us, below_us)
        yield from super().turn(progress)

    def _drawn(self) -> Choice:
        self._made += 1
        return self._draws.choice(self._made - 1)


class Draws:
    """Random modes and priorities around the advice of a policy and the rules of list scheduling.

    Degrees come from the policy, or from a deadline by rule with some cascades as the policy has
    them; the order comes from the policy's starts or from the priorities of a rule.
    """

    def __init__(self, decoder: FastDecoder, advice: Advice, bound_us: int, seed: int) -> None:
        self._decoder = decoder
        self._digest = decoder.digest
        self._advice = advice
        self._bound_us = bound_us
        self._rng = np.random.default_rng(seed)
        self._fronts = cascade_fronts(decoder.digest)
        self.below_us = round(_HOPELESS * bound_us)

    def choice(self, number: int) -> Choice:
        """Modes and priorities of a number; the first ones are what the policy holds for best."""
        heat = 0.0 if number < 2 else _HEATS[number % len(_HEATS)]
        kept = 1.0 if number % 4 < 2 else _KEPT * self._rng.random()
        picks = self._mixed(self._by_policy(heat), kept)
        modes = [self._decoder.modes[t][pick].mode for t, pick in enumerate(picks)]
        if number % 2 == 0:
            priority = self._starts(heat)
        else:
            rule = RULES[int(self._rng.integers(len(RULES)))]
            priority = priorities(self._digest, modes, rule)
        # Picks of the decoder are those of the walks.
        return free_choice(array("i", picks), ranked(priority))

    def _by_policy(self, heat: float) -> list[int]:
        logits = self._advice.logits
        if heat > 0:
            # The largest of logits with Gumbel noise is a draw from their softmax.
            logits = logits + heat * self._rng.gumbel(size=len(logits))
        picks, first = [], 0
        for lines in self._decoder.modes:
            picks.append(int(logits[first : first + len(lines)].argmax()))
            first += len(lines)
        return picks

    def _mixed(self, picks: list[int], kept: float) -> list[int]:
        """The given degrees for a share of the cascades, those of a deadline for the others.

        No cascade keeps degrees under which it alone takes longer than the best schedule so far.
        """
        most = max(1.0, min(_LOOSEST, self.below_us / self._bound_us))
        deadline_us = round(self._bound_us * self._rng.uniform(1.0, most))
        modes = modes_for_deadline(self._digest, self._fronts, deadline_us)
        found = list(picks)
        for row in self._digest.cascades:
            alone_us = sum(self._decoder.modes[t][picks[t]].mode.least_us for t in row)
            if alone_us >= self.below_us or self._rng.random() >= kept:
                for t in row:
                    found[t] = self._decoder.pick_of(t, modes[t].degree, modes[t].kind)
        return found

    def _starts(self, heat: float) -> list[int]:
        """Priorities after the starts of the policy: the earlier, the higher."""
        noise = heat * _NUDGE * self._rng.standard_normal(len(self._advice.start))
        found: list[int] = np.round(-_STEPS * (self._advice.start + noise)).astype(int).tolist()
        return found
