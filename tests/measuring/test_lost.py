"""Workers that are lost: what is an implementation's doing, and what is not."""

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

from lmperf.measuring import group, losses
from lmperf.measuring.lock import MACHINE
from lmperf.measuring.process import WorkerProcess
from lmperf.measuring.rounds import Pace
from lmperf.measuring.supervisor import PROJECT, Supervisor, WorkerLost

linux = pytest.mark.skipif(sys.platform != "linux", reason="needs prctl and /proc of Linux")
ALONE = "twice, the second time in a process of its own"


class Watched(Supervisor):
    """A supervisor whose workers a test can end as somebody from outside does."""

    def __init__(self):
        self.steps, self.lines, self.started, self.kill_at = [], [], [], None
        super().__init__("cpu", self.step, note=self.lines.append)

    def step(self, words, case, phase):
        self.steps.append((words, case.implementation, phase))
        if self.kill_at and self.kill_at(words, case):
            self.kill_at = None
            for process in self._workers.values():
                if not process._stopped:
                    os.kill(process.pid, signal.SIGKILL)

    def reference(self):
        return 1.0  # which takes longer than all else here

    def _begin(self, host):
        super()._begin(host)
        self.started.append(host)


@pytest.fixture(scope="module")
def shared():
    with Watched() as supervisor:
        yield supervisor


@pytest.fixture
def supervisor(shared, monkeypatch):
    monkeypatch.setattr(group, "pace_of", lambda *_: Pace(1, 1, 0.05))
    monkeypatch.setattr(group, "_loaded", lambda timings: False)
    monkeypatch.setattr("lmperf.measuring.supervisor._twins", lambda places: {})
    shared.steps.clear()
    shared.lines.clear()
    shared.started.clear()
    shared.hung.clear()
    shared._lines = 0
    return shared


@pytest.fixture
def rows_of(supervisor):
    return lambda *names, **of_group: owner.rows_of(supervisor, *names, **of_group)


@pytest.mark.parametrize("words", ["preparing", "first call", "timing"])
def test_a_worker_that_is_killed_from_outside_costs_no_row(supervisor, words):
    benchmark, (first, second) = small_group(d_heads=[16, 32])
    supervisor.kill_at = lambda *step: step == (words, second)
    rows = supervisor.measure(benchmark, [first, second], seed=1)
    assert supervisor.kill_at is None, "it was killed"
    assert [row["status"] for row in rows] == ["ok"] * 4
    assert {*supervisor.started[-2:]} == {f"{second.name}, alone", PROJECT}, "both were prepared"
    assert supervisor.hosts == [PROJECT], "the other one until the group was through"


def kill(process):
    """End a worker, and lose what it may have said before: one is ready within milliseconds."""
    os.kill(process.pid, signal.SIGKILL)
    with contextlib.suppress(EOFError, ConnectionResetError):
        while True:
            process._connection.recv()


def test_a_worker_that_dies_at_the_reference_or_at_its_start_is_tried_again(
    supervisor, monkeypatch
):
    supervisor.start([PROJECT])
    os.kill(supervisor.pid_of(PROJECT), signal.SIGKILL)
    assert Supervisor.reference(supervisor) is not None
    supervisor.stop()
    wait, times = WorkerProcess.wait_until_ready, []

    def killed(process):
        times.append(kill(process))
        monkeypatch.setattr(WorkerProcess, "wait_until_ready", wait)
        wait(process)

    monkeypatch.setattr(WorkerProcess, "wait_until_ready", killed)
    supervisor.start([PROJECT])
    assert times and supervisor.facts


def test_a_worker_that_dies_whenever_it_starts_is_said(supervisor, monkeypatch):
    supervisor.stop()
    wait = WorkerProcess.wait_until_ready

    def killed(process):
        kill(process)
        wait(process)

    monkeypatch.setattr(WorkerProcess, "wait_until_ready", killed)
    with pytest.raises(WorkerLost, match="ended by SIGKILL"):
        supervisor.start([PROJECT])
    assert len(supervisor.started) == 2


def test_what_a_worker_held_is_prepared_again_when_it_was_lost_between(
    supervisor, rows_of, monkeypatch
):
    times = []

    def lose():
        if not times:
            times.append(os.kill(supervisor.pid_of(PROJECT), signal.SIGKILL))
        return Supervisor.reference(supervisor)

    monkeypatch.setattr(supervisor, "reference", lose)
    rows = rows_of()
    assert {row["status"] for row in rows.values()} == {"ok"}
    assert {*supervisor.started} == {PROJECT}, "no case was suspected"


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
def test_a_crash_is_one_that_repeats_alone(supervisor, rows_of, name, words):
    rows = rows_of(name)
    for phase in ("forward", "backward"):
        assert rows["eager", phase]["status"] == "ok"
        row = rows[name, phase]
        assert (row["status"], words in row["reason"]) == ("crash", True)
    assert ALONE in rows[name, "forward"]["reason"]
    alone = [host for host in supervisor.started if host.endswith("alone")]
    assert supervisor.started.count(name) == 1 and len(alone) == len(set(alone)) + 1


