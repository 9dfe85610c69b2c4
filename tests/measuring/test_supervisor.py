"""Tests of the rows of a group of cases when a worker fails, and of workers' start and end."""

import fcntl
import os
import signal
import sys
from pathlib import Path

import pytest

from lmperf.benchmarks import load
from lmperf.measuring.group import Group
from lmperf.measuring.history import RunHistory
from lmperf.measuring.lock import MACHINE
from lmperf.measuring.process import WorkerProcess
from lmperf.measuring.supervisor import Supervisor
from lmperf.measuring.workers import PROJECT, TWIN, Workers

pytestmark = pytest.mark.process
GRID = {"batch": [2], "seq_len": [32], "d_head": [16], "dtype": ["float32"], "causal": [False]}


@pytest.fixture(scope="module")
def supervisor():
    with Supervisor("cpu") as supervisor:
        yield supervisor


@pytest.fixture(autouse=True)
def again_on_a_busy_machine(monkeypatch):
    """Time an implementation against itself even if its calls are long because of other load."""
    monkeypatch.setattr("lmperf.measuring.rounds.LONGEST_AGAIN_MS", float("inf"))


@pytest.fixture(autouse=True)
def no_twins(request, monkeypatch):
    """Leave out the second process for A/A intervals, which only the test named `noise` needs."""
    if "noise" not in request.node.name:
        monkeypatch.setattr("lmperf.measuring.supervisor._twins", lambda places: {})


def rows_of(supervisor, *names, limit_s=60.0):
    benchmark = load("attention", {name: f"faulty:{name}" for name in names})
    benchmark.limit_s = limit_s
    (group,) = benchmark.groups(benchmark.cases("cpu", {**GRID, "implementation": ["eager"]}))
    rows = supervisor.measure(benchmark, group, seed=1)
    return {(row["implementation"], row["phase"]): row for row in rows}


def test_every_implementation_has_one_row_per_phase(supervisor):
    rows = rows_of(supervisor)
    assert set(rows) == {("eager", "forward"), ("eager", "backward")}
    assert {row["status"] for row in rows.values()} == {"ok"}


def test_first_implementation_is_timed_against_itself(supervisor):
    row = rows_of(supervisor)["eager", "backward"]
    rounds, again = row["rounds_ms"].split(";"), row["again_ms"].split(";")
    assert len(rounds) == len(again) >= 5
    assert row["repetitions"] >= len(rounds)
    assert 0 < row["p20_ms"] <= row["median_ms"] <= row["p80_ms"]
    assert row["tflops"] == pytest.approx(row["flops"] / row["median_ms"] / 1e9)
    assert row["max_error"] <= row["error_bound"]
    assert row["saved_mib"] > row["resident_mib"] > 0


def test_noise_is_timed_in_two_processes_if_workers_differ(supervisor, monkeypatch):
    started, begin = [], Workers._begin

    def recorded(self, name):
        started.append(name)
        begin(self, name)

    monkeypatch.setattr(Workers, "_begin", recorded)
    rows = rows_of(supervisor, "is_right")
    # The project's worker runs already, unless this test is the first.
    assert [name for name in started if name != PROJECT] == ["is_right", TWIN]
    assert supervisor.workers.names == [PROJECT, TWIN]
    for phase in ("forward", "backward"):
        first, own = rows["eager", phase], rows["is_right", phase]
        assert own["again_ms"] == "" != first["again_ms"] != first["rounds_ms"]
        assert first["again_ms"].count(";") == first["rounds_ms"].count(";")
    started.clear()
    rows = rows_of(supervisor, "asks_for_a_pebibyte")
    assert supervisor.workers.names == [PROJECT], "repeated without a second process"
    assert len(started) > 1 and TWIN not in started
    assert rows["eager", "backward"]["again_ms"]


