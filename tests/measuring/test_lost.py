"""Tests of lost workers: which losses count as crashes of an implementation."""

import contextlib
import os
import signal
import sys
import time
from pathlib import Path

import owner
import pytest
from owner import small_group
from processes import is_running, state_of

from lmperf.measuring import group, history
from lmperf.measuring import workers as workers_module
from lmperf.measuring.assigned import AssignedCases
from lmperf.measuring.lock import MACHINE
from lmperf.measuring.process import WorkerProcess
from lmperf.measuring.readings import Reading, References
from lmperf.measuring.rounds import Pace
from lmperf.measuring.supervisor import Supervisor
from lmperf.measuring.workers import PROJECT, Workers, WorkerStartError

pytestmark = pytest.mark.process
linux = pytest.mark.skipif(sys.platform != "linux", reason="needs prctl and /proc of Linux")
ALONE = "twice, the second time in a process of its own"


class RecordedWorkers(Workers):
    """Workers that record their steps and that a test can kill as another process would."""

    def __init__(self):
        self.steps, self.lines, self.started, self.kill_at = [], [], [], None
        super().__init__("cpu", self.step, self.lines.append)

    def step(self, words, case, phase):
        self.steps.append((words, case and case.implementation, phase))
        if self.kill_at and self.kill_at(words, case):
            self.kill_at = None
            for process in self._processes.values():
                if not process.is_paused:
                    os.kill(process.pid, signal.SIGKILL)

    def reading(self, request):
        return Reading(1.0, 1.0)  # the references would take longer than everything else here

    def _begin(self, name):
        super()._begin(name)
        self.started.append(name)


@pytest.fixture(scope="module")
def shared():
    with Supervisor("cpu") as supervisor:
        supervisor.workers = RecordedWorkers()
        yield supervisor


@pytest.fixture
def supervisor(shared, monkeypatch):
    monkeypatch.setattr(group, "pace_of", lambda *_: Pace(1, 1, 0.05))
    monkeypatch.setattr(group, "MOST_TAKES", 1)  # other tests load the machine
    monkeypatch.setattr("lmperf.measuring.supervisor.twins_of", lambda assignments: {})
    shared.workers.steps.clear()
    shared.workers.lines.clear()
    shared.workers.started.clear()
    shared.history.timeouts.clear()
    shared.history.references = References("cpu", {})
    shared.workers._lines = 0
    return shared


@pytest.fixture
def workers(supervisor):
    yield supervisor.workers
    supervisor.workers.kill_at = None


@pytest.fixture
def rows_of(supervisor):
    return lambda *names, **of_group: owner.rows_of(supervisor, *names, **of_group)


@pytest.mark.parametrize("words", ["preparing", "first call", "timing"])
def test_worker_killed_from_outside_costs_no_row(supervisor, workers, words):
    benchmark, (first, second) = small_group(d_heads=[16, 32])
    workers.kill_at = lambda *step: step == (words, second)
    rows = supervisor.measure(benchmark, [first, second], seed=1)
    assert workers.kill_at is None, "no worker was killed"
    assert [row["status"] for row in rows] == ["ok"] * 4
    assert {*workers.started[-2:]} == {f"{second.name}, alone", PROJECT}, (
        "the worker of the other case was not replaced"
    )
    assert workers.names == [PROJECT], "the isolated worker outlived the group"


def kill(process):
    """Kill a worker and drop its messages: the worker may have become ready already."""
    os.kill(process.pid, signal.SIGKILL)
    with contextlib.suppress(EOFError, ConnectionResetError):
        while True:
            process._connection.recv()


def test_worker_killed_at_start_or_reference_is_restarted(workers, monkeypatch):
    workers.start([PROJECT])
    os.kill(workers.pid_of(PROJECT), signal.SIGKILL)
    assert Workers.reading(workers, "host_reference") is not None
    workers.stop()
    wait, times = WorkerProcess.wait_until_ready, []

    def killed(process):
        times.append(kill(process))
        monkeypatch.setattr(WorkerProcess, "wait_until_ready", wait)
        wait(process)

    monkeypatch.setattr(WorkerProcess, "wait_until_ready", killed)
    workers.start([PROJECT])
    assert times and workers.facts


def test_worker_that_never_starts_raises(workers, monkeypatch):
    workers.stop()
    wait = WorkerProcess.wait_until_ready

    def killed(process):
        kill(process)
        wait(process)

    monkeypatch.setattr(WorkerProcess, "wait_until_ready", killed)
    with pytest.raises(WorkerStartError, match="ended by SIGKILL"):
        workers.start([PROJECT])
    assert len(workers.started) == 2


@pytest.mark.parametrize("at", [1, 6, 7])  # before, between and after the rounds
def test_cases_of_replaced_worker_are_prepared_again(workers, rows_of, monkeypatch, at):
    times = []

    def lose(request):
        times.append(request)
        if len(times) == at:
            os.kill(workers.pid_of(PROJECT), signal.SIGKILL)
        return Workers.reading(workers, "host_reference")

    monkeypatch.setattr(workers, "reading", lose)
    rows = rows_of()
    assert len(times) > at
    assert {row["status"] for row in rows.values()} == {"ok"}
    assert {*workers.started} == {PROJECT}, "a case was isolated"


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("ends", "exit code 3"),
        ("raises", "no kernel for this"),
        ("reads_what_is_not_its_own", "SIGSEGV"),
        ("raises_what_cannot_be_encoded", r"für \ud800 \x00 \x1b[31m \u202e"),
        ("says_why_and_ends", 'exit code 7, after it wrote "no kernel image for this device"'),
    ],
)
def test_crash_counts_only_if_it_repeats_in_its_own_worker(workers, rows_of, name, words):
    rows = rows_of(name)
    for phase in ("forward", "backward"):
        assert rows["eager", phase]["status"] == "ok"
        row = rows[name, phase]
        assert (row["status"], words in row["reason"]) == ("crash", True)
    assert ALONE in rows[name, "forward"]["reason"]
    alone = [one for one in workers.started if one.endswith("alone")]
    assert workers.started.count(name) == 1 and len(alone) == len(set(alone)) + 1