def test_two_time_outs_of_an_implementation_are_all_that_is_waited_for(supervisor, rows_of):
    began = time.monotonic()
    rows = rows_of("hangs", "hangs_with_a_grandchild", limit_s=1.5, d_heads=[16, 32, 64])
    waited = [step for step in supervisor.steps if step[0] == "first call" and "hangs" in step[1]]
    assert len(waited) == 4, "twice each"
    for name in ("hangs", "hangs_with_a_grandchild"):
        row = rows[name, "backward"]  # of the last cell
        assert row["status"] == "timeout"
        assert row["reason"] == "not tried: no answer in time twice before in this run"
    assert rows["eager", "backward"]["status"] == "ok"
    assert time.monotonic() - began > 6
    started = [int(line.split()[-1]) for line in supervisor.lines if "started" in line]
    assert len(started) == 2 and not any(map(is_running, started))
    assert rows_of("hangs")["hangs", "forward"]["reason"].startswith("not tried")


def pids_in(lines):
    return [int(line.split()[-1]) for line in lines if "writes: started" in line]


@linux
@pytest.mark.parametrize(
    ("name", "status"), [("forks_a_daemon", "ok"), ("ends_and_leaves_a_daemon", "crash")]
)
def test_a_daemon_ends_with_its_worker(supervisor, rows_of, name, status):
    rows = rows_of(name)
    assert {rows[name, phase]["status"] for phase in ("forward", "backward")} == {status}
    assert pids_in(supervisor.lines) and not any(map(is_running, pids_in(supervisor.lines)))


@linux
def test_a_daemon_is_stopped_while_others_are_in_turn(supervisor, rows_of, monkeypatch):
    states, pause = [], WorkerProcess.pause

    def paused(process):
        pause(process)
        states.extend(state_of(pid) for pid in pids_in(supervisor.lines))

    monkeypatch.setattr(WorkerProcess, "pause", paused)
    rows_of("forks_a_daemon")
    assert "T" in states and "S" not in states[-1:]


@linux
def test_what_a_worker_starts_has_neither_lock_nor_connection(supervisor, rows_of):
    kept = []

    def look(words, case):
        for pid in pids_in(supervisor.lines):
            kept.extend(os.readlink(file) for file in Path(f"/proc/{pid}/fd").iterdir())
        return False

    supervisor.kill_at = look
    rows_of("forks_a_daemon")
    assert kept and str(MACHINE.path) not in kept
    assert not [file for file in kept if file.startswith("socket")]


@pytest.mark.parametrize("name", ["writes_a_megabyte", "writes_binary"])
def test_what_is_written_is_capped_and_can_be_seen(supervisor, rows_of, name):
    rows = rows_of(name)
    assert {row["status"] for row in rows.values()} == {"ok"}
    assert 1 < len(supervisor.lines) <= 101 and all(map(str.isprintable, supervisor.lines))
    if name == "writes_a_megabyte":
        assert supervisor.lines[-1] == "what implementations write from here on is not shown"


def test_a_worker_that_closes_its_connection_is_not_waited_for(supervisor, rows_of):
    row = rows_of("closes_its_files")["closes_its_files", "forward"]
    assert row["status"] == "crash" and "closed its connection" in row["reason"]


def test_a_group_on_which_too_many_are_lost_is_given_up(supervisor, rows_of, monkeypatch):
    monkeypatch.setattr(losses, "_MOST_LOST", 1)
    with pytest.raises(losses.LostTooOften):
        rows_of("ends")
    supervisor.stop()


def test_what_was_timed_in_turn_is_timed_again_as_a_whole(supervisor, monkeypatch):
    seats, asked = [], group.GroupSeat.host_and_loop

    def lose_the_second(seat, call_ms):
        seats.append(seat.place.case)
        if len(seats) == 2:
            os.kill(supervisor.pid_of(PROJECT), signal.SIGKILL)
        return asked(seat, call_ms)

    monkeypatch.setattr(group.GroupSeat, "host_and_loop", lose_the_second)
    benchmark, cases = small_group(d_heads=[16, 32])
    benchmark.phases = ("forward",)
    rows = supervisor.measure(benchmark, cases, seed=1)
    assert [row["status"] for row in rows] == ["ok", "ok"] and len(seats) == 4
    assert len({row["together"] for row in rows}) == 1
