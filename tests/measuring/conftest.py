"""Measures toy benchmarks with the real processes, without the evidence around them."""

from collections import defaultdict

import pytest

from lmperf.measuring.gpus import all_gpus
from lmperf.measuring.progress import Progress
from lmperf.measuring.supervisor import Supervisor


@pytest.fixture(autouse=True)
def marks(tmp_path, monkeypatch):
    """Give each test a folder for the marks of its implementations."""
    monkeypatch.setenv("TOY_MARKS", str(tmp_path))
    monkeypatch.chdir(tmp_path)  # tracebacks are kept there


@pytest.fixture
def said():
    """The lines that the user has seen."""
    return []


@pytest.fixture
def measured(said):
    """Return a function that measures implementations: implementation -> its rows."""
    import toys

    def run(names, benchmark=toys.Toy, external=None, device="cpu", checks_first=False, **only):
        made = benchmark("toy", external)
        cases = [
            case
            for case in made.cases("cpu")
            if case.implementation in names
            and all(case.axes[axis] in values for axis, values in only.items())
        ]
        found = defaultdict(list)

        def save(_, rows):
            for row in rows:
                found[row["implementation"]].append(row)

        progress = Progress("toy", len(cases), said.append)
        supervisor = Supervisor(made, device, progress, gpus=all_gpus())
        supervisor.measure(made.groups(cases), save, checks_first)
        return found

    return run
