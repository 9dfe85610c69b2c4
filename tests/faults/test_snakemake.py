"""Tests of two runs in one checkout and of a killed run: a short form of `make torture`."""

import os
import re
import signal
import subprocess
import sys
import time

import pytest
from checkout import GROUPS, MACHINE, REPORT, ROOT, Checkout

pytestmark = [
    pytest.mark.process,
    pytest.mark.snakemake,
    pytest.mark.skipif(sys.platform != "linux", reason="needs prctl and /proc of Linux"),
]

MEASURE = (*REPORT[:-1], "attention")


@pytest.fixture
def checkout(tmp_path):
    return Checkout(tmp_path / "checkout")


def test_make_report_runs_the_command_tested_here():
    """Its hooks hold the lock of the checkout."""
    said = subprocess.run(["make", "-n", "report"], cwd=ROOT, capture_output=True, text=True)
    (line,) = (line for line in said.stdout.splitlines() if line.endswith(REPORT[-1]))
    assert line.partition("snakemake ")[2].split() == list(REPORT[2:])


def test_make_quick_is_make_report_with_another_preset():
    said = subprocess.run(["make", "-n", "quick"], cwd=ROOT, capture_output=True, text=True)
    (line,) = (line for line in said.stdout.splitlines() if REPORT[-1] in line)
    command = line.partition("snakemake ")[2].split()
    assert command == [*REPORT[2:], "--config", "preset=quick"]


def test_second_run_in_a_checkout_is_refused(checkout):
    first = checkout.start(*MEASURE)
    while not first.workers() and not first.is_over:
        time.sleep(0.05)
    second = checkout.run(*MEASURE)
    assert second.code and "Traceback" not in second.said
    assert "another run in this checkout is under way" in second.said
    assert first.wait().code == 0
    assert checkout.groups_measured() == GROUPS


def test_interrupted_run_says_in_one_line_that_nothing_is_lost(checkout):
    run = checkout.start(*MEASURE)
    saved = checkout.root / f"report/{MACHINE}/store/cost.csv"
    while not saved.exists() and not run.is_over:
        time.sleep(0.05)
    run.signal_all(signal.SIGINT)  # Ctrl-C reaches the workflow and its job
    run.wait()
    assert run.code and run.gone()
    after = run.said.partition("lmperf: interrupted; what was measured is stored")[2]
    assert after.splitlines()[0] == ", and the same command goes on from there", run.said
    assert not re.search("Error|Exception|Traceback", run.said), run.said
    again = checkout.run(*MEASURE)
    assert again.code == 0, again.said
    # Not `faults()`: `verify` depends on what else this machine does.
    assert checkout.groups_measured() == GROUPS, "what was saved is not measured again"
    assert {row["status"] for row in checkout.rows} == {"ok"}


def test_killed_run_leaves_no_process_and_can_be_completed(checkout):
    run = checkout.start()
    while not run.workers() and not run.is_over:
        time.sleep(0.05)
    os.kill(run.pid, signal.SIGKILL)
    run.wait()
    assert run.gone(), "job and workers end with their Snakemake"
    again = checkout.run()
    assert again.code == 0, again.said
    assert checkout.faults() == []
