"""Tests that workers end with the process that owns them, however that process ends."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from processes import is_running

from lmperf.measuring import follow
from lmperf.measuring.descendants import children, descendants, send

HERE = Path(__file__).parent
pytestmark = [
    pytest.mark.process,
    pytest.mark.skipif(sys.platform != "linux", reason="needs prctl and /proc of Linux"),
]


@pytest.fixture
def owner():
    """A process in its own session that measures an implementation that hangs."""
    process = subprocess.Popen(
        [sys.executable, HERE / "owner.py", "hangs"],
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(HERE), *sys.path])},
        start_new_session=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    process.family = set()
    yield process
    process.kill()
    send(process.family, signal.SIGKILL)
    process.communicate()


def family_once_it_says(owner, words):
    for line in owner.stdout:
        if line.startswith(words):
            owner.family = descendants(owner.pid) - {owner.pid}
            return owner.family
    raise AssertionError(f"never said: {words}")


def left_of(pids, limit_s=20.0):
    """The processes that still run after `limit_s`; returns at once when all have ended."""
    until = time.monotonic() + limit_s
    while (left := [pid for pid in pids if is_running(pid)]) and time.monotonic() < until:
        time.sleep(0.05)
    return left


def test_workers_end_with_a_killed_owner(owner):
    family = family_once_it_says(owner, "first call hangs")
    assert len(family) >= 4, "tracker, server and two workers"
    owner.kill()
    assert left_of(family) == []


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, -15)])
def test_interrupt_ends_owner_and_workers_quietly(owner, number, code):
    family = family_once_it_says(owner, "first call hangs")
    for _ in range(2):  # the second signal arrives while workers are being ended
        os.killpg(owner.pid, number)
    assert owner.wait(20) == code
    assert left_of(family) == []
    assert owner.stderr.read() == ""


def test_interrupt_during_server_start_is_quiet(owner):
    family_once_it_says(owner, "starting")
    while not any(b"forkserver" in command_of(pid) for pid in children(owner.pid)):
        time.sleep(0.001)
    os.killpg(owner.pid, signal.SIGINT)
    assert owner.wait(20) == 130
    assert owner.stderr.read() == ""


def command_of(pid):
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""


WAITS = "import time; print(flush=True); time.sleep(600)"


@pytest.mark.parametrize(("of", "ends"), [("os.getppid()", True), ("os.getpid()", False)])
def test_die_with_ends_a_process_only_with_its_parent(of, ends):
    code = f"import os; from lmperf.measuring.follow import die_with; die_with({of}); {WAITS}"
    parent = (
        "import subprocess, sys; child = subprocess.Popen([sys.executable, '-c', sys.argv[1]],"
        " stdout=subprocess.PIPE, stderr=subprocess.DEVNULL); child.stdout.readline();"
        " print(child.pid)"
    )
    got = subprocess.run([sys.executable, "-c", parent, code], capture_output=True, text=True)
    pid = int(got.stdout)
    try:
        assert left_of([pid], limit_s=20.0 if ends else 0.2) == ([] if ends else [pid])
    finally:
        if is_running(pid):
            os.kill(pid, signal.SIGKILL)


def test_import_changes_no_handler_and_loads_no_torch(monkeypatch):
    code = (
        "import sys, signal; before = signal.getsignal(signal.SIGINT)\n"
        "import lmperf.measuring.follow, lmperf.measuring.lock\n"
        "assert 'torch' not in sys.modules and signal.getsignal(signal.SIGINT) is before"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
    assert follow._OWNER not in os.environ


def test_server_without_owner_ends():
    code = "import lmperf.measuring.follow; print('goes on')"
    environment = {**os.environ, follow._OWNER: "1"}
    got = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True)
    assert (got.returncode, got.stdout) == (1, b"")


def test_exit_does_not_wait_for_running_workers():
    code = "workers = Workers('cpu'); workers.start(['']); workers._switch_to('other')"
    code = f"from lmperf.measuring.workers import Workers; {code}"
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)
