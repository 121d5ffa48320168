"""Layers of templates: how far each stage can reach under a load, and the exact division.

A template is a row of option numbers, first stage first. All functions work on many templates with
the same number of stages at once. Legend: n template, a first row, b end, as in ``BatchTables``.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from arachne_opt.costs.pipeline.base import Floats, Ints
from arachne_opt.solvers.pipeline.tables import BatchTables


@dataclass(frozen=True, slots=True)
class Division:
    """Cuts of templates and what they cost; ``fill_s`` is infinite where there is none.

    Args:
        cuts: shape [n, stages + 1].
        load_s: largest compute + sends of a stage.
        fill_s: compute + sends of all stages.
        sync_s: slowest gradient exchange inside a stage, cautious.
    """

    cuts: Ints
    load_s: Floats
    fill_s: Floats
    update_s: Floats
    sync_s: Floats

    def total_s(self, microbatches: int | Ints) -> Floats:
        """Cautious seconds of an iteration of one pipeline."""
        total: Floats = (microbatches - 1) * self.load_s + self.fill_s + self.update_s + self.sync_s
        return total


class Templates:
    """Templates with the prices of their boundaries at hand."""

    def __init__(self, tables: BatchTables, templates: Ints) -> None:
        self.tables = tables
        self.templates = templates
        self.count, self.stages = templates.shape
        tables.fill(templates)
        zeros = np.zeros((self.count, tables.rows + 1))
        self.ahead, self.back = [zeros] * self.stages, [zeros] * self.stages
        for i in range(self.stages - 1):
            forward, backward = tables.cuts(templates[:, i], templates[:, i + 1])
            # The published price doubles the first send of long pipelines, and the last one back.
            self.ahead[i] = forward * (2 if i == 0 and self.stages > 3 else 1)
            self.back[i + 1] = backward * (2 if i + 2 == self.stages else 1)
        self.even = tables.even_cuts(self.stages)
        self.ends = [tables.ends(templates[:, i], self.stages - i) for i in range(self.stages)]

    def reach(self, chosen: Ints, load_s: Floats, sync_s: Floats) -> Floats:
        """Sum of stage loads if every stage takes all it can under the limits; inf if rows remain.

        A stage that takes more rows never harms the later ones, so that this decides whether any
        division keeps to the limits, as long as work grows with rows and inner rows send alike.
        """
        rows, tables = self.tables.rows, self.tables
        number, ends_b = np.arange(len(chosen)), np.arange(rows + 1)
        at, total = np.zeros(len(chosen), dtype=np.int64), np.zeros(len(chosen))
        limit, exchange = load_s[:, None], sync_s[:, None]
        for i in range(self.stages - 1):
            option = self.templates[chosen, i]
            loads = tables.work_oab[option, at] + self.ahead[i][chosen]
            loads += self.back[i][chosen, at][:, None]
            good = (loads <= limit) & (tables.sync_oab[option, at] <= exchange)
            room = np.minimum(self.ends[i][chosen, at], rows - self.stages + 1 + i)
            good &= ends_b <= room[:, None]
            if self.even is not None:
                good &= ends_b == self.even[i + 1]
            end = np.where(good, ends_b, 0).max(axis=1)
            ok = end > at
            total += np.where(ok, loads[number, end], np.inf)
            at = np.where(ok, end, i + 1)
        option = self.templates[chosen, -1]
        loads = tables.work_oab[option, :, rows] + self.back[-1][chosen]
        good = (loads <= limit) & (tables.sync_oab[option, :, rows] <= exchange)
        good &= (
            (self.ends[-1][chosen] >= rows) & (ends_b <= at[:, None]) & (ends_b >= self.stages - 1)
        )
        if self.even is not None:
            good &= ends_b == self.even[-2]
        start = np.where(good, ends_b, -1).max(axis=1)
        last = np.where(start >= 0, loads[number, start], np.inf)
        found: Floats = total + last
        return found

    def divide(self, chosen: Ints, load_s: Floats, sync_s: Floats) -> Division:
        """The divisions of chosen templates with the least fill under the limits, exactly."""
        rows = self.tables.rows
        best = np.full((len(chosen), rows + 1), np.inf)
        best[:, 0] = 0
        choices = []
        for i in range(self.stages):
            through = self._loads(chosen, i, load_s, sync_s) + best[:, :, None]
            choices.append(through.argmin(axis=1))
            best = through.min(axis=1)
        cuts = np.full((len(chosen), self.stages + 1), rows)
        number = np.arange(len(chosen))
        for i in range(self.stages - 1, -1, -1):
            cuts[:, i] = choices[i][number, cuts[:, i + 1]]
        return self._priced(chosen, cuts, best[:, rows])

    def _loads(self, chosen: Ints, i: int, load_s: Floats, sync_s: Floats) -> Floats:
        """Loads of stage i by [n, a, b], infinite beyond the limits and the memory."""
        option = self.templates[chosen, i]
        loads: Floats = self.tables.work_oab[option]
        loads += self.ahead[i][chosen][:, None, :]
        loads += self.back[i][chosen][:, :, None]
        wrong = loads > load_s[:, None, None]
        wrong |= np.arange(self.tables.rows + 1) > self.ends[i][chosen][:, :, None]
        if self.even is not None:
            only = np.zeros(wrong.shape[1:], dtype=bool)
            only[self.even[i], self.even[i + 1]] = True
            wrong |= ~only
        if np.isfinite(sync_s).any():
            wrong |= self.tables.sync_oab[option] > sync_s[:, None, None]
        loads[wrong] = np.inf
        return loads

    def _priced(self, chosen: Ints, cuts: Ints, fill_s: Floats) -> Division:
        worst, update, sync = (np.zeros(len(chosen)) for _ in range(3))
        for i in range(self.stages):
            option, a, b = self.templates[chosen, i], cuts[:, i], cuts[:, i + 1]
            load = self.tables.work_oab[option, a, b]
            load = load + self.ahead[i][chosen, b] + self.back[i][chosen, a]
            worst = np.maximum(worst, load)
            update = np.maximum(update, self.tables.update_oa[option, a])
            sync = np.maximum(sync, self.tables.sync_oab[option, a, b])
        # Templates without a division have an infinite fill; their load must not make it nan.
        worst = np.where(np.isfinite(fill_s), worst, 0)
        return Division(cuts, worst, fill_s, update, sync)
