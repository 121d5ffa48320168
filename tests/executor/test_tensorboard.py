"""Figures of steps that TensorBoard reads back."""

import sys

import pytest

from arachne_opt.errors import InputError, MissingDependencyError
from arachne_opt.executor.tensorboard import TensorBoardLog, scalars
from tests.executor.test_report import report


def test_every_figure_of_every_step_is_read_back(tmp_path):
    pytest.importorskip("tensorboard", reason="needs the extra tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    steps = report(0, 1, 2).iterations
    with TensorBoardLog(tmp_path / "run", world_size=4) as log:
        for step in steps:
            log(step)
    events = EventAccumulator(str(tmp_path / "run"))
    events.Reload()
    wanted = scalars(steps[0], 4)
    assert set(events.Tags()["scalars"]) == set(wanted)
    for name, value in wanted.items():
        found = events.Scalars(name)
        assert [event.step for event in found] == [0, 1, 2]
        assert found[0].value == pytest.approx(value)


def test_the_figures_are_those_of_the_step():
    found = scalars(report(0).iterations[0], 4)
    assert found["training/loss"] == 1.5
    assert found["plan/measured_over_planned"] == pytest.approx(1.5)
    # Two tasks of two clips each in 611 us.
    assert found["training/samples_per_s"] == pytest.approx(4 / 611e-6)


def test_what_is_missing_or_cannot_be_written_is_named(tmp_path, monkeypatch):
    (tmp_path / "file").touch()
    with pytest.raises(InputError, match="cannot write steps"):
        TensorBoardLog(tmp_path / "file" / "run", world_size=1)
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", None)
    with pytest.raises(MissingDependencyError, match="TensorBoard") as caught:
        TensorBoardLog(tmp_path / "run", world_size=1)
    assert "arachne-opt[tensorboard]" in str(caught.value)
