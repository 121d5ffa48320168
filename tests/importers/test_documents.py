"""Files whose values know their lines."""

from pathlib import Path

import pytest

from arachne_opt.errors import InputError
from arachne_opt.importers.json_file import json_node
from arachne_opt.importers.literal_file import read_constant
from arachne_opt.importers.table_file import read_csv_file
from arachne_opt.importers.toml_file import toml_node
from arachne_opt.importers.yaml_file import read_yaml_file

JSON = """{
 "a": [1,
   {"b": "x", "c": "two\\nlines"},
   []],
 "d": {
   "e": -1.5e3}
}
"""
TOML = """x = 1
[general]
resolution = [
  [1, 2],
]
[[datasets]]
a = 1
[datasets.sub]
"q r" = 2
[[datasets]]
a = 2
"""


def test_json_values_know_their_lines():
    top = json_node(JSON, "f.json")
    assert top.child("a").where == "f.json:2"
    assert top.child("a").child(1).child("c").where == "f.json:3"
    assert top.child("a").child(2).where == "f.json:4"
    assert top.child("d").child("e").where == "f.json:6"


def test_toml_values_know_their_lines():
    top = toml_node(TOML, "f.toml")
    first, second = top.get("datasets").items()
    assert (first.where, second.where) == ("f.toml:6", "f.toml:10")
    assert second.get("a").where == "f.toml:11"
    assert first.get("sub").get("q r").where == "f.toml:9"
    assert top.get("general").get("resolution").where == "f.toml:3"


def test_yaml_values_know_their_lines(tmp_path: Path):
    pytest.importorskip("yaml", reason="PyYAML is not installed")
    file = tmp_path / "f.yaml"
    file.write_text("a: 1\nb:\n  - c: 2\n  - d:\n      e: 3\n---\nf: 4\n")
    top = read_yaml_file(file)
    assert top.child(0).get("b").child(1).get("d").get("e").line == 5
    assert top.child(1).get("f").line == 7


def test_csv_rows_count_lines_through_line_breaks(tmp_path: Path):
    file = tmp_path / "f.csv"
    file.write_text('a,b\n"two\nlines",1\nc\nd,2\n')
    first, short, last = read_csv_file(file)
    assert not isinstance(first, InputError)
    assert first.line == 2
    assert str(short).startswith(f"{file}:4: 1 fields, the header has 2")
    assert not isinstance(last, InputError)
    assert last.get("b").whole() == 2
    assert last.line == 5


def test_python_constants_are_read_without_being_run(tmp_path: Path):
    file = tmp_path / "f.py"
    file.write_text('raise SystemExit\nc = {\n  "a": {1: (0.5, None)},\n}\n')
    value = read_constant(file, "c")
    assert value.value == {"a": {"1": [0.5, None]}}
    assert value.child("a").child("1").line == 3


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{"a": 1,\n}', "f.json:2: no valid JSON"),
        ('{"a":\n\n tru}', "f.json:3: no valid JSON"),
        ("", "f.json:1: no valid JSON"),
        ("[" * 100_000, "f.json:1: "),
    ],
)
def test_broken_json_is_placed(text: str, message: str):
    with pytest.raises(InputError, match=message):
        json_node(text, "f.json")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a = 1\nb = \n", "f.toml:2: no valid TOML"),
        ("a = 1\na = 2\n", "f.toml:2: no valid TOML: Cannot overwrite a value"),
        ("a = [1,\n", "f.toml:2: no valid TOML"),
    ],
)
def test_broken_toml_is_placed(text: str, message: str):
    with pytest.raises(InputError, match=message):
        toml_node(text, "f.toml")


@pytest.mark.parametrize(
    ("key", "check", "message"),
    [
        ("text", lambda n: n.whole(), "f.json:1: text must be a number, not 'x'"),
        ("half", lambda n: n.whole(), "f.json:2: half must be a whole number, not 0.5"),
        ("less", lambda n: n.whole(1), "f.json:3: less must be at least 1, not 0"),
        ("minus", lambda n: n.number(), "f.json:4: minus must be a finite number >= 0, not -1"),
        ("flag", lambda n: n.number(), "f.json:5: flag must be a number, not True"),
        ("flag", lambda n: n.text(), "f.json:5: flag must be a text, not True"),
        ("text", lambda n: n.flag(), "f.json:1: text must be true or false, not 'x'"),
        ("half", lambda n: list(n.items()), "f.json:2: half must be a list, not 0.5"),
        ("half", lambda n: n.table(), "f.json:2: half must be a table of keys, not 0.5"),
    ],
)
def test_a_value_of_the_wrong_kind_is_named_with_its_line(key, check, message):
    text = '{"text": "x",\n"half": 0.5,\n"less": 0,\n"minus": -1,\n"flag": true}'
    with pytest.raises(InputError) as caught:
        check(json_node(text, "f.json").get(key))
    assert str(caught.value) == message


def test_a_missing_key_is_guessed_from_those_that_are_there():
    with pytest.raises(InputError, match=r"'path' is missing \(did you mean 'paths' by it\?\)"):
        json_node('{"paths": 1}', "f.json").get("path")
