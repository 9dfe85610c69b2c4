"""What tests of workers share: modules beside this one that workers, too, can import."""

import sys
from pathlib import Path

import pytest


@pytest.fixture(scope="package", autouse=True)
def modules_here():
    here = str(Path(__file__).parent)
    sys.path.insert(0, here)
    yield
    sys.path.remove(here)
