"""The policies that come with the package; one that cannot be used is named and done without."""

from __future__ import annotations

import enum
import logging
from functools import cache
from pathlib import Path

from arachne_opt.errors import InputError
from arachne_opt.solvers.seeds.policy_file import PolicyFile, read_policy

LOG = logging.getLogger(__name__)
FOLDER = Path(__file__).parent / "data"


class Shipped(enum.Enum):
    """The policy in the package, read when it is needed."""

    POLICY = "shipped"


SHIPPED = Shipped.POLICY


def shipped_path(policy: str) -> Path:
    """The file of a policy in the package."""
    return FOLDER / f"{policy}.safetensors"


def resolved(policy: PolicyFile | Shipped | None, name: str) -> PolicyFile | None:
    """The policy itself."""
    return policy_or_none(shipped_path(name), name) if isinstance(policy, Shipped) else policy


@cache
def policy_or_none(path: Path, name: str) -> PolicyFile | None:
    """The policy of a file; without a usable one the warning says why, and searches begin cold."""
    try:
        return read_policy(path, name)
    except InputError as error:
        LOG.warning("searches begin without the learned policy for %s: %s", name, error)
        return None
