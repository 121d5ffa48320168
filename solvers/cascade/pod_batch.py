"""Many small pods annealed at once: every operation works on all chains of all pods.

A pod has few tasks, so that a step of one chain is little work, and most of its time in Python
would be the interpreter's. Here a chain is a column of arrays: thousands of them are decoded,
changed and judged together, by the rules of ``FastDecoder`` and ``Annealer``.

A column holds an order of cascades, each as often as it has tasks (so that every order is legal),
and for each task a mode and a wished site. Arrays are shaped ``[tasks, chains]``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from arachne_opt.solvers.cascade.pod_tables import NEVER, Bools, Ints, PodTables, Ticks

# Chains start with degrees for deadlines up to this multiple of the bound, and with the tasks in
# the order of what is left after them, times a factor up to this.
_LOOSEST, _SHUFFLE = 1.15, 1.05
# First temperatures of fresh chains and of those that go on from something, and the last one, as
# shares of the makespan; weight of the mean end of the cascades beside it.
_HOT, _WARM, _COLD = 0.03, 0.01, 0.001
# Share of the chains of a pod that go on from what is given.
_WARM_SHARE = 0.5
_MEAN_WEIGHT = 0.01
# Shares of the changes: of modes, of order; the rest is of sites. Of those, shares that leave the
# node open and that spread a group.
_MODES, _ORDERS = 0.6, 0.3
_OPEN, _ACROSS = 0.8, 0.1


class Chains(NamedTuple):
    """States of all chains; ``sites`` may be the open one, behind the last of the tables."""

    order: Ints
    modes: Ints
    sites: Ints


class Ends(NamedTuple):
    """What states decode to: makespans with their costs, and the sites that tasks have got."""

    makespan: Ticks
    cost: np.typing.NDArray[np.float64]
    where: Ints


class Chain(NamedTuple):
    """One chain of a pod: cascades in order, modes and sites by task; mode -1 is left open."""

    order: tuple[int, ...]
    modes: tuple[int, ...]
    sites: tuple[int, ...]


class Found(NamedTuple):
    """The best chain of a pod and its makespan in µs."""

    makespan_us: int
    chain: Chain


class PodBatch:
    """Pods with as many chains each.

    Args:
        tables: of the nodes that all these pods have alike.
        pods: for each its cascades as numbers of shapes.
        chains: of each pod.
    """

    def __init__(
        self,
        tables: PodTables,
        pods: Sequence[Sequence[int]],
        chains: int,
        random: np.random.Generator,
    ) -> None:
        self._tables, self._pods, self._random = tables, pods, random
        self._each = chains
        self._width = max(map(len, pods))
        self.tasks = self._width * tables.tasks
        self._columns = np.arange(len(pods) * chains)
        filled = [[*pod, *[tables.shapes] * (self._width - len(pod))] for pod in pods]
        shapes = np.repeat(np.array(filled).T, chains, axis=1)
        row = np.repeat(shapes * tables.tasks, tables.tasks, axis=0)
        row += np.tile(np.arange(tables.tasks), self._width)[:, None]
        self._mode_counts = tables.mode_counts.take(row)
        # First line of every task in the tables, and the cells of the tasks before it.
        self._row = row * tables.mode_count
        self._before = [self._cells(before.take(row)) for before in tables.before]
        self._flatten()

    def _cells(self, before: Ints) -> Ints:
        """Cells of the tasks before; the row behind the last stands for none."""
        tasks = self._tables.tasks
        cascade = np.repeat(np.arange(self._width), tasks)[:, None]
        place = np.where(before < tasks, cascade * tasks + before, self.tasks)
        return place * len(self._columns) + self._columns

    @property
    def placed(self) -> int:
        """Tasks placed in one step of all chains."""
        return self.tasks * len(self._columns)

    def _flatten(self) -> None:
        """Tables as vectors, for look-ups by one number, and where the free times of a chain lie.

        Rising free times of every node of every chain stand one behind the other: one entry that
        is always free, one for each device, and some that are never free.
        """
        tables, nodes = self._tables, len(self._tables.sizes)
        self._depth = max(tables.sizes)
        self._degree = np.minimum(tables.degree, self._depth).ravel()
        self._share, self._more = tables.share.ravel(), tables.more.ravel()
        self._uneven = bool(self._more.any())
        self._duration = tables.duration.ravel()
        self._resolved = tables.resolved.ravel()
        self._lag = [lag.ravel() for lag in tables.lag]
        each = 2 * self._depth + 1
        row = np.full((nodes, each), NEVER, np.int32)
        for node, size in enumerate(tables.sizes):
            row[node, : size + 1] = 0
        self._all_free = np.tile(row.ravel(), len(self._columns))
        self._chain = self._columns * row.size
        self._node = np.arange(nodes) * each
        # First, second and further nodes of the sites, and which sites have so many.
        members = range(max(map(len, tables.sites)))
        self._member = [
            self._node.take([s[min(k, len(s) - 1)] for s in tables.sites]) for k in members
        ]
        self._has_member = [np.array([len(s) > k for s in tables.sites]) for k in members]

    def anneal(
        self,
        bound_us: int,
        steps: int,
        spent: Callable[[int], bool],
        given: Sequence[Chain | None] = (),
    ) -> list[Found]:
        """The best state of every pod's chains after so many steps, fewer where time is up.

        Args:
            bound_us: no pod is thought to be faster than this.
            steps: changes of every chain.
            spent: takes the tasks placed since the last call, and says whether to stop.
            given: for each pod what some of its chains go on from.
        """
        state = self._start(bound_us)
        hot = np.full(len(self._columns), _HOT)
        for pod, chain in enumerate(given):
            if chain is not None:
                self._go_on(state, hot, pod, chain)
        ends = self._decode(state)
        best: list[Found | None] = [None] * len(self._pods)
        lowest = np.full(len(self._pods), np.inf)
        for step in range(steps + 1):
            self._keep(state, ends, lowest, best)
            if step == steps or spent(self.placed):
                break
            heat = ends.makespan * (hot * (_COLD / hot) ** (step / steps))
            other = self._changed(state)
            after = self._decode(other)
            worse = after.cost - ends.cost
            taken = worse <= heat * self._random.standard_exponential(len(worse))
            for old, new in zip(state, other, strict=True):
                np.copyto(old, new, where=taken)
            np.copyto(ends.makespan, after.makespan, where=taken)
            np.copyto(ends.cost, after.cost, where=taken)
            np.copyto(ends.where, after.where, where=taken)
        return [found for found in best if found is not None]

    def _go_on(
        self, state: Chains, hot: np.typing.NDArray[np.float64], pod: int, given: Chain
    ) -> None:
        """Puts a chain into the first ones of a pod; open modes stay as they are."""
        first = pod * self._each
        chains = slice(first, first + round(_WARM_SHARE * self._each))
        hot[chains] = _WARM
        missing = [c for c in state.order[:, first] if c >= len(self._pods[pod])]
        state.order[:, chains] = np.array([*missing, *given.order])[:, None]
        for at, (mode, site) in enumerate(zip(given.modes, given.sites, strict=True)):
            if mode >= 0:
                state.modes[at, chains] = mode
            state.sites[at, chains] = site

    def _keep(
        self,
        state: Chains,
        ends: Ends,
        lowest: np.typing.NDArray[np.float64],
        best: list[Found | None],
    ) -> None:
        """Keeps the best chain of every pod where it is better than all before."""
        cost = ends.cost.reshape(len(self._pods), self._each)
        chain = cost.argmin(axis=1)
        least = cost[np.arange(len(self._pods)), chain]
        for pod in np.flatnonzero(least < lowest).tolist():
            lowest[pod] = least[pod]
            column = pod * self._each + int(chain[pod])
            makespan_us = int(ends.makespan[column]) * self._tables.tick_us
            best[pod] = Found(makespan_us, self._taken(state, ends, pod, column))

    def _taken(self, state: Chains, ends: Ends, pod: int, column: int) -> Chain:
        """A chain without the empty cascades."""
        width = len(self._pods[pod])
        tasks = width * self._tables.tasks
        return Chain(
            tuple(c for c in state.order[:, column].tolist() if c < width),
            tuple(state.modes[:tasks, column].tolist()),
            tuple(ends.where[:tasks, column].tolist()),
        )

    # ------------------------------------------------------------------ starts and changes

    def _start(self, bound_us: int) -> Chains:
        """Cheapest modes for random deadlines, tasks by what is left after them, sites open."""
        tables, columns = self._tables, len(self._columns)
        deadlines = bound_us * self._random.uniform(1.0, _LOOSEST, columns)
        modes = np.zeros((self.tasks, columns), np.int64)
        left = np.zeros((self.tasks, columns))
        for p, pod in enumerate(self._pods):
            chains = slice(p * self._each, (p + 1) * self._each)
            for c, shape in enumerate(pod):
                tasks = slice(c * tables.tasks, (c + 1) * tables.tasks)
                chain_us, picks, tails = tables.fronts[shape]
                at = np.searchsorted(chain_us, deadlines[chains], side="right") - 1
                at = np.maximum(at, 0)
                modes[tasks, chains], left[tasks, chains] = picks[at].T, tails[at].T
        left *= self._random.uniform(1 / _SHUFFLE, _SHUFFLE, left.shape)
        cascade = np.repeat(np.arange(self._width), tables.tasks)
        order = cascade[np.argsort(-left, axis=0, kind="stable")]
        sites = np.full((self.tasks, columns), len(tables.sites), np.int64)
        return Chains(order, modes, sites)

    def _changed(self, state: Chains) -> Chains:
        """A neighbour of every chain: other modes, another order or another site."""
        order, modes, sites = (a.copy() for a in state)
        kind = self._random.random(len(self._columns))
        self._change_mode(modes, kind < _MODES)
        self._change_mode(modes, kind < _MODES / 2)
        self._change_order(order, np.flatnonzero((kind >= _MODES) & (kind < _MODES + _ORDERS)))
        self._change_site(sites, kind >= _MODES + _ORDERS)
        return Chains(order, modes, sites)

    def _change_mode(self, modes: Ints, chosen: Bools) -> None:
        draw = self._random.random((2, len(self._columns)))
        at = (draw[0] * self.tasks).astype(np.int64) * len(self._columns) + self._columns
        fresh = (draw[1] * self._mode_counts.take(at)).astype(np.int64)
        modes.ravel()[at] = np.where(chosen, fresh, modes.take(at))

    def _change_order(self, order: Ints, chosen: Ints) -> None:
        """Takes one entry out of the order and puts it in elsewhere."""
        old, new = self._random.integers(0, self.tasks, (2, len(chosen)))
        at = np.arange(self.tasks)[:, None]
        source = at + ((at >= old) & (at < new)) - ((at <= old) & (at > new))
        source = np.where(at == new, old, source)
        order[:, chosen] = np.take_along_axis(order[:, chosen], source, 0)

    def _change_site(self, sites: Ints, chosen: Bools) -> None:
        draw = self._random.random((3, len(self._columns)))
        at = (draw[0] * self.tasks).astype(np.int64) * len(self._columns) + self._columns
        nodes, count = len(self._tables.sizes), len(self._tables.sites)
        one = (draw[2] * nodes).astype(np.int64)
        wide = nodes + (draw[2] * (count - nodes)).astype(np.int64)
        fresh = np.where(draw[1] < _OPEN, count, np.where(draw[1] < _OPEN + _ACROSS, wide, one))
        sites.ravel()[at] = np.where(chosen, fresh, sites.take(at))

    # ------------------------------------------------------------------ decoding

    def _decode(self, state: Chains) -> Ends:
        """Places the tasks of all chains in their order."""
        columns, chains, sites = self._columns, len(self._columns), len(self._tables.sites)
        tasks = self._tables.tasks
        line = self._row + state.modes
        wished = self._resolved.take(line * (sites + 1) + state.sites)
        depth = self._degree.take(line)
        line *= sites
        code = state.modes * sites
        free = self._all_free.copy()
        # The cell of the next task of every cascade: its row and its chain.
        following = np.arange(self._width)[:, None] * (tasks * chains) + columns
        ends = np.zeros((self.tasks + 1, chains), np.int32)
        codes = np.zeros((self.tasks + 1, chains), np.int64)
        where = np.empty((self.tasks, chains), np.int64)
        for turn in state.order * chains + columns:
            at = following.take(turn)
            following.ravel()[turn] = at + chains
            inputs = []
            for before in self._before:
                cell = before.take(at)
                inputs.append((ends.take(cell), codes.take(cell)))
            first = line.take(at)
            arrivals = self._arrivals(first, inputs)
            site = wished.take(at)
            site = np.where(site == sites, self._first_free(free, depth.take(at), arrivals), site)
            mode = first + site
            ends.ravel()[at] = self._place(free, site, mode, arrivals(site))
            codes.ravel()[at] = code.take(at) + site
            where.ravel()[at] = site
        last = ends[tasks - 1 : -1 : tasks]
        makespan = last.max(axis=0)
        return Ends(makespan, makespan + _MEAN_WEIGHT / self._width * last.sum(axis=0), where)

    def _arrivals(
        self, first: Ints, inputs: Sequence[tuple[Ticks, Ints]]
    ) -> Callable[[Ints | int], Ticks]:
        """Tells when all inputs are at a site; ``first`` numbers the modes at the first site."""
        codes = self._tables.mode_count * len(self._tables.sites)
        rows = [(first * codes + code, end) for end, code in inputs]

        def arrival(site: Ints | int) -> Ticks:
            ready: Ticks | None = None
            for (row, end), lag in zip(rows, self._lag, strict=True):
                late = lag.take(row + site * codes)
                late += end
                ready = late if ready is None else np.maximum(ready, late, out=ready)
            assert ready is not None
            return ready

        return arrival

    def _first_free(
        self, free: Ticks, depth: Ints, arrivals: Callable[[Ints | int], Ticks]
    ) -> Ints:
        """The node where tasks start first; of equals the one whose devices are free last."""
        site = np.zeros(len(depth), np.int64)
        first = self._chain + depth
        for n, node in enumerate(self._node.tolist()):
            idle = free.take(first + node)
            start = arrivals(n)
            np.maximum(start, idle, out=start)
            if n == 0:
                least, latest = start, idle
                continue
            better = (start < least) | ((start == least) & (idle > latest))
            site[better] = n
            if n + 1 < len(self._node):
                np.copyto(least, start, where=better)
                np.copyto(latest, idle, where=better)
        return site

    def _place(self, free: Ticks, site: Ints, mode: Ints, start: Ticks) -> Ticks:
        """Ends of groups at sites; their devices are taken.

        Args:
            free: when devices are free.
            site: of each chain.
            mode: with the site, as a line of the tables.
            start: when the inputs are there; changed.
        """
        first = share = self._share.take(mode)
        node = self._chain + self._member[0].take(site)
        if self._uneven:
            more = self._more.take(mode)
            first = share + (more > 0)
        np.maximum(start, free.take(node + first), out=start)
        wide = []
        for k, has in enumerate(self._has_member[1:], 1):
            chains = np.flatnonzero(has.take(site))
            other = self._chain.take(chains) + self._member[k].take(site.take(chains))
            count = share.take(chains)
            if self._uneven:
                count += more.take(chains) > k
            start[chains] = np.maximum(start.take(chains), free.take(other + count))
            wide.append((chains, other, count))
        end = start + self._duration.take(mode)
        self._occupy(free, node, first, start, end)
        for chains, other, count in wide:
            self._occupy(free, other, count, start.take(chains), end.take(chains))
        return end

    def _occupy(self, free: Ticks, node: Ints, count: Ints, start: Ticks, end: Ticks) -> None:
        """Takes the devices of nodes that are free last before the start, until the end.

        In rising order: entries from the first taken one on move down by the count as far as they
        are below the end, and the end fills the gap. An entry stays where the one ``count``
        behind it is free at the start: that one is taken rather.
        """
        # All entries of a node as one element: moved at once, wherever it begins.
        whole = f"V{free.itemsize * self._depth}"
        rows = np.ndarray(len(free) - self._depth + 1, whole, free, strides=free.itemsize)
        at = node + 1
        entries = rows[at].view(free.dtype).reshape(-1, self._depth)
        behind = rows[at + count].view(free.dtype).reshape(-1, self._depth)
        moves = behind > start[:, None]
        np.minimum(behind, end[:, None], out=behind)
        behind *= moves
        np.maximum(entries, behind, out=entries)
        rows[at] = entries.view(whole).ravel()
