"""The cascade policy: degrees and an order of the tasks, decoded into plans to begin with."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate

import numpy as np

from arachne_opt.costs.pipeline.base import Floats, Ints
from arachne_opt.solvers.cascade.changes import Changes, Choice
from arachne_opt.solvers.cascade.decoder import FastDecoder
from arachne_opt.solvers.cascade.list_schedule import (
    RULES,
    cascade_fronts,
    modes_for_deadline,
    priorities,
)
from arachne_opt.solvers.cascade.quick_list import ANY_US, Listed, QuickList
from arachne_opt.solvers.cascade.schedule import Schedule
from arachne_opt.solvers.seeds.cascade_features import CascadeView, view
from arachne_opt.solvers.seeds.network import Array, forward
from arachne_opt.solvers.seeds.policy_file import PolicyFile

_FRESH = 40  # that are drawn; the others change them
_STALE = 1500  # list schedules without a better one, after which draws begin anew
_HEAT = 0.0005  # of the makespan: schedules that much worse are gone on from
_HEATS = (0.1, 0.3, 0.6)  # of the draws, in turn
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


class SeedSearch:
    """The best list schedule of what the policy and the rules of list scheduling draw.

    After some draws the others change the best of them, a few cascades or tasks at a time; a change
    that is hardly worse is gone on from, too.

    Args:
        decoder: of the problem.
        policy: with weights for cascades.
        bound_us: a lower bound of the makespan.
        seed: of the draws.
    """

    def __init__(self, decoder: FastDecoder, policy: PolicyFile, bound_us: int, seed: int) -> None:
        advice = advise(policy, view(decoder, bound_us))
        self._draws = Draws(decoder, advice, bound_us, seed)
        modes = [[line.mode for line in lines] for lines in decoder.modes]
        odds = _odds(advice.logits, [len(row) for row in modes])
        self._changes = Changes(decoder.digest, modes, seed, odds)
        self._lists = QuickList(decoder.digest)
        self._chance = random.Random(seed)
        self._tasks, self._bound_us = len(decoder.digest.tasks), bound_us
        self._best: Listed | None = None
        self._at: tuple[Choice, Listed] | None = None
        # List schedules made, and those left to be drawn and to be without a better one.
        self._made, self._fresh, self._patience = 0, _FRESH, _STALE

    @property
    def schedule(self) -> Schedule:
        """The best so far; at least one has to be made."""
        assert self._best is not None
        return self._lists.schedule(self._best)

    @property
    def stale(self) -> bool:
        """Whether changes lead no further."""
        return self._patience <= 0

    def run(self, spent: Callable[[int], bool], below_us: int | None = None) -> bool:
        """Goes on from where it stopped; whether there is a better schedule than before.

        It ends by itself where changes lead no further. The next run draws anew then.

        Args:
            spent: told how many tasks were placed since it was last asked; says whether to stop.
            below_us: a makespan that is known to be possible.
        """
        before = self._best
        if below_us is not None:
            self._draws.below_us = min(self._draws.below_us, below_us)
        while True:
            self._step()
            done = self._best is not None and self._best.makespan_us <= self._bound_us
            if spent(self._tasks) or done or self.stale:
                return self._best is not before

    def _step(self) -> None:
        """Makes one list schedule: a draw, or a change of where the search is."""
        if self.stale:
            self._at, self._fresh, self._patience = None, _FRESH, _STALE
        made = self._drawn() if self._at is None or self._fresh > 0 else self._changed(*self._at)
        self._made, self._fresh, self._patience = (
            self._made + 1,
            self._fresh - 1,
            self._patience - 1,
        )
        if made is not None and (self._best is None or made.key < self._best.key):
            self._best, self._patience = made, _STALE
            self._draws.below_us = min(self._draws.below_us, made.makespan_us)

    def _drawn(self) -> Listed | None:
        """A fresh list schedule; the search goes on from the best since it began anew."""
        choice = self._draws.choice(self._made)
        most_us = ANY_US if self._at is None else self._at[1].makespan_us
        made = self._lists.decode(*choice, most_us)
        if made is not None:
            self._at = choice, made
        return made

    def _changed(self, choice: Choice, now: Listed) -> Listed | None:
        """A change, gone on from where it is hardly worse."""
        near = self._changes.near(choice, now)
        worse_us = -math.log(1 - self._chance.random()) * _HEAT * now.makespan_us
        made = self._lists.decode(*near, round(now.makespan_us + worse_us), now)
        if made is not None:
            self._at = near, made
        return made


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
            return Choice(modes, self._starts(heat))
        rule = RULES[int(self._rng.integers(len(RULES)))]
        return Choice(modes, priorities(self._digest, modes, rule))

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
