"""Still pictures: the right format, a bar per task, and clear refusals."""

import re
import sys
from dataclasses import replace

import pytest

from arachne_opt.errors import InputError, MissingDependencyError
from arachne_opt.report.plot import save_plot
from arachne_opt.report.subject import timelines_of
from tests.report.subjects import pipeline_subject, two_by_four, with_run

BEGINNINGS = {"png": b"\x89PNG", "svg": b"<?xml", "pdf": b"%PDF"}


@pytest.fixture
def matplotlib():
    return pytest.importorskip("matplotlib", reason="matplotlib is not installed (extra plot)")


@pytest.mark.parametrize("ending", BEGINNINGS)
def test_a_picture_has_the_format_of_its_ending(tmp_path, matplotlib, ending):
    subject = with_run(two_by_four())
    path = tmp_path / f"gantt.{ending}"
    save_plot(path, "two by four", timelines_of(subject), subject.record.bound_us)
    assert path.read_bytes().startswith(BEGINNINGS[ending])


def test_a_drawing_has_a_bar_for_every_run_of_devices_of_every_task(tmp_path, matplotlib):
    subject = two_by_four()
    path = tmp_path / "gantt.svg"
    save_plot(path, "a $ b", timelines_of(subject), 0)
    text = path.read_text(encoding="utf-8")
    collections = re.findall(r'<g id="PatchCollection_\d+">(.*?)</g>', text, re.S)
    bars = sum(part.count("<path") for part in collections)
    # Devices 4 and 7 of denoise 2 do not touch.
    assert bars == len(subject.plan.placements) + 1
    save_plot(tmp_path / "again.svg", "a $ b", timelines_of(subject), 0)
    plain = re.compile(r"(id|href|url\()[^\s>]*")
    again = (tmp_path / "again.svg").read_text(encoding="utf-8")
    assert plain.sub("", text) == plain.sub("", again)


def test_pipelines_are_drawn_too(tmp_path, matplotlib):
    subject = pipeline_subject()
    save_plot(tmp_path / "p.png", subject.record.name, timelines_of(subject))
    assert (tmp_path / "p.png").stat().st_size > 5_000


def test_other_endings_and_places_that_cannot_be_written_are_refused(tmp_path, matplotlib):
    lines = timelines_of(two_by_four())
    with pytest.raises(InputError, match=r"not in '.gif'"):
        save_plot(tmp_path / "a.gif", "x", lines)
    with pytest.raises(InputError, match="cannot write"):
        save_plot(tmp_path / "no" / "a.png", "x", lines)


def test_without_matplotlib_the_extra_is_named(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(MissingDependencyError, match="plot"):
        save_plot(tmp_path / "a.png", "x", timelines_of(two_by_four()))
    assert not list(tmp_path.iterdir())


def test_an_empty_timeline_is_a_picture_as_well(tmp_path, matplotlib):
    (line,) = timelines_of(two_by_four())
    save_plot(tmp_path / "a.png", "nothing", [replace(line, spans=(), arrows=())])
    assert (tmp_path / "a.png").exists()
