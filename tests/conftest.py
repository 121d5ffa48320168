"""Fixtures for all tests."""

import os
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent

# pytest's importlib mode leaves sys.path alone; helpers are imported as tests.strategies.
sys.path.insert(0, str(ROOT))


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """Folder of the public instances; tests skip where it is not laid out."""
    folder = Path(os.environ.get("ARACHNE_DATA", ROOT.parent / "shared" / "data"))
    if not folder.is_dir():
        pytest.skip("the public data folder is not here; ARACHNE_DATA may name it")
    return folder
