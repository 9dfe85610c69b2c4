"""Tests of how a worker checks and times its cases, with a benchmark that the test scripts."""

import time
from types import SimpleNamespace

import pytest
import torch

from lmperf.benchmark import Case, Phase, Workload, WrongResult
from lmperf.gate import UNCHECKED, Gate
from lmperf.measuring import footprint, guards, prepared
from lmperf.measuring.faults import Poisoned
from lmperf.measuring.prepared import Prepared

CASE = Case((("n", 1),), "mine")
PHASES = ("forward", "backward")
MIB = 2**20


def passed(phase="forward", result=None):
    return Gate({"out": 0.0}, {"out": 1.0})


def failing(*wrong):
    """A gate that fails in the phases in `wrong`."""
    return lambda phases: Gate({"out": 2.0 if phases[0] in wrong else 0.5}, {"out": 1.0})


@pytest.fixture
def worker():
    """A function that prepares a workload; returns the worker and the message of each phase."""

    def make(run=lambda state: torch.zeros(1), gate=None, check=None, clock="kernel", external=()):
        workload = Workload({name: Phase(run) for name in PHASES}, gate=gate, check=check)
        benchmark = SimpleNamespace(
            clock=clock,
            is_check=True,
            phases=PHASES,
            phases_of=lambda case: PHASES,
            external=external,
            prepare=lambda case, device, seed, shared: workload,
        )
        said = {}

        def send(kind, case, phase, what):
            if kind in ("row", "ready"):
                said[phase] = {"kind": kind, **what}

        made = Prepared(benchmark, [CASE], (), "cpu", 0, send)
        made.prepare()
        return made, said

    return make


def test_wrong_gradient_withholds_the_backward_alone(worker):
    _, said = worker(gate=failing("backward"))
    assert [said[phase]["kind"] for phase in PHASES] == ["ready", "row"]
    assert said["forward"]["error_out"] == 0.5
    assert (said["backward"]["status"], said["backward"]["error_out"]) == ("failed_check", 2.0)


def test_wrong_forward_withholds_every_phase(worker):
    _, said = worker(gate=failing("forward"))
    assert [said[phase]["status"] for phase in PHASES] == ["failed_check"] * 2


def test_invalid_gradient_withholds_the_backward_alone(worker):
    def gate(phases):
        if "backward" in phases:
            raise WrongResult("dq has the dtype torch.float64")
        return passed()

    _, said = worker(gate=gate)
    assert [said[phase]["kind"] for phase in PHASES] == ["ready", "row"]
    assert said["backward"]["reason"] == "dq has the dtype torch.float64"


def test_cached_memory_is_freed_before_each_gate(worker, monkeypatch):
    order = []
    monkeypatch.setattr(prepared, "_empty_cache", order.append)
    worker(gate=lambda phases: order.append(phases[0]) or passed())
    assert order == ["cpu", "forward", "cpu", "backward"]


@pytest.mark.parametrize(
    ("calls_that_fit", "row"),
    [(1, {"status": "oom"}), (2, {"status": "failed_check", "reason": UNCHECKED})],
)
def test_step_lacks_memory_only_if_its_second_call_does(worker, calls_that_fit, row):
    """The first train step runs without the optimizer's state, so it may fit when others do not."""
    calls = []

    def run(state):
        calls.append(1)
        fits = len(calls) <= calls_that_fit * len(PHASES)
        return torch.empty(1 if fits else 2**50, dtype=torch.uint8)

    with pytest.raises(Poisoned) as fault:
        worker(run, gate=lambda phases: run(None), clock="step")
    assert fault.value.row.items() >= row.items()


def test_any_call_of_a_slice_may_be_the_checked_one(worker):
    calls, checked = [], set()

    def check(phase, result):
        checked.add(len(calls))
        calls.clear()
        return passed()

    made, _ = worker(lambda state: calls.append(1) or torch.zeros(1), check=check)
    for _ in range(200):
        calls.clear()
        assert len(made.slice(CASE, "forward", 5, True)["times"]) >= 5
    assert checked == {1, 2, 3, 4, 5}
    checked.clear()
    assert len(made.slice(CASE, "forward", 5, False)["times"]) == 5 and not checked


