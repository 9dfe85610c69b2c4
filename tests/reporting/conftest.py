"""Synthetic evidence, and where the templates are."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

import synthetic


@pytest.fixture(scope="session")
def templates() -> Path:
    return Path(__file__).parents[2] / "templates"


@pytest.fixture
def gpu():
    return synthetic.gpu_evidence()


@pytest.fixture
def cpu():
    return synthetic.cpu_evidence()
