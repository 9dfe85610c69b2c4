"""Kill workers and their owner at random moments, and check what is left.

    LMPERF_FAULTS=50 python -m pytest tests/faults/test_workers.py

repeats each fault 50 times. A failure names the moment of the kill.
"""

import os
import random
import signal
import subprocess
import sys
import threading
import time
from multiprocessing import forkserver
from pathlib import Path

import pytest
from owner import small_group
from processes import is_running

from lmperf.measuring.descendants import children, descendants, send
from lmperf.measuring.supervisor import Supervisor

TRIES = range(int(os.environ.get("LMPERF_FAULTS", "1")))
OF_WORKERS = Path(__file__).parents[1] / "measuring"
pytestmark = [
    pytest.mark.process,
    pytest.mark.skipif(sys.platform != "linux", reason="needs prctl and /proc of Linux"),
]


@pytest.fixture(scope="module", params=["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
def supervisor(request):
    with Supervisor(request.param) as supervisor:
        yield supervisor


@pytest.fixture(scope="module")
def measure(supervisor):
    """Measure a group of cases over two workers; returns its rows and the seconds it took."""
    patch = pytest.MonkeyPatch()
    patch.setattr("lmperf.measuring.supervisor.twins_of", lambda assignments: {})

    def measure():
        began = time.monotonic()
        preset = "gpu" if supervisor.workers.device == "cuda" else "cpu"
        group = small_group("is_right", d_heads=[16, 32], preset=preset)
        rows = supervisor.measure(*group, seed=1)
        return rows, time.monotonic() - began

    yield measure
    patch.undo()


@pytest.fixture(scope="module")
def seconds(measure):
    """How many seconds an undisturbed group of cases takes."""
    measure()
    return measure()[1]


@pytest.mark.parametrize("number", TRIES)
def test_killed_worker_costs_no_row(supervisor, measure, seconds, number):
    moment, killed = random.uniform(0, seconds), []
    killer = threading.Thread(target=kill_one, args=(supervisor, moment, killed))
    killer.start()
    rows, _ = measure()
    killer.join()
    told = f"{killed} after {moment:.3f} of {seconds:.3f} s: {rows}"
    assert [row["status"] for row in rows] == ["ok"] * 8, told
    workers = {*supervisor.workers.pids}
    assert children(forkserver._forkserver._forkserver_pid) <= workers, told


def kill_one(supervisor, moment, killed):
    until = time.monotonic() + moment
    time.sleep(moment)
    while not killed and time.monotonic() < until + 60:
        if pids := supervisor.workers.pids:
            killed.append(random.choice(pids))
            send(killed, signal.SIGKILL)
            return
        time.sleep(0.01)


@pytest.mark.parametrize("number", TRIES)
def test_killed_owner_leaves_no_process(number, tmp_path):
    path = os.pathsep.join([str(OF_WORKERS), *sys.path])
    environment = {**os.environ, "PYTHONPATH": path, "LMPERF_LOCK": str(tmp_path / "lock")}
    command = [sys.executable, OF_WORKERS / "owner.py", "is_right"]
    owner = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True)
    steps = random.randrange(1, 40)  # covers start-up to timing
    for _ in range(steps):
        line = owner.stdout.readline()
    time.sleep(random.uniform(0, 0.1))
    family = descendants(owner.pid) - {owner.pid}
    owner.kill()
    owner.wait()  # not `communicate`, which waits for each process that has inherited the pipe
    owner.stdout.close()
    until = time.monotonic() + 20
    while (left := list(filter(is_running, family))) and time.monotonic() < until:
        time.sleep(0.02)
    send(left, signal.SIGKILL)
    assert not left, f"killed at step {steps}: {line}"
