"""Files on network disks, where SQLite's locks and shared memory cannot be relied on."""

from __future__ import annotations

import os
import re
from pathlib import Path

_MOUNTS = Path("/proc/self/mountinfo")
_NETWORK = frozenset(
    [
        *("nfs", "nfs4", "cifs", "smb3", "smbfs", "afs"),
        *("ceph", "glusterfs", "lustre", "gpfs", "beegfs"),
        *("fuse.sshfs", "fuse.glusterfs", "fuse.s3fs", "fuse.rclone", "fuse.ceph"),
    ]
)
_ESCAPE = re.compile(r"\\([0-7]{3})")


def network_disk(path: Path) -> str | None:
    """The kind of network disk that a file lies on, None for a local one or where it is unknown.

    https://www.sqlite.org/wal.html: write-ahead mode does not work over a network.
    """
    try:
        lines = _MOUNTS.read_text(encoding="utf-8", errors="surrogateescape").splitlines()
    except OSError:
        return None  # not Linux
    real = os.path.realpath(path)
    best, found = -1, None
    for line in lines:
        place, kind = _mount(line)
        inside = real == place or real.startswith(place.rstrip("/") + "/")
        # Of two mounts at one place the later hides the earlier.
        if inside and len(place) >= best:
            best, found = len(place), kind
    return found if found in _NETWORK else None


def _mount(line: str) -> tuple[str, str]:
    """Mount point and kind of a line of mountinfo, see proc(5); unreadable lines match nothing."""
    head, _, tail = line.partition(" - ")
    fields = head.split(" ")
    if len(fields) < 5 or not tail:
        return "\0", ""
    place = _ESCAPE.sub(lambda m: chr(int(m.group(1), 8)), fields[4])
    return place, tail.split(" ")[0]
