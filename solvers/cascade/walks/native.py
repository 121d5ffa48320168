"""Walks among list schedules in C, where the library was built; see the folder ``c``."""

from __future__ import annotations

import ctypes
import logging
from array import array
from collections.abc import Iterator, Sequence
from functools import lru_cache
from importlib.machinery import EXTENSION_SUFFIXES
from itertools import chain
from pathlib import Path
from weakref import finalize

from arachne_opt.cluster import Link
from arachne_opt.solvers.cascade.digest import Digest, FlatTask
from arachne_opt.solvers.cascade.walks.choice import Choice, ModeTable, blank
from arachne_opt.solvers.cascade.walks.place import Place
from arachne_opt.units import US_PER_S, scale_up

_VERSION = 3  # of the library
_LONGEST = 1 << 50  # microseconds of a schedule: as floats they are exact
_LARGEST = 1 << 62  # numbers stay below it, so that sums of two fit into 64 bits
_MOST = 64  # devices of a node, and NIC groups: bits of a mask
_STRIDE = 20_000  # tasks placed at a time


class _Choice(ctypes.Structure):
    """A choice as the library has it."""

    _fields_ = tuple(
        (name, ctypes.c_void_p)
        for name in ("picks", "sites", "held", "priority", "sizes", "nodes", "masks")
    )


_log = logging.getLogger(__name__)
_pointer = ctypes.c_void_p


@lru_cache(1)
def library() -> ctypes.CDLL | None:
    """The library, None where this installation has none that can be used."""
    for suffix in EXTENSION_SUFFIXES:
        path = Path(__file__).with_name(f"_walks{suffix}")
        if path.exists():
            return _loaded(path)
    _log.info("list schedules are made in Python: there was no C compiler at the installation")
    return None


def _loaded(path: Path) -> ctypes.CDLL | None:
    try:
        found = ctypes.CDLL(str(path))
        found.walks_version.restype = ctypes.c_int64
        version = found.walks_version()
    except (OSError, AttributeError) as err:
        _log.warning("%s cannot be used (%s); list schedules are made in Python", path, err)
        return None
    if version != _VERSION:
        what = "%s is of another version (%s, not %s): install again; until then in Python"
        _log.warning(what, path, version, _VERSION)
        return None
    int64, int32 = ctypes.c_int64, ctypes.c_int32
    for name, result, given in (
        ("walks_new_problem", _pointer, (_pointer, int64)),
        ("walks_free_problem", None, (_pointer,)),
        ("walker_new", _pointer, (_pointer, _pointer, int32, _pointer, ctypes.c_uint64)),
        ("walker_free", None, (_pointer,)),
        ("walker_begin", int64, (_pointer, _pointer, int32, ctypes.POINTER(_Choice), int64)),
        ("walker_walk", None, (_pointer, int64, ctypes.c_double)),
        ("walker_best", None, (_pointer, _pointer, _pointer, ctypes.POINTER(_Choice))),
        ("walker_now", None, (_pointer, _pointer, _pointer, ctypes.POINTER(_Choice))),
        ("walker_task", int32, (_pointer,)),
    ):
        function = getattr(found, name)
        function.restype, function.argtypes = result, given
    return found


class NativeProblem:
    """A problem in the memory of the library."""

    def __init__(self, library: ctypes.CDLL, digest: Digest, table: ModeTable) -> None:
        self.library = library
        self.tasks = len(digest.tasks)
        self.longest_group = _longest_group(digest, table)
        self._rows = table.rows
        numbers = array("q", _packed(digest, table))
        self.at = library.walks_new_problem(_address(numbers), len(numbers))
        if not self.at:
            raise MemoryError
        finalize(self, library.walks_free_problem, self.at)

    def padded(self, odds: Sequence[Sequence[float]]) -> array[float]:
        """Odds of the drawn modes, with zeros for the others."""
        rows = zip(odds, self._rows, strict=True)
        return array("d", chain.from_iterable([*o, *[0.0] * (len(r) - len(o))] for o, r in rows))


def native_problem(digest: Digest, table: ModeTable) -> NativeProblem | None:
    """A problem for walkers in C; None where there is no library, or the problem is none for it."""
    found = library()
    return NativeProblem(found, digest, table) if found is not None and _fits(digest) else None


