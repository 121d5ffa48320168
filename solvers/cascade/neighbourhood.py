"""Large neighbourhoods: free a few tasks of a schedule and re-solve the node model exactly."""

from __future__ import annotations

import random
from itertools import combinations

from arachne_opt.solvers.cascade.cpsat.solver import Chosen, Effort, node_model, run
from arachne_opt.solvers.cascade.cpsat.variables import Choice, Choices
from arachne_opt.solvers.cascade.decoder import FastDecoder
from arachne_opt.solvers.cascade.digest import Mode, Where
from arachne_opt.solvers.cascade.schedule import Schedule
from arachne_opt.units import scale_up

# Units of time per makespan in the node model.
_STEPS = 2000
# Pairs of nodes offered to a free task for groups over two nodes.
_PAIRS = 12


class Neighbourhood:
    """Re-solves parts of a schedule; the number of free tasks adapts to what gets solved."""

    def __init__(self, decoder: FastDecoder, seed: int) -> None:
        self._decoder = decoder
        self._digest = decoder.digest
        self._random = random.Random(seed)
        self._free = max(4, min(10, len(self._digest.tasks) // 2))
        self.work = 0.0

    def improve(self, schedule: Schedule, bound_us: int, effort: Effort) -> Schedule | None:
        """A shorter schedule that differs in a random part, None where none was found."""
        unit_us = max(1, schedule.makespan_us // _STEPS)
        choices, hint = self._choices(schedule, self._pick_free(schedule), unit_us)
        most = (schedule.makespan_us - 1) // unit_us
        v = node_model(self._digest, choices, unit_us, min(most, bound_us // unit_us), most)
        answer = run(v, effort, hint)
        self.work = answer.work
        # An exhausted neighbourhood is too small, an unfinished one too large.
        step = 1 if answer.done else -1
        self._free = max(3, min(len(self._digest.tasks), self._free + step))
        if answer.chosen is None:
            return None
        better = self._schedule(choices, answer.chosen)
        return better if better.key < schedule.key else None

    def _pick_free(self, schedule: Schedule) -> set[int]:
        """Tasks of a time window, of some nodes, or of some cascades."""
        digest, draw = self._digest, self._random.random()
        if draw < 0.34:
            at = self._random.randrange(schedule.makespan_us)
            ranked = sorted(
                range(len(digest.tasks)),
                key=lambda i: abs(schedule.starts_us[i] + schedule.ends_us[i] - 2 * at),
            )
            return set(ranked[: self._free])
        if draw < 0.67 and len(digest.nodes) > 2:
            nodes = self._random.sample(range(len(digest.nodes)), 2)
            touched = [
                i for i, devices in schedule.runs if {digest.node_of[d] for d in devices} & {*nodes}
            ]
            return set(self._random.sample(touched, min(len(touched), self._free)))
        rows = list(digest.cascades)
        self._random.shuffle(rows)
        free: set[int] = set()
        for row in rows:
            if len(free) < self._free:
                free |= set(row)
        return free

    def _choices(self, schedule: Schedule, free: set[int], unit_us: int) -> tuple[Choices, Chosen]:
        """Choices of all tasks, with the present one first, and the present schedule as a hint."""
        choices: Choices = [[] for _ in self._digest.tasks]
        for i, devices in schedule.runs:
            mode = self._digest.tasks[i].mode(len(devices), self._digest.kind_of[devices[0]])
            assert mode is not None  # a schedule uses known modes only
            span = (schedule.ends_us[i] - schedule.starts_us[i]) // unit_us
            choices[i] = [Choice(mode, span, self._where(devices))]
            if i in free:
                known = choices[i][0]
                choices[i] += [c for c in self._offers(i, unit_us) if c[::2] != known[::2]]
        starts = tuple(start // unit_us for start in schedule.starts_us)
        return choices, Chosen(starts, (0,) * len(choices))

    def _where(self, devices: tuple[int, ...]) -> Where:
        nodes = [self._digest.node_of[d] for d in devices]
        return tuple((n, nodes.count(n)) for n in sorted(set(nodes)))

    def _offers(self, task: int, unit_us: int) -> list[Choice]:
        """Every node and some pairs of nodes for every useful mode."""
        out = []
        for line in self._decoder.modes[task]:
            inside = [n for n in line.nodes if self._digest.nodes[n].size >= line.degree]
            out += [
                Choice(line.mode, line.duration_us // unit_us, ((n, line.degree),)) for n in inside
            ]
            pairs = list(combinations(line.nodes, 2)) if line.degree > 1 else []
            for pair in self._random.sample(pairs, min(_PAIRS, len(pairs))):
                out += self._across(line.mode, pair, unit_us)
        return out

    def _across(self, mode: Mode, pair: tuple[int, int], unit_us: int) -> list[Choice]:
        a, b = pair
        size = scale_up(mode.duration_us, self._digest.mildest_ppm) // unit_us
        sizes = self._digest.nodes[a].size, self._digest.nodes[b].size
        return [
            Choice(mode, size, ((a, share), (b, mode.degree - share)))
            for share in self._decoder.shares_of(mode.degree, *sizes)
        ]

    def _schedule(self, choices: Choices, chosen: Chosen) -> Schedule:
        starts, picks = chosen
        order = sorted(range(len(starts)), key=lambda i: (starts[i], i))
        taken = [row[k] for row, k in zip(choices, picks, strict=True)]
        lines = [self._decoder.pick_of(i, c.mode.degree, c.mode.kind) for i, c in enumerate(taken)]
        return self._decoder.realise(order, lines, [c.where for c in taken])
