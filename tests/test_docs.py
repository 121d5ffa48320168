"""The pages of docs/: commands give what they show, and links lead somewhere.

A block with a file name behind its language is that file. A block ``console`` has commands with
their messages, then their answers; ``…`` stands for anything, PLAN for the newest stored plan.
"""

import json
import re
import shlex
from pathlib import Path

import pytest

from arachne_opt.cli.main import run

DOCS = Path(__file__).resolve().parent.parent / "docs"
# Pages whose commands are run from top to bottom in an empty folder.
RUN = ["importers.md", "exporters.md", "first-hour.md"]
BLOCK = re.compile(r"^```(\w+)(?: (\S+))?\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def commands(text: str) -> list[tuple[str, str]]:
    """Every command of a console block with what it prints."""
    parts = re.split(r"^\$ (.*)\n", text, flags=re.MULTILINE)
    assert parts[0] == "", "a console block begins with a command"
    return list(zip(parts[1::2], parts[2::2], strict=True))


def shown(expected: str) -> re.Pattern[str]:
    """What may stand for an answer; a line … alone stands for any number of lines."""
    lines = [r"(?:.*\n)*?" if line.strip() == "…" else _line(line) for line in expected.split("\n")]
    return re.compile("".join(lines).removesuffix(r"\n") + r"\s*")


def _line(line: str) -> str:
    return ".*".join(map(re.escape, line.split("…"))) + r"\n"


@pytest.mark.slow
@pytest.mark.parametrize("page", RUN)
def test_commands_give_what_the_page_shows(
    page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("ARACHNE_DB", str(tmp_path / "plans.db"))
    monkeypatch.delenv("ARACHNE_CONFIG")
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    ran = 0
    for language, name, text in BLOCK.findall((DOCS / page).read_text(encoding="utf-8")):
        if name:
            (tmp_path / name).parent.mkdir(exist_ok=True)
            (tmp_path / name).write_text(text, encoding="utf-8")
        for command, expected in commands(text) if language == "console" else ():
            if "PLAN" in command:
                command = command.replace("PLAN", newest(capsys))
            capsys.readouterr()
            run(shlex.split(command)[1:])
            out, err = capsys.readouterr()
            told = "\n".join(line for line in err.split("\n") if "learned policy" not in line)
            assert shown(expected).fullmatch(told + out), f"{command}:\n{told}{out}"
            ran += 1
    assert ran >= 5


def newest(capsys: pytest.CaptureFixture[str]) -> str:
    capsys.readouterr()
    run(["plans", "list", "--limit", "1", "--format", "json"])
    return json.loads(capsys.readouterr().out)["plans"][0]["id"]


@pytest.mark.parametrize("page", [*sorted(p.name for p in DOCS.glob("*.md")), "../README.md"])
def test_links_of_the_page_lead_somewhere(page: str) -> None:
    path = DOCS / page
    for target in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", path.read_text(encoding="utf-8")):
        assert (path.parent / target).exists(), target
