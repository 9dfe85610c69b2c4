"""Tests of the references: fixed work that shows how fast the device and the host are."""

import pytest
import torch

from lmperf.measuring import reference
from lmperf.measuring.readings import Reading, References
from lmperf.measuring.state import DRIFT, SLOW_HOST

CELLS = dict(reference._CELLS)


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
    found = reference.measure("cpu")
    assert found.matmul_ms > 0 and found.copy_ms > 0
    assert done == [(64, 64)] * 4  # one warm-up call, three timed calls


def test_a_cpu_is_judged_without_a_copy(monkeypatch):
    """The memory of a virtual machine has several usual speeds."""
    assert CELLS["cpu"].copy_bytes is None
    monkeypatch.setitem(reference._CELLS, "cpu", CELLS["cpu"])
    found = reference.measure("cpu")
    assert found.matmul_ms > 0 and found.copy_ms is None


def test_reference_times_are_minima_in_milliseconds(monkeypatch):
    reference.measure("cpu")
    loops = [0, 1_500_000] + [0, 9_000_000] * (reference._PYTHON_LOOPS - 1)
    now = iter([0, 0, 0, 5_000_000, 0, 90_000_000, 0, 7_000_000, *[0, 2_000_000] * 3, *loops])
    monkeypatch.setattr(reference, "now", lambda: next(now))
    assert reference.measure("cpu") == Reading(5.0, 2.0, None, 1500.0)


def test_host_references_need_no_device_work(monkeypatch):
    monkeypatch.setattr(reference, "_cell_times", None)
    found = reference.measure_host("cpu")
    assert found == Reading(python_us=found.python_us) and found.python_us > 0


def test_tensors_are_cached_and_global_generator_unchanged():
    torch.manual_seed(3)
    expected = torch.rand(1)
    torch.manual_seed(3)
    reference.measure("cpu")
    calls = reference._calls("cpu")
    reference.measure("cpu")
    assert reference._calls("cpu") is calls
    assert torch.equal(torch.rand(1), expected)


def test_every_device_has_a_reference_cell_and_limits():
    assert DRIFT.keys() == SLOW_HOST.keys() == reference._CELLS.keys() == {"cpu", "cuda", "mps"}


@pytest.mark.gpu
def test_reference_times_of_a_gpu_are_steady():
    references = References("cuda", {})
    for _ in range(5):
        found = references.read(lambda: reference.measure("cuda"))
        assert found.launch_us > 0 and not references.drifted(found)