@pytest.mark.parametrize(
    ("name", "status", "words"),
    [
        ("segfaults", "crash", "SIGSEGV"),
        ("is_not_finite", "nan", "not finite"),
        ("drops_the_last_key", "failed_check", "differs from the float64 reference"),
    ],
)
def test_faulty_implementation_gets_row_others_are_measured(supervisor, name, status, words):
    rows = rows_of(supervisor, name)
    for phase in ("forward", "backward"):
        assert rows["eager", phase]["status"] == "ok"
        assert rows[name, phase]["status"] == status
        assert words in rows[name, phase]["reason"]
        assert "median_ms" not in rows[name, phase]


def test_out_of_memory_row_has_requested_and_free_bytes(supervisor):
    row = rows_of(supervisor, "asks_for_a_pebibyte")["asks_for_a_pebibyte", "forward"]
    assert row["status"] == "oom"
    assert row["requested_bytes"] == 2**50
    assert 0 < row["free_bytes"] < 2**50


def test_failed_phase_keeps_the_row_of_an_earlier_phase(supervisor):
    rows = rows_of(supervisor, "fails_in_backward")
    assert rows["fails_in_backward", "forward"]["status"] == "ok"
    assert rows["fails_in_backward", "backward"]["status"] == "oom"


@pytest.mark.parametrize(
    ("reference", "taken", "marked"),
    [
        ([1.0, 1.1], 1, False),
        ([1.0, 2.0, 1.1, 1.0], 2, False),  # recovered, and stays so
        ([1.0, 2.0, 1.1, 0.5], 2, True),  # drifts again during the repeat
        ([1.0, 2.0, 1.9], 1, True),  # not recovered: no repeat
        ([2.0, 1.0, 1.0, 1.0], 2, False),
    ],
)
def test_drifted_timings_are_repeated_once_machine_recovered(
    supervisor, monkeypatch, reference, taken, marked
):
    told, times = iter(reference), []
    monkeypatch.setattr(Group, "_reference", lambda self: next(told))
    monkeypatch.setattr(supervisor, "history", RunHistory())
    # Load by other processes would use up the repeats.
    monkeypatch.setattr("lmperf.measuring.group._loaded", lambda timings: False)
    time_phases = Group._time_phases
    monkeypatch.setattr(Group, "_time_phases", lambda self: (times.append(0), time_phases(self)))
    rows = rows_of(supervisor)
    assert len(times) == taken and not list(told)
    assert all(("drift" in row["marks"].split(";")) is marked for row in rows.values())


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc/PID/maps")
def test_workers_are_forked_from_server_with_torch(supervisor):
    servers = []
    for _ in range(2):
        supervisor.workers.stop()
        servers.append(parent_of(supervisor.workers._switch_to(PROJECT).pid))
    assert servers[0] == servers[1]
    assert "libtorch" in Path(f"/proc/{servers[0]}/maps").read_text()


def parent_of(pid):
    status = Path(f"/proc/{pid}/status").read_text()
    return next(int(line.split()[1]) for line in status.splitlines() if line.startswith("PPid"))


def test_supervisor_waits_for_machine_lock(supervisor):
    supervisor.workers.stop()
    held = open(MACHINE.path, "a")  # noqa: SIM115 - closed when the supervisor says that it waits
    fcntl.flock(held, fcntl.LOCK_EX)
    said = []

    def note(words):
        said.append(words)
        held.close()

    with Supervisor("cpu", note=note) as waiting:
        waiting.workers._switch_to(PROJECT)
        assert waiting.workers.facts
    (words,) = said
    assert words.startswith("waiting for another measurement on this machine")


def test_stopping_the_supervisor_ends_its_workers(supervisor):
    rows_of(supervisor)
    pid = supervisor.workers._switch_to(PROJECT).pid
    supervisor.workers.stop()
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


def test_interrupt_leaves_no_worker_and_no_lock(supervisor, monkeypatch):
    supervisor.workers.start([PROJECT, "other"])
    pids, end = supervisor.workers.pids, WorkerProcess.end

    def interrupted(process):
        signal.raise_signal(signal.SIGINT)
        end(process)

    monkeypatch.setattr(WorkerProcess, "end", interrupted)
    with pytest.raises(KeyboardInterrupt):
        supervisor.workers.stop()
    for pid in pids:
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)
    with open(MACHINE.path) as lock:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
