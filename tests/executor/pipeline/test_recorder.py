"""How the time of a rank is noted."""

import torch

from arachne_opt.executor.pipeline import recorder as module
from arachne_opt.executor.pipeline.recorder import Recorder
from arachne_opt.executor.pipeline.runner import Phase
from arachne_opt.executor.pipeline.schedule import Action, Kind

FORWARD = Action(Kind.COMPUTE, True, 3)


def test_spans_add_up_by_phase_and_are_those_of_the_step_at_hand():
    recorder = Recorder(0, torch.device("cpu"))
    recorder.begin(watch=False)  # costs nothing on a CPU, and is done all the same
    recorder.note(Phase.COMPUTE, FORWARD, 0.0, 0.25)
    recorder.note(Phase.COMPUTE, FORWARD, 0.5, 1.0)
    recorder.note(Phase.SYNC, None, 1.0, 1.125)
    assert recorder.sums_us() == [750_000, 0, 0, 125_000, 0]
    assert recorder.now_s() <= recorder.end_s()
    recorder.begin(watch=True)
    assert recorder.sums_us() == [0.0] * 5


def test_on_a_gpu_only_watched_steps_wait_for_queued_work(monkeypatch):
    waits = []
    monkeypatch.setattr(module, "synchronize", lambda device: waits.append(device.type))
    recorder = Recorder(0, torch.device("cuda"))
    for watch, times in ((True, 3), (False, 2)):
        waits.clear()
        recorder.begin(watch=watch)
        recorder.now_s()
        recorder.note(Phase.COMPUTE, FORWARD, 0.0, 0.25)
        recorder.end_s()
        assert waits == ["cuda"] * times
        assert recorder.sums_us()[0] == (250_000 if watch else 0)
