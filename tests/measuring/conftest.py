"""Measures toy benchmarks in workers or in this process, without the evidence around them."""

import gc
import json
from collections import defaultdict

import pytest

from lmperf.measuring import vectors
from lmperf.measuring.case_steps import CaseSteps
from lmperf.measuring.gpus import all_gpus
from lmperf.measuring.group import Group
from lmperf.measuring.isolation import Worlds
from lmperf.measuring.progress import Progress
from lmperf.measuring.ranks import Alone
from lmperf.measuring.supervisor import Supervisor, seed_of


@pytest.fixture(autouse=True)
def marks(tmp_path, monkeypatch):
    """Give each test a folder for the marks of its workers."""
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
        cases = cases_of(made, names, only)
        found = defaultdict(list)

        def save(_, rows):
            for row in rows:
                found[row["implementation"]].append(row)

        progress = Progress("toy", len(cases), said.append)
        supervisor = Supervisor(made, device, progress, gpus=all_gpus())
        supervisor.measure(made.groups(cases), save, checks_first)
        return found

    return run


@pytest.fixture
def measured_here():
    """Return a function that measures one group in this process: implementation -> its rows."""

    def run(names, benchmark, worlds=None):
        made = benchmark("toy")
        cases, found = cases_of(made, names, {}), defaultdict(list)

        def tell(rows=(), case=None, **_):
            for row in rows:
                found[cases[case].implementation].append(row)

        steps = CaseSteps(made, cases, "cpu", Alone(), tell, worlds or Worlds())
        Group(steps, cases, (), (), seed_of(made, cases)).run()
        gc.unfreeze()
        return found

    return run


@pytest.fixture
def tried(tmp_path, monkeypatch):
    """Return a function that plants the answer of the probe for this CPU."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))

    def plant(share):
        names = []
        with monkeypatch.context() as patch:
            patch.setattr(vectors, "probed", lambda name, *_: names.append(name) or 1.0)
            assert not vectors.narrow()
        path = tmp_path / "lmperf" / f"{names[0]}.json"
        path.parent.mkdir(exist_ok=True)
        path.write_text(json.dumps(share))

    return plant


def cases_of(benchmark, names, only):
    """The cases of some implementations whose axes have the values of `only`."""
    return [
        case
        for case in benchmark.cases("cpu")
        if case.implementation in names
        and all(case.axes[axis] in values for axis, values in only.items())
    ]
