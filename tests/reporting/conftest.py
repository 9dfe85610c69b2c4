"""Synthetic evidence for every test of the report, and the path of the templates."""

import functools
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

import synthetic


@pytest.fixture(scope="session")
def templates() -> Path:
    return synthetic.TEMPLATES


def read_only(make):
    """A fixture that lends all tests the same evidence and fails a test that changes it.

    What the report derives from evidence is kept with it, so tests that share evidence compute
    each table once.
    """
    shared = functools.cache(make)

    def lend():
        yield shared()
        changed = synthetic.differences(shared(), make())
        if changed:
            shared.cache_clear()
            pytest.fail(f"the test changed shared evidence ({', '.join(changed)}); use a copy")

    return pytest.fixture(lend)


gpu = read_only(synthetic.gpu_evidence)
cpu = read_only(synthetic.cpu_evidence)


@pytest.fixture
def gpu_copy():
    """GPU evidence that the test may change."""
    return synthetic.gpu_evidence()


@pytest.fixture
def cpu_copy():
    """CPU evidence that the test may change."""
    return synthetic.cpu_evidence()