def test_slice_interval_is_told_by_the_clock_of_its_calls(worker, monkeypatch):
    made, _ = worker()
    monkeypatch.setattr(prepared.clock, "now", lambda: time.perf_counter_ns() // 2)
    before = time.perf_counter_ns()
    began, ended = made.slice(CASE, "forward", 3, False)["interval_ns"]
    assert began <= ended < before


@pytest.mark.slow
@pytest.mark.parametrize("every", [1, 7])
def test_leak_withholds_its_phase(worker, every):
    kept, calls = [], []

    def leak(state):
        calls.append(1)
        if len(calls) % every == 0:
            kept.append(torch.zeros(MIB // 4))
        return torch.zeros(1)

    _, said = worker(leak)
    assert "memory grows" in said["forward"]["reason"]


def test_cache_and_garbage_are_no_leak(worker):
    cache, size = {}, MIB // 4

    def honest(state):
        cycle = [torch.zeros(size)]
        cycle.append(cycle)
        return cache.setdefault(len(cache) % 2, torch.zeros(size)) + 1

    _, said = worker(honest)
    assert {said[phase]["kind"] for phase in PHASES} == {"ready"}


@pytest.mark.slow
def test_slow_first_use_of_a_dispatch_mode_hides_no_leak(monkeypatch):
    count, slow, kept = footprint.LiveTensors.__torch_dispatch__, [True], []

    def imports_first(mode, *arguments):
        if slow.pop() if slow else False:
            time.sleep(0.15)
        return count(mode, *arguments)

    monkeypatch.setattr(footprint.LiveTensors, "__torch_dispatch__", imports_first)
    phase = Phase(lambda state: kept.append(torch.zeros(MIB // 4)))
    found = footprint.phase_memory(Workload({"forward": phase}), phase, "cpu")
    with pytest.raises(WrongResult, match="memory grows"):
        guards.refuse_growth(found["live_bytes"])


def test_memory_that_grows_from_slice_to_slice_is_a_leak(worker, monkeypatch):
    made, _ = worker()
    allocated = iter(range(0, 1000 * MIB, MIB))
    monkeypatch.setattr(made, "_requested", lambda _: next(allocated))
    with pytest.raises(WrongResult, match=r"memory grows: by \d MiB over \d slices"):
        for _ in range(6):
            made.slice(CASE, "forward", 3, False)


def test_memory_that_grows_in_few_slices_is_no_leak(worker, monkeypatch):
    made, _ = worker()
    allocated = iter([0, MIB, MIB, MIB, 2 * MIB, 2 * MIB, *[3 * MIB] * 99])
    monkeypatch.setattr(made, "_requested", lambda _: next(allocated))
    for _ in range(6):
        made.slice(CASE, "forward", 3, False)


def test_memory_that_another_case_frees_between_slices_is_no_leak(worker, monkeypatch):
    """As the gradients of a model that several cases train in turn."""
    kept, live = [], [0]

    def run(state):
        if not kept:
            kept.append(1)
            live[0] += MIB
        return torch.zeros(1)

    made, _ = worker(run)
    monkeypatch.setattr(made, "_requested", lambda _: live[0])
    for _ in range(9):
        made.slice(CASE, "forward", 3, False)
        kept.clear()  # another case's slice
        live[0] = 0


def test_reused_output_of_a_custom_kernel_is_marked(worker):
    buffer = torch.zeros(4)

    def reuse(state):
        return buffer.fill_(1.0).view(2, 2)

    assert worker(reuse, external=("mine",))[1]["forward"]["marks"] == "reused_output"
    assert "marks" not in worker(external=("mine",))[1]["forward"]
    assert "marks" not in worker(reuse, clock="step", external=("mine",))[1]["forward"]
