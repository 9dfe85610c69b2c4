"""Tests that cases of the selftest are complete, and every planted implementation has one."""

import importlib
import inspect
import pkgutil

import pytest

from lmperf.benchmarks import load
from lmperf.config import config_model
from lmperf.evidence.machine import Machine
from lmperf.selftest import planted
from lmperf.selftest.case import left_out
from lmperf.selftest.cases import CASES, SESSIONS

NAMES = [case.name for case in CASES]
# The parameters of a planted kernel and of a planted strategy.
SIGNATURES = (["q", "k", "v", "causal"], ["module"])


@pytest.mark.parametrize("case", CASES, ids=NAMES)
def test_texts_of_a_case_are_single_lines(case):
    for text in (case.does, case.why, case.expect.words):
        assert text.strip() == text and text and "\n" not in text
    assert case.why.endswith(".") and not case.does.endswith(".")


@pytest.mark.parametrize("case", CASES, ids=NAMES)
def test_case_names_a_callable_implementation(case):
    module, _, name = case.reference.partition(":")
    parameters = inspect.signature(getattr(importlib.import_module(module), name)).parameters
    assert [*parameters] in SIGNATURES


def test_every_planted_implementation_has_one_case():
    found = []
    for module in pkgutil.iter_modules(planted.__path__):
        content = vars(importlib.import_module(f"{planted.__name__}.{module.name}"))
        found += [name for name, value in content.items() if is_planted(value, module.name)]
    assert sorted(NAMES) == sorted(found)


def is_planted(value, module):
    """Whether a value is an implementation that the module defines."""
    if not inspect.isfunction(value) or not value.__module__.endswith(f".{module}"):
        return False
    parameters = [*inspect.signature(value).parameters]
    return not value.__name__.startswith("_") and parameters in SIGNATURES


@pytest.mark.parametrize("kind", ["cpu", "cuda"])
@pytest.mark.parametrize("session", SESSIONS, ids=lambda session: session.name)
def test_session_of_cases_is_one_valid_cell(session, kind):
    own = {case.name: case.reference for case in SESSIONS[session]}
    stem = session.stem
    content = {"grid": {stem: session.grid(kind)}, "implementations": {stem: own}}
    config = config_model().model_validate(content)
    benchmark = load(stem, config.external(stem))
    cases = benchmark.cases("gpu" if kind == "cuda" else "cpu", config.grid_of(stem))
    assert len({case.cell for case in cases}) == 1
    assert {case.implementation for case in cases} == {session.neighbour, *own}


def test_cuda_cases_are_left_out_on_cpu_with_a_reason():
    (stream,) = [case for case in CASES if case.name == "on_stream"]
    assert stream.left_out("cpu") == "needs a CUDA device" and stream.left_out("cuda") is None
    assert all(case.left_out("cuda") is None for case in CASES)


def test_ranked_cases_are_left_out_where_there_is_one_device():
    (session,) = [session for session in SESSIONS if session.name == "ranks"]
    one, two = (Machine("here", "cuda", {"kind": "cuda", "devices": n}) for n in (1, 2))
    assert left_out(session, SESSIONS[session][0], one) == "needs 2 devices"
    assert left_out(session, SESSIONS[session][0], two) is None
