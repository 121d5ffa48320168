"""Plans the next iterations in a background process while the current one trains.

    with PlanAhead(problems, limits) as ahead:
        for number in range(len(problems)):
            ready = ahead.get(number)
            train(ready.plan)

``get`` never waits for the background process unless it is given a deadline: it takes the best
plan that is there, and makes one by list scheduling, in milliseconds, where none is.
"""

from __future__ import annotations

import enum
import logging
import threading
import time
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple

from arachne_opt.cascade.plan import CascadePlan, from_canonical, plan_from_json, to_canonical
from arachne_opt.cascade.problem import CascadeProblem
from arachne_opt.cascade.problem_json import problem_to_json
from arachne_opt.cascade.verify import verify
from arachne_opt.errors import InputError
from arachne_opt.planning.plan_process import PlanProcess
from arachne_opt.planning.service import DEFAULT_SOLVER
from arachne_opt.solvers.base import Limits
from arachne_opt.solvers.cascade.quick import quick_plan

# Problems whose plans are remembered besides those that are being planned.
_REMEMBERED = 256

# A problem that was being planned this many times when the process died is not asked for again.
_MOST_CRASHES = 2

_log = logging.getLogger(__name__)


class Source(enum.StrEnum):
    """Where a plan came from."""

    KEPT = "kept"  # the plan database had it
    PLANNED = "planned"  # the search for it had all its time
    PARTLY = "partly"  # the search for it was still going on, or was broken off
    LIST = "list"  # list-scheduled when it was asked for


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadyPlan:
    """A verified plan for one iteration.

    Args:
        number: of the iteration.
        repeated: an equal iteration had this plan before.
        waited_s: time that ``get`` took, all included.
        blocked_s: the part of it that was spent waiting for the background process.
    """

    number: int
    problem: CascadeProblem
    plan: CascadePlan
    objective_us: int
    bound_us: int
    source: Source
    repeated: bool
    waited_s: float
    blocked_s: float

    @property
    def gap(self) -> float | None:
        """(objective - bound) / bound, None without a bound."""
        if self.bound_us <= 0:
            return None
        return (self.objective_us - self.bound_us) / self.bound_us


class _Found(NamedTuple):
    """A plan in the numbering of the problem that was asked for."""

    plan: CascadePlan
    objective_us: int
    bound_us: int
    source: Source
    repeated: bool


@dataclass(slots=True)
class _Entry:
    """What is known about one problem; the plan is in its numbering."""

    problem: CascadeProblem
    plan: CascadePlan | None = None
    objective_us: int = 0
    bound_us: int = 0
    pending: bool = False  # the process has it and has not ended its search
    final: bool = False
    cached: bool = False
    used: bool = False
    crashes: int = 0

    def take(self, message: dict[str, Any]) -> None:
        """Takes a plan of the background process, if it is no worse."""
        self.pending = self.pending and not message["ended"]
        self.final = self.final or message["final"]
        self.cached = message["cached"]
        self.bound_us = max(self.bound_us, message["bound_us"])
        if self.plan is None or message["objective_us"] <= self.objective_us:
            self.plan = plan_from_json(message["plan"], self.problem)
            self.objective_us = message["objective_us"]

    def plan_for(self, problem: CascadeProblem) -> _Found | None:
        """The plan for a problem with the same fingerprint, None where there is none yet."""
        if self.plan is None:
            return None
        plan, repeated = self.plan, self.used
        self.used = True
        if self.problem is not problem:
            plan = from_canonical(to_canonical(plan, self.problem), problem)
        source = Source.PARTLY
        if self.final:
            source = Source.KEPT if self.cached else Source.PLANNED
        bound_us = min(self.bound_us, self.objective_us)
        return _Found(plan, self.objective_us, bound_us, source, repeated)


