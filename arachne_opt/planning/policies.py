"""The learned policy that a plan's search begins with: the newest in the database, else ours."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from arachne_opt.errors import InputError

if TYPE_CHECKING:
    from arachne_opt.db.store import PlanStore
    from arachne_opt.solvers.seeds.policy_file import PolicyFile

LOG = logging.getLogger(__name__)


def policy_in_use(store: PlanStore | None, name: str, wanted: bool = True) -> PolicyFile | None:
    """The newest usable policy of the database, else the one in the package, else None.

    One that is damaged or older than this release is named in a warning and passed over.
    """
    if not wanted:
        return None
    from arachne_opt.solvers.seeds.policy_file import unpack_policy
    from arachne_opt.solvers.seeds.shipped import SHIPPED, resolved

    for record in store.policies(name) if store is not None else ():
        try:
            return unpack_policy(record.artifact, name, where=f"policy {record.version}")
        except InputError as error:
            LOG.warning("the learned policy is passed over: %s", error)
    return resolved(SHIPPED, name)
