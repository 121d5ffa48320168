"""What can go wrong, in a user's words, each with the exit code of the command line."""

from __future__ import annotations

# Exit codes of commands that end without an error of ours.
LEFT_OUT = 2  # it is done, without clips whose files cannot be used
OUTSIDE_GAP = 4
INTERRUPTED = 130


class ArachneError(Exception):
    """Base of every error that a user can meet; says what, where and what to try.

    Args:
        what: what is wrong, with the numbers that matter.
        where: the file, line, field, clip or stage that it concerns.
        hint: what to try instead, without "try".
    """

    exit_code = 1

    def __init__(self, what: str, *, where: str | None = None, hint: str | None = None) -> None:
        super().__init__(what)
        self.what = what
        self.where = where
        self.hint = hint

    def __str__(self) -> str:
        """The whole message on one line."""
        head = f"{self.where}: {self.what}" if self.where else self.what
        return f"{head}; try {self.hint}" if self.hint else head


class InputError(ArachneError):
    """A file, a field or an argument cannot be used as it is."""

    exit_code = 2


class InfeasibleError(ArachneError):
    """No plan can exist; the message names the limit that binds."""

    exit_code = 3


class NoPlanError(ArachneError):
    """The time limit passed before any plan was found, and none is proven impossible."""

    exit_code = 5


class StoreError(ArachneError):
    """The plan database cannot be reached, written or understood."""

    exit_code = 6


class MissingDependencyError(ArachneError):
    """A solver or an optional package is not installed; the hint names the extra."""

    exit_code = 7


class RunError(ArachneError):
    """A replay or a measurement run failed."""

    exit_code = 8


class DisagreementError(ArachneError):
    """Checker, simulator and solver do not agree on a plan: a defect of ours, never stored."""

    exit_code = 1
