"""What a stage of several kinds of replicas costs at least: that of one or two kinds in its place.

Of the kinds of a stage let k be the one whose replica is the cheapest, at any prices of devices. A
stage of as many replicas of k alone is no slower, takes no more memory, and costs no more. Where
the devices do for n of its d replicas only, the stage has another type, too; with its narrowest
kind q of that type, n replicas of k and d - n of q cost no more than it does, and it is as slow as
the slower of both and takes as much memory. Replicas send at least what they would send to the best
neighbour. Gradients go round rings that may leave the type. So a proof for these stages holds for
all stages, whatever kinds they have.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from arachne_opt.costs.pipeline.base import Floats, Ints
from arachne_opt.errors import InputError
from arachne_opt.pipeline.plan import ReplicaKind
from arachne_opt.pipeline.problem import PipelineProblem
from arachne_opt.solvers.pipeline.restrictions import Restrictions
from arachne_opt.solvers.pipeline.stage_facts import (
    PricedStages,
    SplitStages,
    StageFacts,
    cuts_between,
)
from arachne_opt.solvers.pipeline.tables import BatchTables
from arachne_opt.solvers.pipeline.workbench import Workbench


class _Stage(NamedTuple):
    """Replicas of one kind, as an option, and of another one; 0 of it for the first kind alone."""

    one: int
    other: int
    ones: int
    others: int


class StageMixes:
    """Stages of one or two kinds that stand for all stages; see ``Stages``.

    Args:
        bench: prices and limits.

    Raises:
        InputError: replicas share experts or optimizer states, for which this is not proven.
    """

    def __init__(self, bench: Workbench) -> None:
        problem = bench.problem
        if problem.options.zero1 or any(kind.ep > 1 for kind in bench.costs.kinds):
            raise InputError(
                "nothing is proven of mixed stages that share experts or optimizer states",
                where=f"problem {problem.name}",
                hint="stages of one type each",
            )
        self._bench = bench
        self.countable = len(bench.space.places) <= 2
        self._roomy = Workbench(_with_room(problem), bench.costs, Restrictions(pure_stages=True))

    @property
    def batches(self) -> list[int]:
        """See ``Stages``."""
        return self._roomy.ranking.batches(self._bench.problem.global_batch)

    def priced(self, batch: int) -> PricedStages:
        """See ``Stages``: each kind, where devices are short with as many of another type."""
        tables = self._roomy.tables(batch)
        stages = [s for pair in self._pairs(tables) for s in self._fullest(tables, pair)]
        used = [self._used(tables, s)[0] for s in stages]
        facts = self._facts(tables, stages, leaves=True)
        return PricedStages(
            facts, np.array(used, dtype=np.float64).reshape(-1, len(self._bench.space.places))
        )

    def split(self, batch: int, limits: Ints, most: int | None = None) -> SplitStages:
        """See ``Stages``: of all kinds in a stage the narrowest of each type take no more."""
        tables = self._roomy.tables(batch)
        stages, splits = [], []
        for pair in self._pairs(tables):
            if pair.one > pair.other:  # the same two the other way round
                continue
            used = self._used(tables, pair, most or pair.ones)
            used = used[(used <= limits).all(axis=1)]
            if len(used):
                stages.append(pair)
                splits.append(used)
        return SplitStages(self._facts(tables, stages, leaves=False), tuple(splits))

    def _facts(self, tables: BatchTables, stages: list[_Stage], *, leaves: bool) -> StageFacts:
        every = np.arange(len(tables.options))
        tables.fill(every)
        one = np.array([s.one for s in stages], dtype=np.int64)
        other = np.array([s.other for s in stages], dtype=np.int64)
        exchange = [self._exchange_s(tables, s, leaves=leaves) for s in stages]
        forward, backward = cuts_between(tables, every)
        ahead = forward.min(axis=1, initial=np.inf)
        back = backward.min(axis=0, initial=np.inf)

        def ends(in_flight: int) -> Ints:
            found: Ints = np.minimum(tables.ends(one, in_flight), tables.ends(other, in_flight))
            return found

        return StageFacts(
            batch=tables.batch,
            rows=tables.rows,
            work_oab=np.maximum(tables.work_oab[one], tables.work_oab[other]),
            exchange_oab=np.array(exchange).reshape(-1, tables.rows + 1, tables.rows + 1),
            ahead_ob=np.maximum(ahead[one], ahead[other]),
            back_oa=np.maximum(back[one], back[other]),
            sends=lambda: self._sends(tables, one, other, (forward, backward)),
            ends=ends,
        )

    def _pairs(self, tables: BatchTables) -> Iterator[_Stage]:
        """Each kind alone, and with each of another type, in both orders."""
        for o, option in enumerate(tables.options):
            yield _Stage(o, o, option.replicas, 0)
            for q, other in enumerate(tables.options):
                apart = self._place(tables, q) != self._place(tables, o)
                if apart and other.microbatch == option.microbatch and option.replicas > 1:
                    yield _Stage(o, q, option.replicas - 1, 1)

    def _fullest(self, tables: BatchTables, pair: _Stage) -> Iterator[_Stage]:
        """A kind alone if there are devices for it, else all that there can be, and the other."""
        limits, count = self._bench.place_limits, pair.ones + pair.others
        fit = int(limits[self._place(tables, pair.one)]) // _kind(tables, pair.one).tp
        if pair.one == pair.other:
            if count <= fit:
                yield pair
        elif 0 < fit < count:
            there = int(limits[self._place(tables, pair.other)]) // _kind(tables, pair.other).tp
            # Of further types there may be the rest, which is no cheaper.
            if there and (count - fit <= there or not self.countable):
                yield _Stage(pair.one, pair.other, fit, min(count - fit, there))

    def _place(self, tables: BatchTables, option: int) -> int:
        return self._bench.space.place_of(_kind(tables, option))

    def _used(self, tables: BatchTables, stage: _Stage, most: int | None = None) -> Ints:
        """Devices of each place that a stage takes, shape [1, place].

        With ``most``, of all splits with the other kind, or the least of some next to each other.
        """
        kind, other = _kind(tables, stage.one), _kind(tables, stage.other)
        ones, others = np.array([stage.ones]), np.array([stage.others])
        if most is not None and stage.others:
            count = stage.ones + stage.others
            step = -(-(count - 1) // most)
            ones = np.arange(1, count, step)
            others = count - np.minimum(ones + step - 1, count - 1)
        used = np.zeros((len(ones), len(self._bench.space.places)), dtype=np.int64)
        used[:, self._place(tables, stage.one)] = ones * kind.tp
        used[:, self._place(tables, stage.other)] += others * other.tp
        return used

    def _exchange_s(self, tables: BatchTables, stage: _Stage, *, leaves: bool) -> Floats:
        """Exchange inside a stage [first, end] at least.

        Args:
            tables: of the options.
            stage: which of them.
            leaves: whether a stage of one kind stands for stages of two types, too.
        """
        kind, other = _kind(tables, stage.one), _kind(tables, stage.other)
        count = tables.options[stage.one].replicas
        alone = stage.one == stage.other
        rings = [[kind] * count] if alone else list(self._rings(kind, other, count))
        if leaves and (alone or not self.countable):
            for name, zone in self._elsewhere(kind):
                away = ReplicaKind(name, min(kind.tp, other.tp), zone=zone)
                rings += self._rings(kind, away, count)
        costs = [self._bench.costs.stage_sync_s(ring, cautious=True) for ring in rings]
        found: Floats = np.min(costs, axis=0)
        return found

    def _elsewhere(self, kind: ReplicaKind) -> list[tuple[str, str]]:
        """All places but that of a kind."""
        here = self._bench.space.place_of(kind)
        return [p for n, p in enumerate(self._bench.space.places) if n != here]

    def _rings(
        self, one: ReplicaKind, other: ReplicaKind, count: int
    ) -> Iterator[list[ReplicaKind]]:
        """Two kinds in turn; of an odd number one is its own neighbour, or there is a third."""
        if count % 2 and not self.countable:
            count -= 1
        if count > 1:
            yield ([one, other] * count)[:count]
            yield ([other, one] * count)[:count]

    def _sends(
        self, tables: BatchTables, one: Ints, other: Ints, cuts: tuple[Floats, Floats]
    ) -> tuple[Floats, Floats]:
        """Least seconds between stages, forward and backward, shape [before, behind, cut].

        Each of a stage's kinds sends to some kind of the other's types, at least as wide as the
        narrowest.
        """
        alike = self._alike(tables)
        found = []
        for cut in cuts:
            to = np.array([cut[:, row].min(axis=1) for row in alike]).swapaxes(0, 1)
            from_ = np.array([cut[row].min(axis=0) for row in alike])
            sent = [
                np.minimum(to[np.ix_(kind, one)], to[np.ix_(kind, other)]) for kind in (one, other)
            ]
            sent += [
                np.minimum(from_[np.ix_(one, kind)], from_[np.ix_(other, kind)])
                for kind in (one, other)
            ]
            found.append(np.max(sent, axis=0))
        return found[0], found[1]

    def _alike(self, tables: BatchTables) -> list[Ints]:
        """For each option those of its type with as many replicas that are at least as wide."""
        facts = [
            (self._place(tables, o), option.replicas, _kind(tables, o).tp)
            for o, option in enumerate(tables.options)
        ]
        return [
            np.array(
                [q for q, other in enumerate(facts) if other[:2] == own[:2] and other[2] >= own[2]]
            )
            for own in facts
        ]


def _kind(tables: BatchTables, option: int) -> ReplicaKind:
    (block,) = tables.options[option].blocks
    return block.kind


def _with_room(problem: PipelineProblem) -> PipelineProblem:
    """The same with as many devices of each type as there are of all."""
    cluster = problem.cluster
    nodes = list(cluster.nodes)
    for own in problem.nodes_of_type.values():
        have = sum(node.device_count for node in own)
        nodes += [*own] * (-(-cluster.device_count // have) - 1)
    return replace(problem, cluster=replace(cluster, nodes=tuple(nodes)))
