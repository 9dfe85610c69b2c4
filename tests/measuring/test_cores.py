"""Tests of the choice of fast CPU cores."""

import os
import threading
from types import SimpleNamespace

import pytest

from lmperf.measuring import cores
from lmperf.measuring.cores import FastCores, fast_cores
from lmperf.measuring.serving import Serving

LINUX = pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="needs Linux")


@pytest.fixture
def usable():
    """The cores of this process, which are given back to all of its threads afterwards."""
    before = sorted(os.sched_getaffinity(0))
    yield before
    cores._move_to(before)


def test_cores_beside_a_busy_neighbour_are_left_out():
    times = {core: 0.72 if core % 2 else 1.37 for core in range(16)}
    assert set(fast_cores(times)) == set(range(1, 16, 2))


def test_equal_cores_are_all_kept():
    assert len(fast_cores({core: 1.0 + core / 100 for core in range(16)})) == 16


def test_a_quarter_of_the_cores_is_kept_in_any_case():
    assert fast_cores({core: 1.0 + core for core in range(16)}) == [0, 1, 2, 3]


@LINUX
def test_choice_moves_all_threads_of_the_process(usable, monkeypatch):
    if len(usable) < 2:
        pytest.skip("needs two cores")
    slow = usable[0]
    monkeypatch.setattr(cores, "_loop_ms", lambda core: 2.0 if core == slow else 1.0)
    go, found = threading.Event(), []
    other = threading.Thread(target=lambda: (go.wait(), found.append(os.sched_getaffinity(0))))
    other.start()
    FastCores().choose()
    go.set()
    other.join()
    assert found == [{*usable[1:]}] and os.sched_getaffinity(0) == {*usable[1:]}


@LINUX
def test_slow_cores_are_chosen_again_once_they_are_fast(usable, monkeypatch):
    monkeypatch.setattr(cores, "_HOLDS_S", 0.0)
    chosen = FastCores()
    monkeypatch.setattr(cores, "_loop_ms", lambda core: 2.0 if core == usable[0] else 1.0)
    chosen.choose()
    monkeypatch.setattr(cores, "_loop_ms", lambda core: 1.0)
    chosen.choose()
    assert sorted(os.sched_getaffinity(0)) == usable


@pytest.mark.parametrize(("device", "times"), [("cuda", 2), ("cpu", 0)])
def test_worker_of_a_gpu_chooses_cores_before_each_request(monkeypatch, device, times):
    order = []
    monkeypatch.setattr(FastCores, "choose", lambda *_: order.append("choose"))
    monkeypatch.setattr(Serving, "_check_last", lambda _: order.append("request"))
    serving = Serving(SimpleNamespace(send=lambda _: None), device, None)
    serving.answer("check_last", [])
    serving.answer("check_last", [])
    assert order.count("choose") == times
    assert order[-2:] == (["choose", "request"] if times else ["request", "request"])
