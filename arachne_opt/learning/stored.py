"""Cases out of the plan database: what was solved or run is what policies are refreshed with."""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from arachne_opt.learning.generation import Told
from arachne_opt.learning.jobs import Workers, run_many
from arachne_opt.learning.lessons import CascadeCase, Case, case_of_plan
from arachne_opt.solvers.seeds.policy_file import CASCADES

if TYPE_CHECKING:
    from arachne_opt.db.store import PlanStore
    from arachne_opt.records import Json, PlanSummary

LOG = logging.getLogger(__name__)

_PAGE = 500


def stored_cases(
    store: PlanStore,
    policy: str,
    workers: Workers,
    *,
    told: Told = lambda done, of: None,
    should_stop: Callable[[], bool] = lambda: False,
) -> list[Case]:
    """The best plan of every stored problem as a case, in the order of their fingerprints.

    Pinned cascades and those that share memory over time are left out: the policy does not know
    of either.
    """
    summaries = sorted(_best_plans(store, policy), key=lambda s: s.fingerprint)
    stored: list[tuple[Json, Json]] = []
    for summary in summaries:
        record = store.get_plan(summary.id)
        stored.append((record.problem, record.plan))
    found: dict[int, Case] = {}
    told(0, len(stored))
    answers = run_many(partial(case_of_plan, policy), stored, workers, should_stop=should_stop)
    for position, case in answers:
        found[position] = case
        told(len(found), len(stored))
    return [found[i] for i in sorted(found) if _usable(found[i])]


def _usable(case: Case) -> bool:
    return not isinstance(case, CascadeCase) or not case.problem.pinned


def _best_plans(store: PlanStore, policy: str) -> list[PlanSummary]:
    """The best sound plan of each problem, page by page."""
    kind = "cascade" if policy == CASCADES else "pipeline"
    found: list[PlanSummary] = []
    while True:
        page = store.list_plans(kind=kind, best=True, limit=_PAGE, offset=len(found))
        found += page
        if len(page) < _PAGE:
            return [s for s in found if s.quarantine is None]
