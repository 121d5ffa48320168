"""Where things are kept, from flags and the environment."""

from __future__ import annotations

import os
from pathlib import Path

DATABASE_VARIABLE = "ARACHNE_DB"


def data_folder() -> Path:
    """Folder for this user's data, after the XDG base directory specification."""
    base = os.environ.get("XDG_DATA_HOME", "")
    # The specification tells programs to ignore a relative path.
    folder = Path(base) if os.path.isabs(base) else Path.home() / ".local" / "share"
    return folder / "arachne"


def default_database() -> str:
    """The file that is used where no other database is named."""
    return str(data_folder() / "plans.db")


def database_url(flag: str | None = None) -> str:
    """URL or path of the plan database: the flag, else ARACHNE_DB, else a file of this user."""
    return flag or os.environ.get(DATABASE_VARIABLE) or default_database()
