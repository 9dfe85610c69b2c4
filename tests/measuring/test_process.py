"""How the end of a worker is told, and what ends with it; these workers import no torch."""

import os
import shutil
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import pytest
from processes_of_toys import is_alive

import lmperf
from lmperf.measuring.process import Lost, Process
from lmperf.measuring.processes import family

pytestmark = pytest.mark.process

WORKER = """
import os, signal, time
from pathlib import Path

MARKS = Path(os.environ["TOY_MARKS"])

def mark(name):
    (MARKS / "part").write_text(str(os.getpid()))
    (MARKS / "part").rename(MARKS / name)

def daemon():
    os.setsid()
    if os.fork() == 0:
        mark("daemon")
        time.sleep(60)
    while not (MARKS / "daemon").exists():
        time.sleep(0.01)
    os._exit(0)

def main(pipe):
    mark("worker")
"""
RUN = """
import os, sys
from lmperf.measuring.process import Process

with Process(b"", (), os.environ, path=sys.argv[1:]) as process:
    process.receive(600.0)
"""


@pytest.fixture
def worker(tmp_path):
    """A function that writes the worker that runs these lines; returns its `sys.path`."""
    source, copy = Path(lmperf.__file__).parent, tmp_path / "lmperf"
    (copy / "measuring").mkdir(parents=True)
    copied = (
        "__init__",
        "errors",
        "measuring/__init__",
        "measuring/keeper",
        "measuring/process",
        "measuring/processes",
    )
    for name in copied:
        shutil.copy(source / f"{name}.py", copy / f"{name}.py")
    shorten(copy / "measuring/processes.py", "_CLEAN_UP_S = 3.0", "_CLEAN_UP_S = 1.0")

    def write(*lines):
        text = WORKER + "".join(f"    {line}\n" for line in lines)
        (copy / "measuring/worker.py").write_text(text)
        return [str(tmp_path)]

    return write


def shorten(path, before, after):
    """Replace a time in a copied module."""
    text = path.read_text()
    assert text.count(before) == 1
    path.write_text(text.replace(before, after))


def received(path):
    """The first message of a worker."""
    with Process(b"", (), os.environ, path) as process:
        return process.receive(30.0)


def marked(name):
    """The process id that a worker has left in a file."""
    return int((Path(os.environ["TOY_MARKS"]) / name).read_text())


@pytest.mark.parametrize(
    ("lines", "words"),
    [
        (["os._exit(3)"], "the process ended with exit code 3"),
        (["print('no route')", "os.abort()"], 'was ended by SIGABRT, after it wrote "no route"'),
        (["os.kill(os.getppid(), signal.SIGKILL)", "time.sleep(60)"], "was ended by SIGKILL"),
        (["os.closerange(3, 256)", "time.sleep(60)"], "the process closed its connection"),
    ],
    ids=["exit", "signal", "lost keeper", "closed files"],
)
def test_lost_worker_says_how_it_ended(worker, lines, words):
    with pytest.raises(Lost, match=words):
        received(worker(*lines))
    wait_for(lambda: not is_alive(marked("worker")))


def test_worker_that_only_prints_has_no_message_and_is_ended(worker):
    lines = ("if os.fork() == 0: daemon()", "os.wait()", "os.write(pipe, b'{}\\n')")
    path = worker(*lines, "while True: os.write(1, b'still here' * 100)")
    with Process(b"", (), os.environ, path) as process:
        assert process.receive(30.0) == {} and process.receive(0.5) is None
    assert not is_alive(marked("worker")) and not is_alive(marked("daemon"))


def test_worker_that_cannot_start_leaves_no_open_files(monkeypatch, worker):
    monkeypatch.setattr(sys, "executable", "/nowhere/python")
    before = {*os.listdir("/proc/self/fd")}
    with pytest.raises(FileNotFoundError):
        received(worker("pass"))
    assert {*os.listdir("/proc/self/fd")} == before


def test_daemon_of_a_worker_ends_with_it(worker):
    with pytest.raises(Lost):
        received(worker("if os.fork() == 0: daemon()", "os.wait()"))
    wait_for(lambda: not is_alive(marked("daemon")))


def test_ended_worker_may_clean_up_despite_ignored_interrupts(worker):
    lines = ("try:", "    mark('began')", "    time.sleep(60)", "finally:", "    mark('cleaned')")
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)  # as with & in a script
    try:
        with Process(b"", (), os.environ, worker(*lines)):
            wait_for(lambda: (Path(os.environ["TOY_MARKS"]) / "began").exists())
    finally:
        signal.signal(signal.SIGINT, before)
    assert marked("cleaned") and not is_alive(marked("worker"))


def test_stopped_worker_is_ended(worker):
    with Process(b"", (), os.environ, worker("os.kill(os.getpid(), signal.SIGSTOP)")):
        wait_for(lambda: is_stopped("worker"))
    assert not is_alive(marked("worker"))


def test_kill_9_of_a_run_ends_a_stopped_worker(worker):
    lines = ("if os.fork() == 0: daemon()", "os.wait()", "os.kill(os.getpid(), signal.SIGSTOP)")
    environ = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    run = subprocess.Popen([sys.executable, "-c", RUN, *worker(*lines)], env=environ)
    try:
        wait_for(lambda: is_stopped("worker"))
        pids = family(run.pid)
        assert len(pids) == 4  # keeper, worker and daemon
    finally:
        run.kill()
        run.wait()
    wait_for(lambda: not any(map(is_alive, pids)))


def is_stopped(name):
    with suppress(FileNotFoundError):
        return " T " in Path(f"/proc/{marked(name)}/stat").read_text()


def wait_for(condition):
    until = time.monotonic() + 10
    while not condition():
        assert time.monotonic() < until
        time.sleep(0.01)
