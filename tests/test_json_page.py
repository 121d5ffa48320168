"""docs/json.md says what ``--format json`` prints: every format is there, with the keys it has."""

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from arachne_opt.cli.main import run

ROOT = Path(__file__).resolve().parent.parent
PAGE = (ROOT / "docs" / "json.md").read_text(encoding="utf-8")
BLOCK = re.compile(r"^## arachne\.([\w-]+)/1\n.*?^```keys\n(.*?)^```$", re.MULTILINE | re.DOTALL)
# Dictionaries whose keys are data, and documents with a page of their own.
OPEN = {"versions", "rows", "plan", "problem", "shapes", "payload", "feature", "details"}
WORK = ["--workload", "clips.csv", "--cluster", "CPU:2", "--model", "tiny-wan", "--degrees", "1,2"]
WORK += ["--max-tokens", "600", "--iterations", "0:2", "--time-limit", "0.2"]
COMMANDS = {
    "workload-scan": ["workload", "scan", "clips.csv"],
    "workload": ["workload", "show", "clips.csv", "--iterations", "0:1"],
    "cluster": ["cluster", "show", "H100-80:8x2"],
    "models": ["models", "list"],
    "model": ["models", "show", "wan2.1-14b"],
    "solve": ["solve", "cascade", *WORK],
    "plans": ["plans", "list"],
    "plan": ["plans", "show", "PLAN"],
    "plan-diff": ["plans", "diff", "PLAN", "OTHER"],
    "simulation": ["simulate", "PLAN"],
    "clusters": ["clusters", "list"],
    "plans-gc": ["plans", "gc", "--dry-run"],
    "db-stats": ["db", "stats"],
    "config": ["config", "show", "--all"],
    "config-path": ["config", "path"],
    "doctor": ["doctor"],
}


def keys_of(value: object, path: str = "") -> Iterator[str]:
    """Paths of all keys, ``[]`` for items of lists, ``{}`` for dictionaries of data."""
    if isinstance(value, dict):
        for key, inner in value.items():
            here = f"{path}.{key}" if path else key
            if isinstance(inner, dict) and key in OPEN:
                yield here + "{}"
            elif isinstance(inner, dict | list) and inner and _deeper(inner):
                yield from keys_of(inner, here)
            else:
                yield here
    elif isinstance(value, list):
        for inner in value:
            yield from keys_of(inner, path + "[]")


def _deeper(inner: dict | list) -> bool:
    return isinstance(inner, dict) or isinstance(inner[0], dict)


def documents(folder: Path, monkeypatch, capsys) -> dict[str, dict]:
    """What each command prints, from one small database."""
    monkeypatch.chdir(folder)
    monkeypatch.setenv("ARACHNE_DB", str(folder / "plans.db"))
    assert run(["workload", "generate", "--clips", "40", "--out", "clips.csv"]) == 0
    found: dict[str, dict] = {}
    for name, command in COMMANDS.items():
        ids = [plan["id"] for plan in found["solve"]["plans"]] if "solve" in found else ["", ""]
        words = {"PLAN": ids[0], "OTHER": ids[1]}
        capsys.readouterr()
        assert run([*(words.get(w, w) for w in command), "--format", "json"]) == 0, name
        found[name] = json.loads(capsys.readouterr().out)
    return found


@pytest.mark.slow
def test_commands_print_the_keys_that_the_page_lists(tmp_path, monkeypatch, capsys):
    blocks = {name: set(text.split()) for name, text in BLOCK.findall(PAGE)}
    assert set(blocks) == set(COMMANDS)
    for name, document in documents(tmp_path, monkeypatch, capsys).items():
        assert document["format"] == f"arachne.{name}/1"
        assert set(keys_of(document)) == blocks[name], name


def test_every_format_is_on_the_page():
    code = "".join(p.read_text() for p in (ROOT / "arachne_opt" / "cli").glob("*.py"))
    kinds = set(re.findall(r"emit_json\(\s*\"([\w-]+)\"", code))
    assert len(kinds) > 25
    assert kinds <= set(re.findall(r"arachne\.([\w-]+)/1", PAGE))
