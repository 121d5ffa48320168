"""The reference of the formulation names what the code has, and nothing else."""

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PAGE = (ROOT / "docs" / "formulation.md").read_text(encoding="utf-8")
CPSAT = ROOT / "solvers" / "cascade" / "cpsat"


def test_every_constraint_family_has_its_row():
    code = "".join((CPSAT / name).read_text() for name in ("constraints.py", "objective.py"))
    made = set(re.findall(r"^def ([a-z]\w+)\(v: Variables\)", code, re.MULTILINE))
    named = set(re.findall(r"^\| `(\w+)` \|", PAGE, re.MULTILINE))
    assert named == made
    assert len(made) >= 8


def test_every_file_that_the_page_names_is_there():
    files = set(re.findall(r"`(\w+\.py)`", PAGE))
    there = {p.name for p in (ROOT / "solvers").rglob("*.py")}
    assert files
    assert files <= there
