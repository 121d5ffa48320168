"""SQLite files on network disks are refused for writing."""

from __future__ import annotations

from pathlib import Path

import pytest

from arachne_opt.db import network_disks
from arachne_opt.db.network_disks import network_disk
from arachne_opt.db.store import PlanStore
from arachne_opt.errors import StoreError


@pytest.fixture
def mounts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A table of mounts with a share in a folder with a space."""
    share = tmp_path / "team share"
    (share / "local").mkdir(parents=True)
    table = tmp_path / "mountinfo"
    place = str(share).replace(" ", "\\040")
    table.write_text(
        "22 1 0:21 / / rw,relatime shared:1 - ext4 /dev/sda1 rw\n"
        f"36 22 0:32 / {place} rw shared:2 master:1 - nfs4 server:/export rw\n"
        f"37 36 8:1 / {place}/local rw - xfs /dev/sdb1 rw\n"
        "nonsense\n"
    )
    monkeypatch.setattr(network_disks, "_MOUNTS", table)
    return share


def test_the_innermost_mount_decides(mounts: Path, tmp_path: Path) -> None:
    assert network_disk(mounts / "plans.db") == "nfs4"
    assert network_disk(mounts / "deep" / "plans.db") == "nfs4"
    assert network_disk(mounts / "local" / "plans.db") is None
    assert network_disk(tmp_path / "plans.db") is None
    assert network_disk(tmp_path / "team share but longer" / "plans.db") is None
    (tmp_path / "link").symlink_to(mounts)
    assert network_disk(tmp_path / "link" / "plans.db") == "nfs4"


def test_a_database_on_a_share_is_refused_with_what_to_do(mounts: Path) -> None:
    with pytest.raises(StoreError, match=r"network disk \(nfs4\)") as caught:
        PlanStore.open(mounts / "plans.db")
    assert "PostgreSQL" in str(caught.value.hint)
    assert not (mounts / "plans.db").exists()
    with PlanStore.open(mounts / "local" / "plans.db"):
        pass


def test_a_database_on_a_share_can_be_read(mounts: Path, sqlite_file: Path) -> None:
    copied = mounts / "plans.db"
    copied.write_bytes(sqlite_file.read_bytes())
    with PlanStore.open(copied, read_only=True) as store:
        assert store.list_plans() == ()


def test_without_a_table_of_mounts_nothing_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(network_disks, "_MOUNTS", tmp_path / "missing")
    assert network_disk(tmp_path) is None
