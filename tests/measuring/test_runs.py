"""Runs that are interrupted, killed, or start twice."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from processes_of_toys import is_alive

from lmperf.measuring.process import family
from lmperf.measuring.store import Store

pytestmark = pytest.mark.process

HERE = Path(__file__).parent
CASE = ("size", "dtype", "implementation", "phase")


@pytest.fixture
def start(tmp_path):
    """Return a function that starts a run of implementations and sizes."""
    started = []

    def run(names="is_slow", size=""):
        environ = {**os.environ, "PYTHONPATH": os.pathsep.join([*sys.path, str(HERE)])}
        command = [sys.executable, str(HERE / "owner.py"), str(tmp_path / "toy.csv"), names, size]
        started.append(subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=environ))
        return started[-1]

    yield run
    for one in started:
        one.kill()
        one.communicate()


def stored(tmp_path):
    return Store(tmp_path / "toy.csv", CASE).read()[0]


def wait_for(condition, limit_s=60.0):
    until = time.monotonic() + limit_s
    while not condition():
        assert time.monotonic() < until
        time.sleep(0.02)


def after_first_group(run, tmp_path):
    """Wait until the first group is stored, and the second runs; return all processes."""
    wait_for(lambda: stored(tmp_path))
    time.sleep(0.3)
    return family(run.pid)


def finishes(start, tmp_path):
    """The same command measures the rest, and only that."""
    before = {row["size"]: row["measured_at"] for row in stored(tmp_path)}
    assert start().wait() == 0
    rows = stored(tmp_path)
    assert sorted(row["size"] for row in rows) == ["16", "32", "8"]
    assert all(row["measured_at"] == before.get(row["size"], row["measured_at"]) for row in rows)


@pytest.mark.parametrize("number, code", [(signal.SIGINT, 130), (signal.SIGKILL, -9)])
def test_an_ended_run_loses_only_the_group_in_flight(start, tmp_path, number, code):
    run = start()
    pids = after_first_group(run, tmp_path)
    rows = len(stored(tmp_path))
    run.send_signal(number)
    assert run.wait(20) == code
    wait_for(lambda: not any(map(is_alive, pids)), 5)
    assert len(stored(tmp_path)) == rows < 3
    finishes(start, tmp_path)


def test_kill_9_of_a_run_ends_a_daemon_of_an_implementation(start, tmp_path):
    run = start("leaves_a_daemon,is_slow")
    wait_for(lambda: (tmp_path / "daemon").exists())
    time.sleep(0.3)
    pids = [*family(run.pid), int((tmp_path / "daemon").read_text())]
    assert len(set(pids)) == 4 and all(map(is_alive, pids))  # keeper, worker, daemon
    run.kill()
    wait_for(lambda: not any(map(is_alive, pids)), 5)


def test_kill_9_of_a_worker_is_tried_once_more(start, tmp_path):
    run = start()
    os.kill(after_first_group(run, tmp_path)[2], signal.SIGKILL)
    _, said = run.communicate(timeout=90)
    assert run.returncode == 0 and "SIGKILL in size=" in said
    assert [row["status"] for row in stored(tmp_path)] == ["ok"] * 3


def test_of_two_runs_at_once_the_second_measures_the_rest(start, tmp_path):
    runs = start(size="8"), start()
    said = [run.communicate(timeout=120)[1] for run in runs]
    assert [run.returncode for run in runs] == [0, 0]
    assert sum("waiting for another measurement" in text for text in said) == 1
    lines = (tmp_path / "toy.csv").read_text().splitlines()
    assert len(lines) == 2 * 3  # each row once, below its column names


def test_sigstop_of_a_worker_is_a_hang(start, tmp_path):
    run = start("is_slow", "8")
    wait_for(lambda: (tmp_path / "slow").exists())
    os.kill(family(run.pid)[2], signal.SIGSTOP)
    assert run.wait(60) == 0
    assert [row["status"] for row in stored(tmp_path)] == ["timeout"]