class NativeWalker:
    """The walker in C; see ``Walker``."""

    placed_per_unit = 4_000_000

    def __init__(
        self,
        problem: NativeProblem,
        seed: int,
        odds: Sequence[Sequence[float]] | None,
        nodes: Sequence[int],
    ) -> None:
        self._problem, self._library = problem, problem.library
        self._all = array("i", range(problem.tasks))
        self.stride = 1
        weights = None if odds is None else problem.padded(odds)
        rows = array("i", nodes)
        self._at = self._library.walker_new(
            problem.at,
            _address(rows),
            len(rows),
            None if weights is None else _address(weights),
            seed,
        )
        if not self._at:
            raise MemoryError
        finalize(self, self._library.walker_free, self._at)

    @property
    def best(self) -> Place:
        """See ``Walker``."""
        return self._read(self._library.walker_best)

    @property
    def now(self) -> Place:
        """See ``Walker``."""
        return self._read(self._library.walker_now)

    def begin(self, choice: Choice, most_us: int, tasks: Sequence[int] | None = None) -> int | None:
        """See ``Walker``."""
        rows = self._all if tasks is None else array("i", tasks)
        packed = _Packed(choice, self._problem.longest_group)
        self.stride = max(1, _STRIDE // len(rows))
        makespan_us: int = self._library.walker_begin(
            self._at,
            _address(rows),
            len(rows),
            packed.at,
            most_us,
        )
        return None if makespan_us < 0 else makespan_us

    def walk(self, steps: int, heat: float) -> None:
        """See ``Walker``."""
        self._library.walker_walk(self._at, steps, heat)

    def task(self) -> int:
        """See ``Walker``."""
        found: int = self._library.walker_task(self._at)
        return found

    def _read(self, function: ctypes._NamedFuncPointer) -> Place:
        tasks = self._problem.tasks
        key, order = array("q", [0, 0, 0]), array("i", bytes(4 * tasks))
        packed = _Packed(blank(tasks), self._problem.longest_group)
        function(self._at, _address(key), _address(order), packed.at)
        return Place(packed.choice(), order[: key[2]], key[0], key[1])


class _Packed:
    """A choice with its groups in arrays, to be read or written by the library."""

    def __init__(self, choice: Choice, longest: int) -> None:
        self._choice, self._longest, tasks = choice, longest, len(choice.picks)
        self._held, self._sizes = (array("i", bytes(4 * tasks)) for _ in range(2))
        self._nodes, self._masks = (
            array(code, bytes(size * tasks * longest)) for code, size in (("i", 4), ("Q", 8))
        )
        for i, group in enumerate(choice.groups):
            if not 0 < len(group) <= longest:  # no mode has a longer one
                continue
            self._held[i], self._sizes[i] = 1, len(group)
            for at, (node, mask) in enumerate(group, start=i * longest):
                self._nodes[at], self._masks[at] = node, mask
        arrays = (choice.picks, choice.sites, self._held, choice.priority)
        self._packed = _Choice(*map(_address, (*arrays, self._sizes, self._nodes, self._masks)))
        self.at = ctypes.byref(self._packed)

    def choice(self) -> Choice:
        """What the library has written; to be asked once."""
        choice, longest = self._choice, self._longest
        for i, held in enumerate(self._held):
            if held:
                rows = slice(i * longest, i * longest + self._sizes[i])
                pairs = zip(self._nodes[rows], self._masks[rows], strict=True)
                choice.groups[i] = tuple(pairs)
        return choice


def _address(values: array[int] | array[float]) -> int:
    return values.buffer_info()[0]


def _fits(digest: Digest) -> bool:
    if max(max(node.size for node in digest.nodes), _nic_count(digest)) > _MOST:
        return False
    # One task after the other is the longest schedule; sums are over tasks or devices.
    ppm = max(digest.overlap_ppm(0, 1), digest.mildest_ppm)
    longest_us = sum(
        scale_up(max(m.duration_us for m in task.modes), ppm) + _longest_lag_us(digest, task)
        for task in digest.tasks
    )
    largest = max(task.input_bytes for task in digest.tasks)
    largest = max(largest, *map(max, map(_link, digest.links)))
    largest = max(largest, longest_us * max(len(digest.tasks), digest.device_count))
    return longest_us < _LONGEST and largest < _LARGEST


def _longest_lag_us(digest: Digest, task: FlatTask) -> int:
    """No hand-off to a task takes longer."""
    slowest = min(link.bandwidth_bytes_per_s for link in digest.links)
    latency_us = max(link.latency_us for link in digest.links)
    return latency_us - (-task.input_bytes * US_PER_S // slowest) if task.input_bytes else 0


def _nic_count(digest: Digest) -> int:
    return 1 + max(digest.nic_of)


def _longest_group(digest: Digest, table: ModeTable) -> int:
    """Nodes of a group at most."""
    return min(len(digest.nodes), max(m.degree for row in table.rows for m in row))


def _packed(digest: Digest, table: ModeTable) -> Iterator[int]:
    """All numbers of a problem in the order in which ``walks_new_problem`` reads them."""
    nodes, tasks = digest.nodes, digest.tasks
    zones = sorted({node.zone for node in digest.problem.cluster.nodes})
    numbers = sum(len(t.predecessors) + len(t.successors) for t in tasks) + digest.device_count
    yield from (len(tasks), sum(map(len, table.rows)), len(nodes), len(digest.cascades))
    yield from (len(digest.kind_names), _nic_count(digest), len(zones))
    yield from (max(n.size for n in nodes), _longest_group(digest, table), digest.has_handoff)
    yield from (numbers, *_link(digest.problem.cluster.inter_link))
    for row in digest.cascades:
        yield from (row[0], len(row))
    for task, modes, drawn in zip(tasks, table.rows, table.drawn, strict=True):
        yield from (task.cascade, task.input_bytes, len(modes), drawn)
        for m in modes:
            quickest_us = scale_up(m.duration_us, digest.mildest_ppm)
            yield from (m.degree, m.kind, m.duration_us, m.least_us, quickest_us)
        for others in (task.predecessors, task.successors):
            yield from (len(others), *others)
    yield from _packed_nodes(digest, zones)


def _packed_nodes(digest: Digest, zones: list[str]) -> Iterator[int]:
    """Nodes, penalties and links between zones."""
    cluster, nics = digest.problem.cluster, _nic_count(digest)
    for flat, node in zip(digest.nodes, cluster.nodes, strict=True):
        yield from (flat.kind, flat.size, zones.index(node.zone), *_link(node.intra_link))
        yield from (digest.nic_of[d] for d in flat.devices)
    for shared in range(nics + 1):
        for most in range(nics + 1):
            yield digest.overlap_ppm(min(shared, most), max(1, most))
    for a in zones:
        for b in zones:
            yield from _link(cluster.link_between(a, b))


def _link(link: Link) -> tuple[int, int]:
    return link.bandwidth_bytes_per_s, link.latency_us
