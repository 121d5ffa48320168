"""What both planning services do with a store: find a sound plan, and solve equal requests once."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Generic, NamedTuple, TypeVar

from arachne_opt.errors import DisagreementError, InputError
from arachne_opt.records import PlanRecord
from arachne_opt.solvers.base import Limits, StopCheck

if TYPE_CHECKING:
    from arachne_opt.db.store import PlanStore

Plan = TypeVar("Plan")

# Told again and again how many seconds another process has been waited for.
WaitCallback = Callable[[float], None]

LOG = logging.getLogger(__name__)


class Kept(NamedTuple, Generic[Plan]):
    """A stored plan that can be used; ``lookup_s`` is the time that the database took."""

    record: PlanRecord
    plan: Plan
    lookup_s: float


def sound_plan(
    store: PlanStore | None,
    fingerprint: str,
    read: Callable[[PlanRecord], Plan],
    wanted: Callable[[PlanRecord], bool] | None = None,
) -> Kept[Plan] | None:
    """The best stored plan of a problem if it is wanted, with what ``read`` makes of it.

    A plan that cannot be read or is not what it claims to be goes into quarantine, and the next
    one is tried.
    """
    if store is None:
        return None
    begin = time.perf_counter()
    while (record := store.find_plan(fingerprint)) is not None:
        lookup_s = time.perf_counter() - begin
        if wanted is not None and not wanted(record):
            return None
        try:
            return Kept(record, read(record), lookup_s)
        except (InputError, DisagreementError) as error:
            if store.database.read_only:
                LOG.warning("plan %s is not used: %s", record.id, error)
                return None
            store.quarantine_plan(record.id, str(error))
    return None


def one_at_a_time(
    store: PlanStore | None,
    fingerprint: str,
    limits: Limits,
    on_wait: WaitCallback | None,
    should_stop: StopCheck | None,
) -> AbstractContextManager[object]:
    """Keeps equal requests out while the block runs; without a store there are none."""
    if store is None:
        return nullcontext()
    # Late: a hit needs no locks.
    from arachne_opt.db.locks import single_flight

    patience_s = 10 * limits.time_limit_s + 60
    return single_flight(store, fingerprint, patience_s, on_wait=on_wait, should_stop=should_stop)
