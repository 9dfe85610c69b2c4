"""Closures of the code in another folder than that of the running package."""

import pytest

import lmperf
from lmperf import sources
from lmperf.evidence.closure import Code


@pytest.fixture
def code_in():
    """A function that returns a `Code` which finds the modules of lmperf in a folder."""
    with pytest.MonkeyPatch.context() as patch:

        def find_in(folder):
            patch.setattr(lmperf.__spec__, "submodule_search_locations", [str(folder)])
            sources._find.cache_clear()
            return Code()

        yield find_in
    sources._find.cache_clear()
