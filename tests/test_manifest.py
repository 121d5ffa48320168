"""Manifests of clips."""

import json
import logging
from pathlib import Path

import pytest

from arachne_opt.errors import InputError
from arachne_opt.manifest import estimated_text_tokens, read_manifest, write_manifest
from arachne_opt.workload import Clip, Shape
from arachne_opt.workload_generator import generate_clips

HEADER = "id,path,text_tokens,num_frames,height,width,fps\n"
ROW = "a,a.mp4,7,17,64,96,24\n"


def put(folder: Path, text: str, name: str = "clips.csv") -> Path:
    file = folder / name
    file.write_bytes(text.encode())
    return file


def message(file: Path) -> str:
    with pytest.raises(InputError) as caught:
        read_manifest(file)
    assert caught.value.exit_code == 2
    assert file.name in str(caught.value)
    return str(caught.value)


def test_a_csv_row_becomes_a_clip(tmp_path: Path) -> None:
    (clip,) = read_manifest(put(tmp_path, HEADER + ROW))
    shape = Shape(frames=17, height=64, width=96)
    assert clip == Clip(id="a", shape=shape, path="a.mp4", text_tokens=7, fps=24.0)


def test_a_jsonl_row_becomes_the_same_clip(tmp_path: Path) -> None:
    row = {"id": "a", "path": "a.mp4", "text_tokens": 7, "num_frames": 17}
    row |= {"height": 64, "width": 96, "fps": 24}
    csv_clip = read_manifest(put(tmp_path, HEADER + ROW))
    assert read_manifest(put(tmp_path, json.dumps(row) + "\n\n", "c.jsonl")) == csv_clip


@pytest.mark.parametrize("name", ["clips.csv", "clips.jsonl"])
def test_written_clips_come_back(tmp_path: Path, name: str) -> None:
    clips = generate_clips("mixed", count=50, seed=3)
    odd = Clip(id='with "quotes"', shape=clips[0].shape, caption="zwei,\nZeilen", text_tokens=3)
    write_manifest([*clips, odd], tmp_path / name)
    assert read_manifest(tmp_path / name) == (*clips, odd)


def test_a_byte_order_mark_and_crlf_do_no_harm(tmp_path: Path) -> None:
    text = "\ufeff" + (HEADER + ROW).replace("\n", "\r\n")
    assert read_manifest(put(tmp_path, text))[0].id == "a"


def test_captions_stand_in_for_missing_text_tokens(tmp_path: Path) -> None:
    text = "id,path,caption,num_frames,height,width,fps\na,a.mp4,a red balloon,1,64,64,\n"
    (clip,) = read_manifest(put(tmp_path, text))
    assert clip.text_tokens == estimated_text_tokens("a red balloon") == 4
    assert clip.fps == 0


@pytest.mark.parametrize(("caption", "tokens"), [("", 0), ("abcd", 1), ("abcde", 2), ("红气球", 3)])
def test_text_tokens_follow_the_stated_rule(caption: str, tokens: int) -> None:
    assert estimated_text_tokens(caption) == tokens


def test_other_columns_are_ignored_and_said_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    text = HEADER.replace("\n", ",score,codec\n") + ROW.replace("\n", ",1,h264\n") * 1
    with caplog.at_level(logging.INFO):
        assert len(read_manifest(put(tmp_path, text))) == 1
    lines = [r.getMessage() for r in caplog.records if "ignored" in r.getMessage()]
    assert len(lines) == 1
    assert "score, codec" in lines[0]


@pytest.mark.parametrize("column", ["id", "num_frames", "height", "width"])
def test_a_missing_column_is_named_with_those_found(tmp_path: Path, column: str) -> None:
    shown = message(put(tmp_path, (HEADER + ROW).replace(column, "other")))
    assert f"the column '{column}' is missing" in shown
    assert "found: " in shown
    assert "other" in shown


def test_a_missing_column_is_guessed_from_those_unused(tmp_path: Path) -> None:
    shown = message(put(tmp_path, (HEADER + ROW).replace("num_frames", "nframes")))
    assert "did you mean 'nframes' by it?" in shown


def test_text_needs_one_of_two_columns(tmp_path: Path) -> None:
    shown = message(put(tmp_path, (HEADER + ROW).replace("text_tokens", "x")))
    assert "the column 'text_tokens' (or 'caption') is missing" in shown


def test_a_column_missing_in_jsonl_is_named_too(tmp_path: Path) -> None:
    row = {"id": "a", "text_tokens": 7, "frames": 17, "height": 64, "width": 96}
    assert "'num_frames' is missing" in message(put(tmp_path, json.dumps(row), "c.jsonl"))


