import pytest
from planted_steps import PROFILED

from lmperf.benchmark import Column
from lmperf.benchmarks.end_to_end import EndToEnd


@pytest.fixture
def profiled(monkeypatch):
    """Declare the columns that steps have once they are profiled."""
    further = [Column(name, kind) for name, kind in PROFILED.items()]
    declared = (*(c for c in EndToEnd.columns if c.name not in PROFILED), *further)
    monkeypatch.setattr(EndToEnd, "columns", declared)
