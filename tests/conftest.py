"""Fixtures for all tests."""

import os
import sys
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

# A loaded machine is no failure.
settings.register_profile("any load", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("any load")

ROOT = Path(__file__).resolve().parent.parent

# Settings of the person who runs the tests must not reach them.
os.environ["ARACHNE_CONFIG"] = ""

# pytest's importlib mode leaves sys.path alone; helpers are imported as tests.strategies.
sys.path.insert(0, str(ROOT))


@pytest.fixture(scope="session")
def shared_folder() -> Path:
    """The folder with public data and independent judges; tests skip where it is not laid out."""
    folder = Path(os.environ.get("ARACHNE_DATA", ROOT.parent / "shared"))
    if not (folder / "data").is_dir():
        pytest.skip("the folder with public data is not here; ARACHNE_DATA may name it")
    return folder


@pytest.fixture(scope="session")
def shared_data(shared_folder: Path) -> Path:
    """The public data alone."""
    return shared_folder / "data"
