"""Fixtures: synthetic evidence (made-up measured rows) of a GPU and a CPU, and the templates."""

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
    """A fixture that gives all tests the same evidence and fails a test that changes it.

    The evidence object caches the results that the report derives from it, so tests that share
    evidence compute each table once.

    make: a function without arguments that returns new evidence.
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
    """A new copy of the GPU evidence, which the test may change."""
    return synthetic.gpu_evidence()


@pytest.fixture
def cpu_copy():
    """A new copy of the CPU evidence, which the test may change."""
    return synthetic.cpu_evidence()
