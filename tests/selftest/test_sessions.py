"""Each case has its expected outcome: a fault is caught, and its honest twin passes."""

import gc
import os
import sys
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pandas as pd
import pytest
import torch

from lmperf.benchmark import Case
from lmperf.benchmarks import load
from lmperf.config.model import Config
from lmperf.config.read import load_config
from lmperf.evidence.machine import Machine
from lmperf.evidence.project import Project
from lmperf.measuring import case_steps, guards, rounds, supervisor
from lmperf.measuring.case_steps import CaseSteps
from lmperf.measuring.group import Group
from lmperf.measuring.isolation import Worlds, import_compiler
from lmperf.measuring.job import seed_of
from lmperf.measuring.ranks import Alone
from lmperf.reporting.selftest import HELD
from lmperf.selftest.expectations import in_words
from lmperf.selftest.run import run
from lmperf.selftest.sessions import SESSIONS, STEM

ATTENTION, *_, OVERLAP = SESSIONS
# These end their process, or keep it busy.
IN_A_WORKER = ("slows_the_clock", "leaves_a_busy_thread")
HERE = [
    case
    for session in SESSIONS
    for case in session.cases
    if case.module == "attention" and not case.needs and case.name not in IN_A_WORKER
]


@pytest.fixture(autouse=True, scope="module")
def quick():
    """Exclude imported modules from garbage collection and use a single thread."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    import_compiler()
    gc.freeze()
    yield
    gc.unfreeze()
    torch.set_num_threads(threads)


@pytest.fixture
def clocks():
    """Put the clocks of `time` and the measuring code back, which a case replaces."""
    names = [name for name in sys.modules if name.startswith("lmperf.measuring.")]
    before = {name: {**vars(sys.modules[name])} for name in ("time", *names)}
    yield
    for name, values in before.items():
        vars(sys.modules[name]).update(values)


class NoWorlds(Worlds):
    """Puts nothing back: comparing modules of torch at each step takes most of the time."""

    def of(self, *_, **__):
        return nullcontext()


def measure(case, tell):
    """Measure a case in a group of its own; `tell` takes the messages to the supervisor."""
    worlds = Worlds() if "settings" in case.name else NoWorlds()
    benchmark = load(STEM, {case.name: case.entry})
    planted = Case(tuple({**ATTENTION.cell, "d_head": 16}.items()), case.name)
    seed = seed_of(benchmark, [planted])
    steps = CaseSteps(benchmark, [planted], "cpu", Alone(), tell, worlds)
    Group(steps, [planted], (), (), seed).run()


def rows_of(case):
    """The rows of a case, by phase."""
    found = {}

    def tell(rows=(), phase=None, **_):
        for row in rows:
            found[phase] = {"state": None, "marks": None, **row}

    measure(case, tell)
    frame = pd.DataFrame.from_dict(found, orient="index")
    return frame.reindex(columns=[*dict.fromkeys([*frame, "reason", "median_ms"])])


@pytest.mark.slow
@pytest.mark.parametrize("case", HERE, ids=lambda case: case.name)
def test_case_has_its_expected_outcome(case, monkeypatch, clocks):
    monkeypatch.setattr(rounds, "pace_of", lambda *_, **__: rounds.Pace(0.001, 5, 10))
    monkeypatch.setattr(rounds, "LOOKS", (1, 2))
    # The load of other tests takes a third of a second to tell, and has each phase timed twice.
    monkeypatch.setattr(case_steps, "Load", lambda _: SimpleNamespace(share=lambda: 0.0))
    rows = rows_of(case)
    assert case.expect.is_met(rows), in_words(rows)


@pytest.mark.slow
def test_process_that_is_busy_after_a_call_is_replaced(monkeypatch):
    """As after `leaves_a_busy_thread`, with which the checks before that one take ten seconds."""
    monkeypatch.setattr(guards, "process_time", guards.perf_counter)
    monkeypatch.setattr(os, "_exit", sys.exit)
    told = []
    with pytest.raises(SystemExit):
        measure(HERE[0], lambda **message: told.append(message))
    assert told[-1]["failed"]["reason"].startswith("work outlives the call: the process is busy")


@pytest.mark.slow
@pytest.mark.process
def test_clock_of_a_worker_is_found_to_be_slow_by_the_whole_pipeline(monkeypatch, tmp_path):
    monkeypatch.setenv("LMPERF_LOCK", str(tmp_path / "lock"))
    monkeypatch.setattr(supervisor, "_MOST_ENDED", 1)
    config = Path(__file__).parents[2] / "config/config.yaml"
    project = Project(load_config(config, {"machine": "here", "preset": "cpu"}))
    cases = tuple(case for case in ATTENTION.cases if case.name == "slows_the_clock")
    results = [*run(project, [replace(ATTENTION, cases=cases)])]
    assert [line["held"] for line in results] == [HELD], [line["outcome"] for line in results]


@pytest.mark.parametrize("kind", ["cpu", "cuda"])
@pytest.mark.parametrize("session", SESSIONS, ids=lambda session: session.neighbour)
def test_session_of_cases_is_one_valid_cell(session, kind):
    own, stem = {case.name: case.entry for case in session.cases}, session.stem
    content = {"grid": {stem: session.grid(kind)}, "implementations": {stem: own}}
    config = Config.model_validate(content)
    benchmark = load(stem, config.external(stem))
    cases = benchmark.cases("gpu" if kind == "cuda" else "cpu", config.grid_of(stem))
    assert len({case.cell for case in cases}) == 1
    assert {case.implementation for case in cases} == {session.neighbour, *own}


@pytest.mark.parametrize(
    ("session", "name", "lacking", "words"),
    [
        (ATTENTION, "works_on_a_stream", ("cpu", 2), "needs a CUDA device"),
        (OVERLAP, "waits_in_hooks", ("cuda", 1), "needs 2 devices"),
    ],
)
def test_case_that_a_machine_cannot_run_is_left_out_with_a_reason(session, name, lacking, words):
    (case,) = [case for case in session.cases if case.name == name]
    one, both = (
        Machine("here", kind, {"kind": kind, "devices": devices})
        for kind, devices in (lacking, ("cuda", 2))
    )
    assert session.left_out(case, one) == words and session.left_out(case, both) is None