def test_a_row_of_jsonl_without_a_value_is_a_bad_row(tmp_path: Path) -> None:
    full = {"id": "a", "text_tokens": 7, "num_frames": 17, "height": 64, "width": 96}
    less = {"id": "b", "text_tokens": 7, "height": 64, "width": 96}
    shown = message(put(tmp_path, f"{json.dumps(full)}\n{json.dumps(less)}", "c.jsonl"))
    assert "1 bad row: line 2: num_frames is empty" in shown


@pytest.mark.parametrize(
    ("row", "expected"),
    [
        ("b,b.mp4,7,0,64,96,24\n", "line 3: num_frames is 0, must be at least 1"),
        ("b,b.mp4,7,-5,64,96,24\n", "line 3: num_frames is -5, must not be negative"),
        ("b,b.mp4,7,17,0,96,24\n", "line 3: height is 0, must be at least 1"),
        ("b,b.mp4,7,17,64,wide,24\n", "line 3: width is 'wide', not a number"),
        ("b,b.mp4,7,17.5,64,96,24\n", "line 3: num_frames is '17.5', not a whole number"),
        ("b,b.mp4,7,nan,64,96,24\n", "line 3: num_frames is 'nan', not a finite number"),
        ("b,b.mp4,7,inf,64,96,24\n", "line 3: num_frames is 'inf', not a finite number"),
        ("b,b.mp4,7,,64,96,24\n", "line 3: num_frames is empty"),
        ("b,b.mp4,-7,17,64,96,24\n", "line 3: text_tokens is -7, must not be negative"),
        ("b,b.mp4,7,17,64,96,-1\n", "line 3: fps is -1, must not be negative"),
        (",b.mp4,7,17,64,96,24\n", "line 3: the id is empty"),
        ("b,b.mp4,7,17,64,96\n", "line 3: 6 fields, the header has 7"),
        ("b,b.mp4,7,17,64,96,24,9\n", "line 3: 8 fields, the header has 7"),
        ("a,b.mp4,7,17,64,96,24\n", "line 3: id 'a' is already on line 2"),
    ],
)
def test_a_bad_row_is_named_by_its_line(tmp_path: Path, row: str, expected: str) -> None:
    assert expected in message(put(tmp_path, HEADER + ROW + row))


def test_whole_floats_are_taken_as_numbers(tmp_path: Path) -> None:
    (clip,) = read_manifest(put(tmp_path, HEADER + ROW.replace("17", "17.0")))
    assert clip.shape.frames == 17


def test_the_first_few_of_many_bad_rows_are_listed(tmp_path: Path) -> None:
    rows = "".join(f"c{i},x,7,0,64,96,24\n" for i in range(20))
    shown = message(put(tmp_path, HEADER + ROW + rows))
    assert "20 bad rows: line 3" in shown
    assert "line 7" in shown
    assert "line 8" not in shown
    assert "and 15 more" in shown


def test_lines_are_counted_through_captions_with_line_breaks(tmp_path: Path) -> None:
    head = "id,caption,num_frames,height,width\n"
    text = head + 'a,"two\nlines",5,64,64\nb,x,0,64,64\n'
    assert "line 4: num_frames is 0" in message(put(tmp_path, text))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", "the manifest is empty"),
        ("  \n", "the manifest is empty"),
        (HEADER, "a header and no clips"),
        (HEADER + '"a,b\n', "no valid CSV"),
        ("id,id,text_tokens,num_frames,height,width\n", "'id' is there twice"),
        ("id;num_frames\na;1\n", "found: id;num_frames"),
    ],
)
def test_an_unusable_csv_is_explained(tmp_path: Path, text: str, expected: str) -> None:
    assert expected in message(put(tmp_path, text))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("{", "line 1: no valid JSON"),
        ("[1]", "line 1: not a JSON object"),
        (
            '{"id": "a", "text_tokens": 1, "num_frames": true, "height": 1, "width": 1}',
            "line 1: num_frames is True, not a number",
        ),
        (
            '{"id": {}, "text_tokens": 1, "num_frames": 1, "height": 1, "width": 1}',
            "line 1: id is {}",
        ),
        (
            '{"id": "a", "caption": 5, "num_frames": 1, "height": 1, "width": 1}',
            "line 1: caption is 5, not a text",
        ),
    ],
)
def test_an_unusable_jsonl_is_explained(tmp_path: Path, text: str, expected: str) -> None:
    assert expected in message(put(tmp_path, text, "c.jsonl"))


def test_other_files_are_refused(tmp_path: Path) -> None:
    assert "a manifest ends in .csv" in message(put(tmp_path, "x", "clips.parquet"))
    assert "cannot read" in message(tmp_path / "absent.csv")
    (tmp_path / "latin.csv").write_bytes(HEADER.encode() + b"\xe4,a,1,1,1,1,1\n")
    assert "not UTF-8" in message(tmp_path / "latin.csv")
