"""Runs that are killed, or start twice."""

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
from processes_of_toys import is_alive

from lmperf.measuring.process import family

pytestmark = pytest.mark.process

HERE = Path(__file__).parent


@pytest.fixture
def start(tmp_path):
    """Return a function that starts a run of implementations and sizes."""
    started = []

    def run(names="is_slow", size=""):
        environ = {**os.environ, "PYTHONPATH": os.pathsep.join([*sys.path, str(HERE)])}
        command = [sys.executable, str(HERE / "owner.py"), str(tmp_path), names, size]
        started.append(subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=environ))
        return started[-1]

    yield run
    for one in started:
        one.kill()
        one.wait()
        one.stderr.close()  # not `communicate`, which waits for processes that were left behind


def wait_for(condition, limit_s=60.0):
    until = time.monotonic() + limit_s
    while not condition():
        assert time.monotonic() < until
        time.sleep(0.02)


def test_kill_9_of_a_run_ends_a_stopped_worker(start):
    run = start("stops_with_children", "8")
    wait_for(lambda: len({*family(run.pid)}) == 5)  # keeper, worker, its child and a daemon
    pids = family(run.pid)
    run.kill()
    run.wait()
    wait_for(lambda: not any(map(is_alive, pids)), 10)


def test_of_two_runs_at_once_the_second_measures_the_rest(start, tmp_path):
    runs = start(size="8"), start()
    said = [run.communicate(timeout=120)[1] for run in runs]
    assert [run.returncode for run in runs] == [0, 0]
    assert sum("waiting for another measurement" in text for text in said) == 1
    lines = (tmp_path / "store/toy.csv").read_text().splitlines()
    assert len(lines) == 2 * 3  # each row once, below its column names
