"""What drivers report, in a user's words."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from sqlalchemy.exc import DBAPIError, IntegrityError, StatementError

from arachne_opt.db.location import Location
from arachne_opt.errors import ArachneError, InputError, StoreError

_UNFIT = "a value cannot be stored"
_OTHER_PLACE = "another database with --db or ARACHNE_DB"

# Primary result codes of SQLite, https://www.sqlite.org/rescode.html: what happened, what to try.
_SQLITE = {
    "SQLITE_FULL": ("the disk is full; nothing of this write is stored", "making room"),
    "SQLITE_IOERR": ("the disk refused a read or a write", "checking space, quota and disk"),
    "SQLITE_READONLY": ("the database is read-only", _OTHER_PLACE),
    "SQLITE_PERM": ("no permission for the database", _OTHER_PLACE),
    "SQLITE_CANTOPEN": ("the database cannot be opened", _OTHER_PLACE),
    "SQLITE_NOTADB": ("this file is no database", _OTHER_PLACE),
    "SQLITE_CORRUPT": ("the database is damaged", "restoring a backup"),
    "SQLITE_BUSY": ("another process keeps the database locked", "again when it is done"),
    "SQLITE_LOCKED": ("another process keeps the database locked", "again when it is done"),
}

# https://www.postgresql.org/docs/current/errcodes-appendix.html
_POSTGRES = {
    "53100": ("the server's disk is full; nothing of this write is stored", "making room"),
    "53300": ("the server has no free connection", "again later"),
    "25006": ("the database is read-only", _OTHER_PLACE),
    "25P03": ("the server ended a transaction that was silent for long", "again"),
    "42501": ("this user may not do that", "asking the owner of the database for the right"),
    "42P01": ("a table is missing", "`arachne db check`"),
    "55P03": ("another process keeps the database locked", "again when it is done"),
    "57014": ("the server cancelled the statement", "again later"),
}

# A transaction that met another one, or drew an id that is taken; doing it again from the start
# is safe and succeeds.
_RETRY_SQLITE = ("SQLITE_BUSY_SNAPSHOT", "SQLITE_BUSY_RECOVERY", "SQLITE_CONSTRAINT_PRIMARYKEY")
_RETRY_POSTGRES = ("40001", "40P01", "25P03")


def should_retry(error: DBAPIError) -> bool:
    """Whether doing the whole transaction again may succeed."""
    if getattr(error.orig, "sqlite_errorname", None) in _RETRY_SQLITE:
        return True
    if getattr(error.orig, "sqlstate", None) == "23505":
        constraint = getattr(getattr(error.orig, "diag", None), "constraint_name", None)
        return str(constraint).startswith("pk_")
    return getattr(error.orig, "sqlstate", None) in _RETRY_POSTGRES


@contextmanager
def store_errors(location: Location) -> Iterator[None]:
    """Turns what a driver raises inside the block into our errors.

    Raises:
        StoreError: the database failed.
        InputError: a value cannot be stored, such as NaN in a payload.
    """
    try:
        yield
    except DBAPIError as error:
        raise translate(error, location) from error
    except StatementError as error:
        what = str(error.orig) if isinstance(error.orig, InputError) else f"{_UNFIT}: {error.orig}"
        raise InputError(what, where=location.label) from error
    except (OverflowError, UnicodeEncodeError) as error:
        raise InputError(f"{_UNFIT}: {error}", where=location.label) from error


def translate(error: DBAPIError, location: Location) -> ArachneError:
    """The error of a driver as one of ours."""
    detail = location.hide_secrets(" ".join(str(error.orig).split()))
    state = str(getattr(error.orig, "sqlstate", None))
    if isinstance(error, IntegrityError) or state[:2] == "22":
        return InputError(f"{_UNFIT}: {detail}", where=location.label)
    what, hint = _explain(error)
    return StoreError(f"{what} ({detail})", where=location.label, hint=hint)


def _explain(error: DBAPIError) -> tuple[str, str | None]:
    name = getattr(error.orig, "sqlite_errorname", None)
    if name is not None:
        # Extended codes only add words: SQLITE_IOERR_WRITE, SQLITE_READONLY_DBMOVED.
        primary = "_".join(str(name).split("_")[:2])
        return _SQLITE.get(primary, ("the database refused", None))
    state = getattr(error.orig, "sqlstate", None)
    if state in _POSTGRES:
        return _POSTGRES[state]
    if state is None or state[:2] in ("08", "28", "3D", "57"):
        return "the database server cannot be reached", "checking host, port, name and password"
    return "the database refused", None
