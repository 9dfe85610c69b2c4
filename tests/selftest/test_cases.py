"""Each case has its expected outcome: a fault is caught, and its honest twin passes."""

import gc
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
from lmperf.measuring import case_steps, rounds, supervisor
from lmperf.measuring.case_steps import CaseSteps
from lmperf.measuring.group import Group
from lmperf.measuring.isolation import Worlds
from lmperf.measuring.job import seed_of
from lmperf.measuring.ranks import Alone
from lmperf.reporting.selftest import HELD
from lmperf.selftest.cases import SESSIONS, STEM
from lmperf.selftest.run import run

ATTENTION, *_, OVERLAP = SESSIONS
# These change or end their process.
IN_A_WORKER = ("leaves_a_busy_thread", "slows_the_clock", "replaces_the_clock")
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
    gc.freeze()
    yield
    gc.unfreeze()
    torch.set_num_threads(threads)


def rows_of(case):
    """The rows of a case, by phase, of a group of its own that is timed for two slices a phase."""
    benchmark = load(STEM, {case.name: case.entry})
    planted = Case(tuple({**ATTENTION.cell, "d_head": 16}.items()), case.name)
    found = {}

    def tell(rows=(), phase=None, **_):
        for row in rows:
            found[phase] = {"state": None, "marks": None, **row}

    seed = seed_of(benchmark, [planted])
    steps = CaseSteps(benchmark, [planted], "cpu", Alone(), tell, Worlds())
    Group(steps, [planted], (), (), seed).run()
    frame = pd.DataFrame.from_dict(found, orient="index")
    return frame.reindex(columns=[*dict.fromkeys([*frame, "reason", "median_ms"])])


@pytest.mark.slow
@pytest.mark.parametrize("case", HERE, ids=lambda case: case.name)
def test_case_has_its_expected_outcome(case, monkeypatch):
    monkeypatch.setattr(rounds, "pace_of", lambda *_, **__: rounds.Pace(0.001, 5, 10))
    monkeypatch.setattr(rounds, "LOOKS", (1, 2))
    # The load of other tests takes a third of a second to tell, and has each phase timed twice.
    monkeypatch.setattr(case_steps, "Load", lambda _: SimpleNamespace(share=lambda: 0.0))
    outcome = case.expect.outcome(rows_of(case))
    assert outcome.held, outcome.words


@pytest.mark.slow
@pytest.mark.process
def test_harm_to_a_worker_is_found_by_the_whole_pipeline(monkeypatch, tmp_path):
    monkeypatch.setenv("LMPERF_LOCK", str(tmp_path / "lock"))
    monkeypatch.setattr(supervisor, "_MOST_ENDED", 1)
    config = Path(__file__).parents[2] / "config/config.yaml"
    project = Project(load_config(config, {"machine": "here", "preset": "cpu"}))
    cases = tuple(case for case in ATTENTION.cases if case.name in IN_A_WORKER)
    results = [*run(project, [replace(ATTENTION, cases=cases)])]
    assert {line["case"]: line["held"] for line in results} == dict.fromkeys(IN_A_WORKER, HELD), [
        line["outcome"] for line in results
    ]


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