def test_implementation_is_skipped_after_two_timeouts(workers, rows_of):
    began = time.monotonic()
    rows = rows_of("hangs", "hangs_with_a_grandchild", limit_s=1.5, d_heads=[16, 32, 64])
    waited = [step for step in workers.steps if step[0] == "first call" and "hangs" in step[1]]
    assert len(waited) == 4, "each twice, in the first two cells"
    for name in ("hangs", "hangs_with_a_grandchild"):
        row = rows[name, "backward"]  # of the last cell
        assert row["status"] == "timeout"
        assert row["reason"] == "skipped: it timed out twice before in this run"
    assert rows["eager", "backward"]["status"] == "ok"
    assert time.monotonic() - began > 6
    started = [int(line.split()[-1]) for line in workers.lines if "started" in line]
    assert len(started) == 2 and not any(map(is_running, started))
    assert rows_of("hangs")["hangs", "forward"]["reason"].startswith("skipped: ")


def test_phases_after_one_that_hung_are_not_tried(workers, rows_of):
    rows = rows_of("hangs", limit_s=1.5)
    reasons = [rows["hangs", phase]["reason"] for phase in ("forward", "backward")]
    assert reasons == ["no answer within 1.5 s", "no answer within 1.5 s in its forward"]
    waited = [step for step in workers.steps if step[0] == "first call" and "hangs" in step[1]]
    assert len(waited) == 1
    assert rows["eager", "backward"]["status"] == "ok"


def pids_in(lines):
    return [int(line.split()[-1]) for line in lines if "writes: started" in line]


@linux
@pytest.mark.parametrize(
    ("name", "status"), [("forks_a_daemon", "ok"), ("ends_and_leaves_a_daemon", "crash")]
)
def test_daemon_ends_with_its_worker(workers, rows_of, name, status):
    rows = rows_of(name)
    assert {rows[name, phase]["status"] for phase in ("forward", "backward")} == {status}
    assert pids_in(workers.lines) and not any(map(is_running, pids_in(workers.lines)))


@linux
def test_daemon_is_paused_while_others_are_timed(workers, rows_of, monkeypatch):
    states, pause = [], WorkerProcess.pause

    def paused(process):
        pause(process)
        states.extend(state_of(pid) for pid in pids_in(workers.lines))

    monkeypatch.setattr(WorkerProcess, "pause", paused)
    rows_of("forks_a_daemon")
    assert "T" in states and "S" not in states[-1:]


@linux
def test_child_of_worker_inherits_no_lock_or_connection(workers, rows_of):
    kept = []

    def look(words, case):
        for pid in pids_in(workers.lines):
            kept.extend(os.readlink(file) for file in Path(f"/proc/{pid}/fd").iterdir())
        return False

    workers.kill_at = look
    rows_of("forks_a_daemon")
    assert kept and str(MACHINE.path) not in kept
    assert not [file for file in kept if file.startswith("socket")]


@pytest.mark.parametrize("name", ["writes_a_megabyte", "writes_binary"])
def test_worker_output_is_limited_and_printable(workers, rows_of, name):
    rows = rows_of(name)
    assert {row["status"] for row in rows.values()} == {"ok"}
    assert 1 < len(workers.lines) <= 101 and all(map(str.isprintable, workers.lines))
    if name == "writes_a_megabyte":
        assert workers.lines[-1] == "further output of implementations is not shown"


def test_closed_connection_counts_as_a_crash_at_once(supervisor, rows_of):
    row = rows_of("closes_its_files")["closes_its_files", "forward"]
    assert row["status"] == "crash" and "closed its connection" in row["reason"]


def test_group_that_loses_too_many_workers_is_given_up(workers, rows_of, monkeypatch):
    monkeypatch.setattr(history, "_MOST_LOST", 1)
    with pytest.raises(history.TooManyWorkersLost):
        rows_of("ends")
    workers.stop()


def test_lost_worker_repeats_all_entries_of_the_phase(supervisor, workers, monkeypatch):
    asked, ask = [], AssignedCases.ask_timing

    def kill_at_second_entry(cases, entry, request, *arguments, **more):
        if request == "host_and_loop":
            asked.append(entry)
            if len(asked) == 2:
                os.kill(workers.pid_of(PROJECT), signal.SIGKILL)
        return ask(cases, entry, request, *arguments, **more)

    monkeypatch.setattr(AssignedCases, "ask_timing", kill_at_second_entry)
    benchmark, cases = small_group(d_heads=[16, 32])
    benchmark.phases = ("forward",)
    rows = supervisor.measure(benchmark, cases, seed=1)
    assert [row["status"] for row in rows] == ["ok", "ok"] and len(asked) == 4
    assert len({row["together"] for row in rows}) == 1


def test_interrupt_waits_until_a_worker_has_started(monkeypatch):
    def interrupted_start(*_):
        signal.raise_signal(signal.SIGINT)
        return "the started worker"

    monkeypatch.setattr(workers_module, "WorkerProcess", interrupted_start)
    started = Workers("cpu")
    with pytest.raises(KeyboardInterrupt):
        started._begin(PROJECT)
    assert started._processes == {PROJECT: "the started worker"}
