"""Tests of the rows of a group of cases when a worker fails, and of workers' start and end."""

import fcntl
import os
import signal
import sys
from pathlib import Path

import pytest

from lmperf.benchmarks import load
from lmperf.gate import UNCHECKED
from lmperf.measuring import twins
from lmperf.measuring.lock import MACHINE
from lmperf.measuring.process import WorkerLost, WorkerProcess
from lmperf.measuring.rounds import LEAST_ROUNDS
from lmperf.measuring.supervisor import Supervisor
from lmperf.measuring.twins import TWIN
from lmperf.measuring.workers import PROJECT, Workers

pytestmark = pytest.mark.process
GRID = {"batch": [2], "seq_len": [32], "d_head": [16], "dtype": ["float32"], "causal": [False]}


@pytest.fixture(scope="module")
def supervisor():
    with Supervisor("cpu") as supervisor:
        yield supervisor


@pytest.fixture(autouse=True)
def no_twins(request, monkeypatch):
    """Leave out the second process for A/A tests, which only the tests named `twin` need."""
    if "twin" not in request.node.name:
        monkeypatch.setattr("lmperf.measuring.supervisor.twins_of", lambda assignments: {})


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


def test_row_of_a_timed_phase_has_its_statistics(supervisor):
    row = rows_of(supervisor)["eager", "backward"]
    assert row["repetitions"] >= row["rounds_ms"].count(";") + 1 >= LEAST_ROUNDS
    assert 0 < row["least_ms"] <= row["p20_ms"] <= row["median_ms"] <= row["p80_ms"]
    assert row["tflops"] == pytest.approx(row["flops"] / row["median_ms"] / 1e9)
    assert row["max_error"] <= row["error_bound"]
    assert row["saved_mib"] > row["resident_mib"] > 0
    assert row["python_us"] > 0 and row["host_reference"] >= 1 and row["reference"] > 0


def recorded(monkeypatch):
    started, begin = [], Workers._begin

    def recording(self, name):
        started.append(name)
        begin(self, name)

    monkeypatch.setattr(Workers, "_begin", recording)
    return started


@pytest.mark.parametrize("names", [(), ("is_right",)])
def test_twin_process_gives_the_noise_of_the_first_case(supervisor, monkeypatch, names):
    started = recorded(monkeypatch)
    rows = rows_of(supervisor, *names)
    # The project's worker runs already, unless this test is the first.
    assert [name for name in started if name != PROJECT] == [*names, TWIN]
    assert supervisor.workers.names == [PROJECT], "the second process outlived its group"
    for phase in ("forward", "backward"):
        first = rows["eager", phase]
        assert first["again_ms"] != first["rounds_ms"]
        assert first["again_ms"].count(";") == first["rounds_ms"].count(";")
        assert not any("again_ms" in rows[name, phase] for name in names)


def test_twin_is_left_out_if_memory_is_short(supervisor, monkeypatch):
    monkeypatch.setattr(twins, "_PEAKS", 1e9)
    started = recorded(monkeypatch)
    rows = rows_of(supervisor)
    assert {row["status"] for row in rows.values()} == {"ok"} and TWIN not in started
    assert not any("again_ms" in row for row in rows.values())


@pytest.mark.parametrize("request_of_twin", ["prepare", "slice"])
def test_failed_twin_costs_only_the_noise(supervisor, monkeypatch, request_of_twin):
    steps, ask = [], Workers.ask

    def failing(self, name, *request, **more):
        if (name, request[0]) == (TWIN, request_of_twin):
            self.end(name)
            raise WorkerLost({"status": "oom"})
        steps.append((name, request[0]))
        return ask(self, name, *request, **more)

    monkeypatch.setattr(Workers, "ask", failing)
    rows = rows_of(supervisor)
    assert {row["status"] for row in rows.values()} == {"ok"}
    assert not any("again_ms" in row for row in rows.values())
    assert steps.count((PROJECT, "prepare")) == 1, "the case was prepared again"
    assert supervisor.workers.names == [PROJECT]


def test_case_is_retried_without_twins_if_memory_is_short(supervisor, monkeypatch):
    failed, ask = [], Workers.ask

    def failing(self, name, *request, **more):
        if name == PROJECT and request[0] == "slice" and TWIN in self.names:
            failed.append(name)
            self.end(name)
            raise WorkerLost({"status": "oom"})
        return ask(self, name, *request, **more)

    monkeypatch.setattr(Workers, "ask", failing)
    rows = rows_of(supervisor)
    assert {row["status"] for row in rows.values()} == {"ok"} and failed == [PROJECT]


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


@pytest.mark.parametrize("fits", [True, False])
def test_case_that_lacks_memory_beside_others_is_measured_alone(supervisor, monkeypatch, fits):
    supervisor.workers.stop()
    asked, ask = [], Workers.ask

    def failing(self, name, *request, **more):
        if (name, request[0]) == ("is_right", "prepare"):
            asked.append(self.names)
            if not fits or PROJECT in self.names:
                self.end(name)
                raise WorkerLost({"status": "oom", "requested_bytes": len(asked)})
        return ask(self, name, *request, **more)

    monkeypatch.setattr(Workers, "ask", failing)
    rows = rows_of(supervisor, "is_right")
    first, second = (rows["is_right", phase] for phase in ("forward", "backward"))
    assert [PROJECT in names for names in asked] == [True, False]
    assert first["status"] == second["status"] == ("ok" if fits else "oom")
    assert first.get("requested_bytes") == (None if fits else 2)
    assert rows["eager", "forward"]["status"] == "ok"
    assert rows["eager", "forward"]["together"] != first.get("together")


def test_case_whose_check_lacks_memory_is_withheld(supervisor):
    rows = rows_of(supervisor, "fits_once")
    assert rows["fits_once", "forward"]["status"] == "failed_check"
    assert rows["fits_once", "forward"]["reason"] == UNCHECKED
    assert rows["eager", "forward"]["status"] == "ok"


def test_failed_phase_keeps_the_row_of_an_earlier_phase(supervisor):
    rows = rows_of(supervisor, "fails_in_backward")
    assert rows["fails_in_backward", "forward"]["status"] == "ok"
    assert rows["fails_in_backward", "backward"]["status"] == "oom"


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
