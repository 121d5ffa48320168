"""The quarantine beside a manifest."""

from pathlib import Path

import pytest

from arachne_opt.errors import InputError
from arachne_opt.quarantine import (
    Quarantined,
    add_to_quarantine,
    quarantine_path,
    read_quarantine,
)

BAD = Quarantined(id="a", path="a.mp4", reason="damaged")


def test_clips_are_added_once_and_come_back(tmp_path: Path) -> None:
    file = quarantine_path(tmp_path / "clips.csv")
    assert file.name == "clips.csv.quarantine.jsonl"
    assert read_quarantine(file) == ()
    assert add_to_quarantine(file, [BAD]) == 1
    other = Quarantined(id="b", path="b.mp4", reason="short")
    assert add_to_quarantine(file, [BAD, other]) == 1
    assert read_quarantine(file) == (BAD, other)


def test_a_damaged_or_unwritable_quarantine_is_named(tmp_path: Path) -> None:
    file = tmp_path / "q.jsonl"
    file.write_text("no json\n")
    with pytest.raises(InputError, match="cannot read the quarantine"):
        read_quarantine(file)
    with pytest.raises(InputError, match="cannot write the quarantine"):
        add_to_quarantine(tmp_path / "missing" / "q.jsonl", [BAD])
