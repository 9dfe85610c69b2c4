"""Fixtures: synthetic evidence (made-up measured rows) of a GPU and a CPU, and the templates."""

import functools
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

import rendered_evidence
import synthetic

from lmperf.reporting import pages

sys.path.insert(0, str(Path(__file__).parent / "site"))

from site_pages import site_of


@pytest.fixture(scope="session")
def templates() -> Path:
    return synthetic.TEMPLATES


@pytest.fixture(scope="session", params=["gpu", "cpu"])
def rendered(request):
    """(evidence, composed sections, file name -> text) of a synthetic machine; read only."""
    evidence = getattr(synthetic, f"{request.param}_evidence")()
    sections = pages.composed(evidence, synthetic.TEMPLATES)
    return evidence, sections, pages.machine_files(evidence, sections, synthetic.TEMPLATES)


@pytest.fixture(scope="session")
def hostile_evidence():
    """GPU evidence with markup in its text, marks and a custom implementation; read only."""
    few = synthetic.small(synthetic.gpu_evidence())
    return rendered_evidence.hostile(rendered_evidence.marked(rendered_evidence.custom(few)))


@pytest.fixture(scope="session")
def hostile_site(hostile_evidence):
    """The site of `hostile_evidence` and of the CPU: figures are drawn once; read only."""
    return site_of(hostile_evidence, synthetic.cpu_evidence())


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
