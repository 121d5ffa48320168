"""The background process of ``PlanAhead``: reads problems on stdin, writes plans on stdout.

One JSON object a line. In: ``start`` (limits, solver, database), ``plan`` (key, problem),
``drop`` (key), ``stop``. Out: ``ready``, ``plan`` (key, plan, figures; ``ended`` when the search
is over, ``final`` when it had all its time), ``failed`` (key, text), ``note`` (text).

The process ends when it is told to, when stdin ends, or when its parent is gone. It loads neither
torch nor the trainer's main module.
"""

from __future__ import annotations

import json
import logging
import os
import queue
import signal
import sys
import threading
from collections import deque
from contextlib import ExitStack
from typing import IO, TYPE_CHECKING, Any

from arachne_opt.cascade.problem import CascadeProblem
from arachne_opt.cascade.problem_json import problem_from_json
from arachne_opt.errors import ArachneError, StoreError

if TYPE_CHECKING:
    from arachne_opt.planning.service import Answer, PlanService
    from arachne_opt.solvers.base import Limits, Progress
    from arachne_opt.solvers.cascade.warm_start import Planned

# Planning must not slow the training down that it serves.
_NICENESS = 5
_RECENT = 64
_POLL_S = 1.0

Message = dict[str, Any]


class Inbox:
    """What the parent asks, read by a thread so that a search can be told to stop."""

    def __init__(self, lines: IO[str]) -> None:
        self._lines = lines
        self._jobs: queue.SimpleQueue[Message | None] = queue.SimpleQueue()
        self._dropped: set[str] = set()
        self._parent = os.getppid()
        self._over = threading.Event()

    def start(self) -> None:
        """Begins to read."""
        threading.Thread(target=self._read, name="arachne-inbox", daemon=True).start()

    def next(self) -> Message | None:
        """The next message that is work, None at the end."""
        while not self.over():
            try:
                job = self._jobs.get(timeout=_POLL_S)
            except queue.Empty:
                continue
            if job is not None and job.get("key") not in self._dropped:
                return job
        return None

    def wanted(self, key: str) -> bool:
        """Whether somebody still waits for a plan."""
        return key not in self._dropped and not self.over()

    def over(self) -> bool:
        """Whether this process has to end."""
        return self._over.is_set() or os.getppid() != self._parent

    def _read(self) -> None:
        for line in self._lines:
            message = json.loads(line)
            if message["op"] == "stop":
                break
            if message["op"] == "drop":
                self._dropped.add(message["key"])
                continue
            # Asked for again after it was dropped.
            self._dropped.discard(message.get("key", ""))
            self._jobs.put(message)
        self._over.set()
        self._jobs.put(None)


class Planner:
    """Plans what the inbox brings and tells of every improvement."""

    def __init__(self, inbox: Inbox, out: IO[str]) -> None:
        self._inbox = inbox
        self._out = out
        self._recent: deque[Planned] = deque(maxlen=_RECENT)

    def run(self) -> None:
        """Works until the end."""
        start = self._inbox.next()
        if start is None:
            return
        from arachne_opt.solvers.base import Limits

        limits = Limits(**start["limits"])
        with ExitStack() as stack:
            service = self._service(start["database"], stack)
            self._say({"op": "ready"})
            while (job := self._inbox.next()) is not None:
                self._plan(job, service, limits, start["solver"])

    def _service(self, database: str | None, stack: ExitStack) -> PlanService:
        from arachne_opt.planning.service import PlanService

        if database is None:
            return PlanService(None)
        from arachne_opt.db.store import PlanStore

        try:
            return PlanService(stack.enter_context(PlanStore.open(database)))
        except StoreError as error:
            self._say({"op": "note", "text": f"planning ahead without a database: {error}"})
            return PlanService(None)

    def _plan(self, job: Message, service: PlanService, limits: Limits, solver: str) -> None:
        from arachne_opt.solvers.cascade.warm_start import Planned, nearest, warm_start

        key = str(job["key"])
        try:
            problem = problem_from_json(job["problem"])
            near = nearest(problem, self._recent)
            answer = service.plan_cascade(
                problem,
                limits,
                solver=solver,
                on_progress=lambda progress: self._tell(key, problem, progress),
                should_stop=lambda: not self._inbox.wanted(key),
                start_plan=warm_start(problem, near) if near else None,
            )
        except ArachneError as error:
            self._say({"op": "failed", "key": key, "text": str(error)})
            return
        self._recent.append(Planned(problem, answer.plan))
        self._say(_final(key, answer))

    def _tell(self, key: str, problem: CascadeProblem, progress: Progress) -> None:
        if progress.plan is None or progress.objective_us is None:
            return
        message: Message = {"op": "plan", "key": key, "cached": False}
        message |= {"ended": False, "final": False}
        message["plan"] = progress.plan.to_json(problem)
        message["objective_us"] = progress.objective_us
        message["bound_us"] = min(progress.bound_us, progress.objective_us)
        self._say(message)

    def _say(self, message: Message) -> None:
        try:
            self._out.write(json.dumps(message) + "\n")
            self._out.flush()
        except BrokenPipeError:
            # The parent is gone; so is every reason to go on.
            os._exit(0)


def _final(key: str, answer: Answer) -> Message:
    return {
        "op": "plan",
        "key": key,
        "ended": True,
        "final": not answer.interrupted,
        "cached": answer.cached,
        "plan": answer.plan.to_json(answer.problem),
        "objective_us": answer.record.objective_us,
        "bound_us": answer.record.bound_us,
    }


def main() -> None:
    """Serves until stdin ends."""
    # Ctrl-C is the parent's business: it closes stdin.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    os.nice(_NICENESS)
    logging.basicConfig(stream=sys.stderr, level=logging.WARNING)
    # Whatever a library prints must not get between the messages.
    out = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    inbox = Inbox(sys.stdin)
    inbox.start()
    Planner(inbox, out).run()
    out.flush()
    # The inbox's thread may sit in a read that never returns.
    os._exit(0)


if __name__ == "__main__":
    main()
