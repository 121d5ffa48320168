"""The same function on many items: here, in processes of this machine, or on a Dask cluster.

Answers come as they are ready, each with the position of its item. An item whose worker died is
given to another one; answers do not depend on who gave them.
"""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

from arachne_opt.errors import InputError, MissingDependencyError, RunError

if TYPE_CHECKING:
    from distributed import Client

Item = TypeVar("Item")
Answer = TypeVar("Answer")

# Items given to the processes ahead of their answers, and pools that may break one after another
# without any answer in between.
_AHEAD = 3
_BREAKS = 3
_CONNECT_S = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class Workers:
    """Who works.

    Args:
        jobs: processes of this machine; 1 works in this one.
        dask: address of a Dask scheduler instead, such as ``tcp://host:8786``.
    """

    jobs: int = 1
    dask: str | None = None

    def __post_init__(self) -> None:
        if self.jobs < 1:
            raise InputError(f"at least one process must work, not {self.jobs}", where="--jobs")
        if self.dask is not None and self.jobs > 1:
            raise InputError("--jobs and --dask exclude each other", hint="one of them")

    @property
    def alone(self) -> bool:
        """Whether this process does all work itself."""
        return self.jobs == 1 and self.dask is None


def run_many(
    work: Callable[[Item], Answer],
    items: Sequence[Item],
    workers: Workers,
    *,
    should_stop: Callable[[], bool] = lambda: False,
) -> Iterator[tuple[int, Answer]]:
    """Positions of items with their answers, as they come; ends early when asked to.

    Args:
        work: a function of a module, or a ``partial`` of one: it travels to other processes.
        items: what it is called with.
        workers: who calls it.
        should_stop: asked between answers; items that nobody has begun are then left out.

    Raises:
        MissingDependencyError: a Dask cluster was named but Dask is not installed.
        InputError: the scheduler cannot be reached.
        RunError: workers die again and again.
    """
    if workers.dask is not None:
        yield from _on_dask(work, items, workers.dask, should_stop)
    elif workers.jobs == 1 or len(items) < 2:
        for position, item in enumerate(items):
            if should_stop():
                return
            yield position, work(item)
    else:
        yield from _in_processes(work, items, workers.jobs, should_stop)


def _in_processes(
    work: Callable[[Item], Answer],
    items: Sequence[Item],
    jobs: int,
    should_stop: Callable[[], bool],
) -> Iterator[tuple[int, Answer]]:
    left = dict(enumerate(items))
    breaks = 0
    while left and not should_stop():
        before = len(left)
        try:
            for position, answer in _of_a_pool(work, left, jobs, should_stop):
                del left[position]
                yield position, answer
        except BrokenProcessPool as error:
            breaks = 1 if len(left) < before else breaks + 1
            if breaks == _BREAKS:
                what = f"worker processes died {breaks} times; {len(left)} items are left"
                raise RunError(what, hint="fewer --jobs, if memory is short") from error


def _of_a_pool(
    work: Callable[[Item], Answer],
    items: dict[int, Item],
    jobs: int,
    should_stop: Callable[[], bool],
) -> Iterator[tuple[int, Answer]]:
    # Not forked: the parent may have threads, which would be missing in the children.
    context = multiprocessing.get_context("spawn")
    pool = ProcessPoolExecutor(min(jobs, len(items)), mp_context=context, initializer=_one_core)
    waiting = iter(list(items.items()))
    running: dict[Future[Answer], int] = {}
    try:
        while True:
            while len(running) < _AHEAD * jobs and not should_stop():
                following = next(waiting, None)
                if following is None:
                    break
                running[pool.submit(work, following[1])] = following[0]
            if not running:
                return
            done, _ = wait(running, return_when=FIRST_COMPLETED)
            for future in done:
                yield running.pop(future), future.result()
    finally:
        pool.shutdown(wait=False, cancel_futures=True)


def _one_core() -> None:
    """Keeps libraries that read these when they are loaded from taking the other workers' cores."""
    for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
        os.environ[name] = "1"


def _on_dask(
    work: Callable[[Item], Answer],
    items: Sequence[Item],
    address: str,
    should_stop: Callable[[], bool],
) -> Iterator[tuple[int, Answer]]:
    client = _client(address)
    from distributed import KilledWorker, as_completed

    try:
        # Not pure: equal items are worked on as often as they stand there.
        futures = client.map(work, items, pure=False)
        position = {future.key: i for i, future in enumerate(futures)}
        for future in as_completed(futures):  # type: ignore[no-untyped-call]  # not typed
            yield position[future.key], future.result()
            if should_stop():
                client.cancel(futures)  # type: ignore[no-untyped-call]  # not typed
                return
    except KilledWorker as error:
        what = f"workers died again and again on one item: {error}"
        raise RunError(what, where=address, hint="workers with more memory") from error
    finally:
        with suppress(OSError, TimeoutError):
            client.close()  # type: ignore[no-untyped-call]  # not typed


def _client(address: str) -> Client:
    try:
        from distributed import Client
    except ImportError as error:
        hint = "pip install 'arachne-opt[cluster]'"
        raise MissingDependencyError("Dask is not installed", hint=hint) from error
    try:
        return Client(address, timeout=_CONNECT_S)  # type: ignore[no-untyped-call]  # not typed
    except (OSError, ValueError, TimeoutError) as error:
        what = f"no Dask scheduler answers: {error}"
        raise InputError(what, where=address, hint="an address such as tcp://host:8786") from error
