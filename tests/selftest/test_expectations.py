"""Expected outcomes of planted faults, tried on rows that meet them and rows that do not."""

import os
import subprocess
import sys

import pandas as pd
import pytest

from lmperf.selftest import expectations
from lmperf.selftest.expectations import Hides, NothingLeft, Passes, Withheld, said

PHASES = ("forward", "backward", "forward_backward")


def rows(status="ok", reason=None, **columns):
    """A row for each phase."""
    ms = 1.0 if status == "ok" else None
    row = {"status": status, "state": None if ms else status, "reason": reason, "marks": None}
    return pd.DataFrame([{**row, "median_ms": ms, **columns}] * 3, index=PHASES)


NONE = rows().iloc[:0]


@pytest.mark.parametrize(
    ("found", "held"),
    [
        (rows("failed_check", "a timed call returned a wrong out"), True),
        (rows("nan", "the result is not finite"), False),
        (rows("crash", "a timed call returned a wrong out"), False),
        (rows("failed_check", "a timed call returned a wrong out", median_ms=1.0), False),
        (rows(), False),
        (NONE, False),
    ],
)
def test_withheld_row_needs_one_of_the_expected_reasons(found, held):
    assert Withheld(("a timed call", "inputs"))(found).held is held


def test_withheld_checks_only_the_phases_of_its_case():
    found = pd.concat([rows("failed_check", "inputs changed")[:1], rows()[1:]])
    outcome = Withheld(("inputs",), ("forward",))(found)
    assert outcome.held and "inputs changed" in outcome.words
    assert not Withheld(("inputs",))(found).held


@pytest.mark.parametrize("mark", [None, "reused_output"])
def test_row_that_passes_has_the_expected_mark_and_no_other(mark):
    expect, machine = Passes(mark), rows(marks="capped;loaded")
    assert expect(machine).held is (mark is None)
    assert expect(rows(marks="loaded;reused_output")).held is (mark is not None)
    assert not expect(rows(marks="settings")).held
    assert not expect(rows("crash", "it broke", marks=mark)).held and not expect(NONE).held


def test_process_that_is_left_behind_is_found(monkeypatch):
    argument = f"left-behind-by-this-test-{os.getpid()}"  # another test may run the self-test
    monkeypatch.setattr(expectations, "LEFT_BEHIND", argument)
    command = [sys.executable, "-c", "import time; print(flush=True); time.sleep(60)", argument]
    process = subprocess.Popen(command, stdout=subprocess.PIPE)
    try:
        process.stdout.readline()  # /proc has no command line until the process has begun
        outcome = NothingLeft()(rows())
        assert not outcome.held and "processes left behind: 1" in outcome.words
    finally:
        process.kill()
        process.communicate()
    assert NothingLeft()(rows()).held


@pytest.mark.parametrize(
    ("found", "held"),
    [
        (rows(hidden_share=0.02, exposed_ms=5.0), True),
        (rows(hidden_share=0.9, exposed_ms=5.0), False),
        (rows(hidden_share=0.0, exposed_ms=0.0), False),
        (rows("crash", "it broke"), False),
    ],
)
def test_hides_expects_exposed_communication(found, held):
    assert Hides(0.1)(found).held is held


def test_phases_with_the_same_words_are_joined():
    found = pd.concat([rows("crash", "it broke")[:1], rows()[1:]])
    assert said(found) == "forward: crash: it broke; backward and forward + backward: ok"
