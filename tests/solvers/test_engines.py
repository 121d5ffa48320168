"""CP-SAT and HiGHS bring libraries of their own into one process."""

import subprocess
import sys

import pytest

ORTOOLS, HIGHS = "from ortools.sat.python import cp_model", "import highspy"


@pytest.mark.parametrize("order", [(ORTOOLS, HIGHS), (HIGHS, ORTOOLS)])
def test_both_engines_load_in_one_process(order: tuple[str, str]) -> None:
    code = "\n".join([*order, "highspy.Highs(); cp_model.CpSolver()"])
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
