"""Expected outcomes of planted faults, tried on rows that meet them and rows that do not."""

import os
import subprocess
import sys

import numpy as np
import pytest

from lmperf.reporting.evidence import Evidence
from lmperf.selftest import expectations
from lmperf.selftest.expectations import (
    LEDGER_STEM,
    STEM,
    Ended,
    Found,
    Hides,
    Marked,
    NeighbourKept,
    NotFaster,
    NothingLeft,
    Perhaps,
    Reads,
    Withheld,
)

PHASES = ("forward", "backward", "forward_backward")
QUIET = dict.fromkeys(PHASES, 1.0)


def rows(name, ms=1.0, status="ok", reason=None, marks="", **columns):
    """A row for each phase, with rounds that vary by 0.1 %."""
    ok = status == "ok"
    rounds = ms * np.array([1.0, 1.001, 0.999, 1.0005, 1.0, 0.9995])
    row = {
        **{"seq_len": 512, "dtype": "float32", "implementation": name, "status": status},
        **{"reason": reason, "marks": marks, "together": "t", "median_ms": ms if ok else None},
        **{"rounds_ms": ";".join(map(repr, rounds.tolist())) if ok else None},
        **columns,
    }
    texts = {name: "" if value is None else str(value) for name, value in row.items()}
    return [{**texts, "phase": phase} for phase in PHASES]


def found(*lines, quiet=QUIET, stem=STEM):
    every = [row for line in lines for row in line]
    evidence = Evidence("here", {"environments": {}}, {stem: every})
    return Found(evidence, "planted", "eager", quiet, stem)


def red(reason, status="failed_check", name="planted"):
    return rows(name, status=status, reason=reason)


EAGER = rows("eager")
WITHHELD = Withheld(("a timed call", "inputs"))


@pytest.mark.parametrize(
    ("line", "held"),
    [
        (red("a timed call returned a wrong out"), True),
        (red("the result is not finite", "nan"), False),
        (red("a timed call returned a wrong out", "crash"), False),
        (rows("planted"), False),
    ],
)
def test_withheld_row_needs_one_of_the_expected_reasons(line, held):
    outcome = WITHHELD(found(EAGER, line))
    assert outcome.held is held
    assert str(line[0]["reason"] or "ok") in outcome.words


def test_withheld_checks_only_the_phases_of_its_case():
    lines = [red("inputs changed")[0], *rows("planted")[1:]]
    assert Withheld(("inputs",), ("forward",))(found(EAGER, lines)).held
    assert not WITHHELD(found(EAGER, lines)).held


@pytest.mark.parametrize("ratio", [1.1, 1.0, 0.9])
def test_selftest_verdict_equals_verdict_of_a_report(ratio):
    seen = found(EAGER, rows("planted", ratio))
    wanted = {1.1: "slower", 1.0: "same", 0.9: "faster"}[ratio]
    for verdict in ("slower", "same", "faster"):
        assert Reads((verdict,), "eager")(seen).held is (verdict == wanted)


def test_row_must_report_the_seconds_of_a_slow_first_call():
    expect = Reads(("same",), "eager", first_call_s=0.5)
    assert expect(found(EAGER, rows("planted", compile_s=0.6))).held
    assert not expect(found(EAGER, rows("planted", compile_s=0.1))).held
    assert not expect(found(EAGER, rows("planted"))).held


def test_every_phase_of_a_busy_machine_must_be_marked():
    expect = Reads(("unresolved",), "eager", marked="loaded")
    line = rows("planted", marks="capped;loaded")
    assert expect(found(EAGER, line)).held
    assert not expect(found(EAGER, [{**line[0], "marks": "capped"}, *line[1:]])).held


def test_ended_process_must_not_affect_the_other_row():
    line = red("the process ended with exit code 3", "crash")
    expect = Ended("crash", "exit code 3")
    assert expect(found(EAGER, line)).held
    assert not expect(found(red("lost", "crash", name="eager"), line)).held
    assert not expect(found(EAGER, red("no answer within 8 s", "timeout"))).held


@pytest.mark.parametrize("expect", [NeighbourKept(), NotFaster()])
def test_other_row_must_be_ok_and_as_fast_as_undisturbed(expect):
    line = rows("planted", 3.0)
    assert expect(found(EAGER, line)).held
    assert not expect(found(rows("eager", 2.0), line)).held
    assert not expect(found(red("raised", "crash", name="eager"), line)).held
    assert not expect(found(EAGER, line, quiet={})).held


def test_outcome_mentions_load_of_other_processes():
    assert "other load" in NeighbourKept()(found(rows("eager", 2.0, marks="loaded"), EAGER)).words


def test_expected_mark_must_be_on_a_row():
    line = rows("planted", 1.0, marks="reused_output")
    outcome = Marked("reused_output")(found(EAGER, line))
    assert outcome.held and "reused output" in outcome.words
    assert not Marked("reused_output")(found(EAGER, rows("planted", 1.0))).held


@pytest.mark.parametrize(
    ("lines", "held", "words"),
    [
        (rows("planted"), True, "ok, not detected this time"),
        ([*red("a timed call is wrong")[:1], *rows("planted")[1:]], True, "a timed call"),
        ([*red("no memory", "crash")[:1], *rows("planted")[1:]], False, "no memory"),
        (red("inputs changed"), False, "inputs changed"),
        ([], False, "no row"),
    ],
)
def test_fault_that_may_be_missed_is_withheld_or_ok(lines, held, words):
    outcome = Perhaps(("a timed call",), often=0.7)(found(EAGER, lines))
    assert outcome.held is held and words in outcome.words


def test_process_that_is_left_behind_is_found(monkeypatch):
    argument = f"left-behind-by-this-test-{os.getpid()}"  # another test may run the self-test
    monkeypatch.setattr(expectations, "LEFT_BEHIND", argument)
    command = [sys.executable, "-c", "import time; time.sleep(60)", argument]
    process = subprocess.Popen(command)
    try:
        outcome = NothingLeft()(found(EAGER, rows("planted", 1.0)))
        assert not outcome.held and "processes left behind: 1" in outcome.words
    finally:
        process.kill()
        process.wait()
    assert NothingLeft()(found(EAGER, rows("planted", 1.0))).held


def test_not_faster_fails_if_a_clock_was_replaced():
    assert not NotFaster()(found(EAGER, rows("planted", 0.001))).held
    assert NotFaster()(found(EAGER, red("its clock is wrong"))).held


@pytest.mark.parametrize(("share", "exposed", "held"), [(0.02, 5, True), (0.9, 5, False)])
def test_hides_expects_exposed_communication(share, exposed, held):
    seen = found(rows("planted", hidden_share=share, exposed_ms=exposed), stem=LEDGER_STEM)
    assert Hides(0.1)(seen).held is held


def test_hides_is_not_held_without_communication_or_ledger():
    hidden = rows("planted", hidden_share=0.0, exposed_ms=0)
    assert not Hides(0.1)(found(hidden, stem=LEDGER_STEM)).held
    assert not Hides(0.1)(found(red("it broke"), stem=LEDGER_STEM)).held
