"""Tests of two runs in one checkout and of a killed run: a short form of `make torture`."""

import fcntl
import os
import signal
import subprocess
import sys
import time

import pytest
from checkout import REPORT, ROOT, Checkout

pytestmark = [
    pytest.mark.process,
    pytest.mark.snakemake,
    pytest.mark.skipif(sys.platform != "linux", reason="needs prctl and /proc of Linux"),
]


@pytest.fixture(scope="module")
def checkout(tmp_path_factory):
    return Checkout(tmp_path_factory.mktemp("faults") / "checkout")


def test_make_report_runs_the_command_tested_here():
    """Its hooks hold the lock of the checkout."""
    said = subprocess.run(["make", "-n", "report"], cwd=ROOT, capture_output=True, text=True)
    (line,) = (line for line in said.stdout.splitlines() if line.endswith(REPORT[-1]))
    assert line.partition("snakemake ")[2].split() == list(REPORT[2:])


def test_second_run_in_a_checkout_is_refused(checkout):
    held = os.open(checkout.root, os.O_RDONLY)
    try:
        fcntl.flock(held, fcntl.LOCK_EX)  # as a running report does
        second = checkout.run()
    finally:
        os.close(held)
    assert second.code == 2 and "Traceback" not in second.said
    assert "another run in this checkout is under way" in second.said
    assert not (checkout.root / "report").exists()


def test_killed_run_leaves_no_process_and_can_be_completed(checkout):
    run = checkout.start()
    until = time.monotonic() + 120
    while not run.workers() and not run.is_over and time.monotonic() < until:
        time.sleep(0.05)
    os.kill(run.pid, signal.SIGKILL)
    run.wait()
    assert run.gone(), "job and workers end with their Snakemake"
    again = checkout.run()
    assert again.code == 0, again.said
    assert checkout.faults() == []