class PlanAhead:
    """Keeps a background process a few iterations ahead of the training.

    Use it as a context manager, or call ``close``. Where the process dies it is started again a
    few times, which is logged; without it ``get`` goes on with list schedules.

    Args:
        problems: of all iterations, in the order of training.
        limits: for each plan; with a time limit below the time of an iteration the process keeps
            ahead.
        ahead: the process has at most this many iterations besides the one in training.
        solver: method by name.
        database: plan database in which plans are looked up and kept; None does without.
    """

    def __init__(
        self,
        problems: Sequence[CascadeProblem],
        limits: Limits,
        *,
        ahead: int = 4,
        solver: str = DEFAULT_SOLVER,
        database: str | None = None,
    ) -> None:
        if ahead < 1:
            raise InputError(f"planning ahead needs at least 1 iteration, not {ahead}")
        self._problems = problems
        self._ahead = ahead
        self._keys: dict[int, str] = {}
        self._entries: OrderedDict[str, _Entry] = OrderedDict()
        self._changed = threading.Condition()
        self._alive = True
        start = {"op": "start", "limits": asdict(limits), "solver": solver, "database": database}
        self._process = PlanProcess(start, self._hear, self._ask_again, self._go_on_alone)
        self._ask_from(0)

    def __enter__(self) -> PlanAhead:
        """Itself; the process already runs."""
        return self

    def __exit__(self, *error: object) -> None:
        """Ends the process."""
        self.close()

    def close(self) -> None:
        """Ends the background process; ``get`` goes on with the plans that are there."""
        self._process.close()
        self._go_on_alone()

    @property
    def process_id(self) -> int | None:
        """Of the background process; None where there is none any more."""
        return self._process.process_id

    def get(self, number: int, *, deadline_s: float = 0.0) -> ReadyPlan:
        """The best plan for an iteration; the ones after it are asked for.

        Args:
            number: index of the iteration.
            deadline_s: wait at most this long for the end of its search; 0 never waits.

        Raises:
            InputError: there is no such iteration.
            InfeasibleError: no plan exists.
        """
        began_s = time.monotonic()
        if not 0 <= number < len(self._problems):
            raise InputError(f"no iteration {number}; there are {len(self._problems)}")
        self._ask_from(number)
        problem, key = self._problems[number], self._keys[number]
        blocked_s = self._wait(key, deadline_s)
        with self._changed:
            found = self._entries[key].plan_for(problem)
        if found is None:
            plan, bound_us = quick_plan(problem)
            found = _Found(plan, plan.makespan_us, bound_us, Source.LIST, repeated=False)
        verify(problem, found.plan, found.objective_us)
        self._drop(number)
        return ReadyPlan(
            number=number,
            problem=problem,
            waited_s=time.monotonic() - began_s,
            blocked_s=blocked_s,
            **found._asdict(),
        )

    def _window(self, number: int) -> range:
        """The iterations that the process may have when a number is asked for."""
        return range(number, min(number + self._ahead + 1, len(self._problems)))

    def _ask_from(self, number: int) -> None:
        """Asks for the plans of a window that are neither there nor asked for."""
        window = self._window(number)
        self._keys = {n: self._keys.get(n) or self._problems[n].fingerprint() for n in window}
        with self._changed:
            for n in window:
                entry = self._entries.setdefault(self._keys[n], _Entry(problem=self._problems[n]))
                self._entries.move_to_end(self._keys[n])
                if self._alive and not (entry.pending or entry.final):
                    self._ask(self._keys[n], entry)
            while len(self._entries) > _REMEMBERED + len(window):
                self._entries.popitem(last=False)

    def _ask(self, key: str, entry: _Entry) -> None:
        if entry.crashes < _MOST_CRASHES:
            entry.pending = True
            problem = problem_to_json(entry.problem)
            self._process.send({"op": "plan", "key": key, "problem": problem})

    def _wait(self, key: str, deadline_s: float) -> float:
        """Waits for the end of a search, at most until the deadline; returns the time it took."""
        if deadline_s <= 0:
            return 0.0
        began_s = time.monotonic()
        with self._changed:
            self._changed.wait_for(
                lambda: not (self._alive and self._entries[key].pending), timeout=deadline_s
            )
        return time.monotonic() - began_s

    def _drop(self, number: int) -> None:
        """Breaks off the search for an iteration that now trains, unless it comes again soon."""
        key = self._keys[number]
        with self._changed:
            soon = any(self._keys[n] == key for n in self._window(number) if n != number)
            entry = self._entries[key]
            if entry.pending and not soon:
                entry.pending = False
                self._process.send({"op": "drop", "key": key})

    def _hear(self, message: dict[str, Any]) -> None:
        """Takes a message of the process."""
        if message["op"] == "note":
            _log.warning("%s", message["text"])
        if message["op"] not in ("plan", "failed"):
            return
        with self._changed:
            entry = self._entries.get(message["key"])
            if entry is None:
                return
            if message["op"] == "plan":
                entry.take(message)
            else:
                # Whoever trains this iteration learns the reason from the list schedule.
                _log.info("no plan ahead for %s: %s", entry.problem.name, message["text"])
                entry.pending, entry.final = False, True
            self._changed.notify_all()

    def _ask_again(self) -> None:
        """Gives a new process what the dead one had; the first of it may be what killed it."""
        with self._changed:
            waiting = [(key, entry) for key, entry in self._entries.items() if entry.pending]
            for place, (key, entry) in enumerate(waiting):
                entry.pending = False
                entry.crashes += place == 0
                self._ask(key, entry)
            self._changed.notify_all()

    def _go_on_alone(self) -> None:
        with self._changed:
            self._alive = False
            for entry in self._entries.values():
                entry.pending = False
            self._changed.notify_all()
