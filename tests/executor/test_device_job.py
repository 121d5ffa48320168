"""Measuring rows of large models and links."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from arachne_opt.db.store import PlanStore
from arachne_opt.errors import InputError
from arachne_opt.executor.device_job import (
    DeviceJob,
    device_job_from_json,
    device_job_to_json,
    measure_devices,
)

ROOT = Path(__file__).resolve().parent.parent.parent
TINY = """from arachne_opt.pipeline.architecture import Architecture

MODEL = Architecture(
    name="tiny", family="llama", layers=2, hidden=32, heads=4, kv_heads=2, ffn=64, vocabulary=128,
    sequence_length=16, gated=True, biases=False, tied=False, source="tests",
)
OTHER = 3
"""


@pytest.fixture
def tiny(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A model of the user's own in the current folder."""
    (tmp_path / "own_decoder.py").write_text(TINY, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "own_decoder", raising=False)
    return "own_decoder:MODEL"


def test_json_gives_an_equal_job(tiny: str) -> None:
    job = DeviceJob(model=tiny, points=((1, 2), (2, 4)), sizes_bytes=(8,), degrees=(2,), repeats=4)
    assert device_job_from_json(json.loads(json.dumps(device_job_to_json(job)))) == job
    assert job.widest == 2
    assert job.count == 2 + 3


def test_what_cannot_be_measured_is_refused(tiny: str) -> None:
    with pytest.raises(InputError, match="does not divide the 4 heads"):
        DeviceJob(model=tiny, points=((3, 1),))
    with pytest.raises(InputError, match="nothing to measure"):
        DeviceJob(model=tiny)
    with pytest.raises(InputError, match="at least 1"):
        DeviceJob(sizes_bytes=(0,), degrees=(2,))
    with pytest.raises(InputError, match="not an Architecture"):
        DeviceJob(model="own_decoder:OTHER", points=((1, 1),))
    with pytest.raises(InputError, match="wider than the 1 ranks"):
        measure_devices(DeviceJob(model=tiny, points=((2, 1),)), 1)


@pytest.mark.slow
def test_rows_and_links_are_measured_on_two_ranks(tiny: str) -> None:
    job = DeviceJob(
        model=tiny, points=((1, 1), (2, 2)), sizes_bytes=(1000,), degrees=(2,), warmup=1, repeats=2
    )
    told: list[str] = []
    rows = measure_devices(job, 2, on_progress=lambda p: told.append(f"{p.done}/{p.total}"))
    assert told == ["1/5", "2/5", "3/5", "4/5", "5/5"]
    found = {(m.task, m.degree, m.batch) for m in rows}
    for kind in ("embedding", "block", "head"):
        for which in ("forward", "backward", "update"):
            assert {(f"row {which} {kind}", 1, 1), (f"row {which} {kind}", 2, 2)} <= found
    assert {f"link {name}" for name in ("all-to-all", "all-reduce", "p2p")} <= {
        m.task for m in rows
    }
    assert len(rows) == job.repeats * (2 * 9 + 3)
    # Half of the weights, and more samples: the memory is that of a part.
    peaks = {(m.degree, m.task): m.memory_bytes for m in rows if m.task == "row update head"}
    assert 0 < peaks[2, "row update head"] < 2 * peaks[1, "row update head"]


@pytest.mark.slow
def test_ranks_of_the_users_torchrun_measure_and_the_first_one_stores(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
    command += ["--local-addr=127.0.0.1", "--nproc-per-node=2", "-m", "arachne_opt"]
    command += ["profile", "links", "--sizes", "1000,100000", "--repeats", "3"]
    environment = {
        **os.environ,
        "PYTHONPATH": str(ROOT),
        "ARACHNE_DB": str(tmp_path / "plans.db"),
        "OMP_NUM_THREADS": "1",
        "GLOO_SOCKET_IFNAME": "lo",
    }
    done = subprocess.run(
        command, capture_output=True, text=True, check=False, env=environment, cwd=tmp_path
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("all-reduce among 2") == 1
    with PlanStore.open(tmp_path / "plans.db") as store:
        assert len(store.measurements(task="link all-to-all")) == 2 * 3
