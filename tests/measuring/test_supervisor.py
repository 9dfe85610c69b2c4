"""What becomes of a group when a worker meets a fault."""

import fcntl
import os
import signal
import sys
from pathlib import Path

import pytest

from lmperf.benchmarks import load
from lmperf.measuring.group import Group
from lmperf.measuring.lock import MACHINE
from lmperf.measuring.process import WorkerProcess
from lmperf.measuring.supervisor import PROJECT, TWIN, Supervisor

GRID = {"batch": [2], "seq_len": [32], "d_head": [16], "dtype": ["float32"], "causal": [False]}


@pytest.fixture(scope="module")
def supervisor():
    with Supervisor("cpu") as supervisor:
        yield supervisor


@pytest.fixture(autouse=True)
def no_twins(request, monkeypatch):
    """A second process of the same code takes time that no other test here is about."""
    if "noise" not in request.node.name:
        monkeypatch.setattr("lmperf.measuring.supervisor._twins", lambda places: {})


def rows_of(supervisor, *names, limit_s=60.0):
    benchmark = load("attention", {name: f"faulty:{name}" for name in names})
    benchmark.limit_s = limit_s
    (group,) = benchmark.groups(benchmark.cases("cpu", {**GRID, "implementation": ["eager"]}))
    rows = supervisor.measure(benchmark, group, seed=1)
    return {(row["implementation"], row["phase"]): row for row in rows}


def test_every_phase_of_every_implementation_has_one_row(supervisor):
    rows = rows_of(supervisor)
    assert set(rows) == {("eager", "forward"), ("eager", "backward")}
    assert {row["status"] for row in rows.values()} == {"ok"}


def test_times_are_of_rounds_in_turn_and_the_first_is_timed_against_itself(supervisor):
    row = rows_of(supervisor)["eager", "backward"]
    rounds, again = row["rounds_ms"].split(";"), row["again_ms"].split(";")
    assert len(rounds) == len(again) >= 5
    assert row["repetitions"] >= len(rounds)
    assert 0 < row["p20_ms"] <= row["median_ms"] <= row["p80_ms"]
    assert row["tflops"] == pytest.approx(row["flops"] / row["median_ms"] / 1e9)
    assert row["max_error"] <= row["error_bound"]
    assert row["saved_mib"] > row["resident_mib"] > 0


def test_noise_is_of_two_processes_where_several_have_a_part(supervisor, monkeypatch):
    started, begin = [], Supervisor._begin

    def told(self, host):
        started.append(host)
        begin(self, host)

    monkeypatch.setattr(Supervisor, "_begin", told)
    rows = rows_of(supervisor, "is_right")
    # That of the project's has been started before, unless this test is the first.
    assert [host for host in started if host != PROJECT] == ["is_right", TWIN]
    assert supervisor.hosts == [PROJECT, TWIN]
    for phase in ("forward", "backward"):
        first, own = rows["eager", phase], rows["is_right", phase]
        assert own["again_ms"] == "" != first["again_ms"] != first["rounds_ms"]
        assert first["again_ms"].count(";") == first["rounds_ms"].count(";")
    started.clear()
    rows = rows_of(supervisor, "asks_for_a_pebibyte")
    assert supervisor.hosts == [PROJECT], "measured again, and without a second process"
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
def test_a_fault_is_a_row_and_the_others_are_measured(supervisor, name, status, words):
    rows = rows_of(supervisor, name)
    for phase in ("forward", "backward"):
        assert rows["eager", phase]["status"] == "ok"
        assert rows[name, phase]["status"] == status
        assert words in rows[name, phase]["reason"]
        assert "median_ms" not in rows[name, phase]


def test_out_of_memory_says_what_was_asked_for_and_what_was_free(supervisor):
    row = rows_of(supervisor, "asks_for_a_pebibyte")["asks_for_a_pebibyte", "forward"]
    assert row["status"] == "oom"
    assert row["requested_bytes"] == 2**50
    assert 0 < row["free_bytes"] < 2**50


def test_a_phase_that_fails_leaves_the_phase_before_it(supervisor):
    rows = rows_of(supervisor, "fails_in_backward")
    assert rows["fails_in_backward", "forward"]["status"] == "ok"
    assert rows["fails_in_backward", "backward"]["status"] == "oom"


@pytest.mark.parametrize(
    ("reference", "taken", "marked"),
    [
        ([1.0, 1.1], 1, False),
        ([1.0, 2.0, 1.1, 1.0], 2, False),  # it is itself again, and stays so
        ([1.0, 2.0, 1.1, 0.5], 2, True),  # not for long
        ([1.0, 2.0, 1.9], 1, True),  # what would be taken again would be marked again
        ([2.0, 1.0, 1.0, 1.0], 2, False),
    ],
)
def test_what_a_drifting_machine_gave_is_taken_again_once_it_is_itself(
    supervisor, monkeypatch, reference, taken, marked
):
    told, times = iter(reference), []
    monkeypatch.setattr(supervisor, "reference", lambda: next(told))
    monkeypatch.setattr(supervisor, "_in_vain", 0)
    # Load beside the tests would use up the repeats that are for drift.
    monkeypatch.setattr("lmperf.measuring.group._loaded", lambda timings: False)
    time_all = Group._time_all
    monkeypatch.setattr(Group, "_time_all", lambda self: (times.append(0), time_all(self)))
    rows = rows_of(supervisor)
    assert len(times) == taken and not list(told)
    assert all(("drift" in row["marks"].split(";")) is marked for row in rows.values())


@pytest.mark.skipif(sys.platform != "linux", reason="/proc says what a process has loaded")
def test_workers_are_forked_from_one_server_that_has_torch(supervisor):
    servers = []
    for _ in range(2):
        supervisor.stop()
        servers.append(parent_of(supervisor._turn(PROJECT).pid))
    assert servers[0] == servers[1]
    assert "libtorch" in Path(f"/proc/{servers[0]}/maps").read_text()


def parent_of(pid):
    status = Path(f"/proc/{pid}/status").read_text()
    return next(int(line.split()[1]) for line in status.splitlines() if line.startswith("PPid"))


def test_one_measurement_at_a_time_on_a_machine(supervisor):
    supervisor.stop()
    held = open(MACHINE.path, "a")  # noqa: SIM115 - closed when the supervisor says that it waits
    fcntl.flock(held, fcntl.LOCK_EX)
    said = []

    def note(words):
        said.append(words)
        held.close()

    with Supervisor("cpu", note=note) as waiting:
        waiting._turn(PROJECT)
        assert waiting.facts
    (words,) = said
    assert words.startswith("waiting for another measurement on this machine")


def test_stopping_ends_what_the_worker_started(supervisor):
    rows_of(supervisor)
    pid = supervisor._turn(PROJECT).pid
    supervisor.stop()
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


def test_an_interrupt_leaves_no_worker_and_no_lock(supervisor, monkeypatch):
    supervisor.start([PROJECT, "other"])
    pids, end = [supervisor.pid_of(host) for host in supervisor.hosts], WorkerProcess.end

    def interrupted(process):
        signal.raise_signal(signal.SIGINT)
        end(process)

    monkeypatch.setattr(WorkerProcess, "end", interrupted)
    with pytest.raises(KeyboardInterrupt):
        supervisor.stop()
    for pid in pids:
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)
    with open(MACHINE.path) as lock:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
