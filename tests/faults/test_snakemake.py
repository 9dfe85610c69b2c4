"""What `make` runs, and what is left of a run that is interrupted or killed."""

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


@pytest.mark.parametrize(
    ("target", "more"), [("report", []), ("quick", ["--config", "preset=quick"])]
)
def test_make_runs_the_command_tested_here(target, more):
    """Its hooks hold the lock of the checkout."""
    said = subprocess.run(["make", "-n", target], cwd=ROOT, capture_output=True, text=True)
    (line,) = (line for line in said.stdout.splitlines() if "snakemake " in line)
    command = line.partition("snakemake ")[2].partition(";")[0]
    # Without a target, so that a report in a configured folder is made, too.
    assert command.split() == [*REPORT[2:-1], *more]


def test_stopped_runs_lose_nothing_and_leave_no_process(tmp_path):
    checkout = Checkout(tmp_path / "checkout")
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
    assert checkout.groups_stored() < GROUPS

    run = checkout.start(*MEASURE)
    while not run.workers() and not run.is_over:
        time.sleep(0.05)
    os.kill(run.pid, signal.SIGKILL)
    run.wait()
    assert run.gone(), "job and workers end with their Snakemake"

    again = checkout.run(*MEASURE)
    assert again.code == 0, again.said
    assert checkout.groups_stored() == GROUPS, "what was stored is not measured again"
    assert [row["status"] for row in checkout.rows] == ["ok"] * 2 * GROUPS
    assert not [path for path in (checkout.root / "report").rglob(".*") if path.is_file()]
