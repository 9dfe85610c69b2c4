"""Tests of the reference cell, a matmul and a copy that show drift of the machine."""

import pytest
import torch

from lmperf.measuring import reference
from lmperf.measuring.state import DRIFT, drift


@pytest.fixture(autouse=True)
def small(monkeypatch):
    cell = reference._Cell(64, torch.float32, 2**20, 3, 0.0)
    monkeypatch.setitem(reference._CELLS, "cpu", cell)
    reference.release()
    yield
    reference.release()


def test_reference_cell_times_matmul_and_copy_of_given_size(monkeypatch):
    done = []
    real = torch.mm
    monkeypatch.setattr(torch, "mm", lambda *a, **k: done.append(a[0].shape) or real(*a, **k))
    matmul, copy = reference.measure("cpu")
    assert matmul > 0 and copy > 0
    assert done == [(64, 64)] * 4  # one warm-up call, three timed calls


def test_reference_times_are_minima_in_milliseconds(monkeypatch):
    reference.measure("cpu")
    now = iter([0, 5_000_000, 0, 90_000_000, 0, 7_000_000, *[0, 2_000_000] * 3])
    monkeypatch.setattr(reference.time, "perf_counter_ns", lambda: next(now))
    assert reference.measure("cpu") == (5.0, 2.0)


def test_tensors_are_cached_and_global_generator_unchanged():
    torch.manual_seed(3)
    expected = torch.rand(1)
    torch.manual_seed(3)
    reference.measure("cpu")
    calls = reference._calls("cpu")
    reference.measure("cpu")
    assert reference._calls("cpu") is calls
    assert torch.equal(torch.rand(1), expected)


def test_every_device_has_a_reference_cell_and_drift_limit():
    assert DRIFT.keys() == reference._CELLS.keys() == {"cpu", "cuda", "mps"}


@pytest.mark.gpu
def test_reference_times_of_a_gpu_are_steady():
    first = reference.measure("cuda")
    assert abs(drift(reference.measure("cuda"), first) - 1) < 0.2
