"""The benchmark of nearest plans, as a reader would run it, on one small cluster."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent.parent


@pytest.mark.slow
def test_it_prints_what_other_trainers_lose():
    command = [sys.executable, ROOT / "benchmarks" / "nearest.py", "--models", "OPT-350M"]
    command += ["--clusters", "A100-40=2,V100-16=4", "--time-limit", "1"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT)
    assert done.returncode == 0, done.stderr
    (row,) = [line for line in done.stdout.splitlines() if line.startswith("OPT-350M")]
    costs = [float(cost) for cost in re.findall(r"([+-]\d+\.\d) %", row)]
    assert len(costs) == 3
    assert costs[0] <= min(costs[1:])
