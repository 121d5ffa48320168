"""Where a plan database is: a file for one machine, or a PostgreSQL server for a team."""

from __future__ import annotations

import os
import shlex
from dataclasses import dataclass, field
from pathlib import Path

from sqlalchemy.engine import URL, make_url
from sqlalchemy.exc import ArgumentError

from arachne_opt.errors import InputError
from arachne_opt.settings import default_database

# Parameters of libpq that are nobody's business.
_SECRETS = ("password", "sslpassword", "passfile", "oauth_client_secret")

_HINT = 'a path such as "plans.db" or "postgresql://user@host/name"'


@dataclass(frozen=True, slots=True, kw_only=True)
class Location:
    """A database by its address.

    Args:
        url: for PostgreSQL, with credentials: never print it, print ``label``.
        path: the file for SQLite, None for PostgreSQL.
    """

    url: URL | None = field(repr=False)
    path: Path | None

    @property
    def label(self) -> str:
        """The address for people, without credentials."""
        if self.url is None:
            return str(self.path)
        public = self.url.set(drivername="postgresql", query={})
        return public.render_as_string(hide_password=True)

    @property
    def upgrade_command(self) -> str:
        """The command that brings this database to the current schema."""
        if self.path is None or str(self.path) == default_database():
            return "`arachne db upgrade`"
        return f"`arachne db upgrade --db {shlex.quote(str(self.path))}`"

    def hide_secrets(self, text: str) -> str:
        """A text from a driver, without the password."""
        if self.url is None:
            return text
        secrets = [self.url.password, *(self.url.query.get(name) for name in _SECRETS)]
        for secret in secrets:
            if isinstance(secret, str) and secret:
                text = text.replace(secret, "***")
        return text


def locate(address: str | os.PathLike[str]) -> Location:
    """The location of a URL or of a plain path.

    Raises:
        InputError: the address is empty, malformed or of another kind of database.
    """
    text = os.fspath(address)
    if not text.strip() or "\0" in text:
        raise InputError("the address of the database is empty or malformed", hint=_HINT)
    if "://" not in text:
        return _file(text)
    try:
        url = make_url(text)
    except (ArgumentError, ValueError):
        # The parser's own message may repeat the address, password included.
        raise InputError("cannot read the address of the database", hint=_HINT) from None
    kind, _, driver = url.drivername.partition("+")
    if kind == "sqlite" and not url.query:
        return _file(url.database or "")
    if kind in ("postgresql", "postgres") and driver in ("", "psycopg"):
        return Location(url=url.set(drivername="postgresql+psycopg"), path=None)
    what = f"no support for a database of kind {url.drivername!r}"
    if kind == "sqlite":
        what = "an SQLite address takes no options"
    raise InputError(what, hint=_HINT)


def _file(text: str) -> Location:
    if text in ("", ":memory:") or text.startswith("file:"):
        raise InputError("an SQLite database needs the path of a file", hint=_HINT)
    # Absolute, but symbolic links stay: whoever moves the target moves the database.
    return Location(url=None, path=Path(os.path.abspath(os.path.expanduser(text))))
