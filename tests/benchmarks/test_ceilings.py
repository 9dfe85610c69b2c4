"""Tests of the benchmark `ceilings`: its operations and the FLOPs or bytes they count."""

import pytest
import torch

from lmperf.benchmark import Case
from lmperf.benchmarks import ceilings, load

CEILINGS = load("ceilings")


def prepared(operation, dtype="float32", shape="64x32x48", load="burst"):
    cell = {"operation": operation, "dtype": dtype, "shape": shape, "load": load}
    return CEILINGS.prepare(Case(tuple(cell.items()), "torch"), "cpu", 1, {})


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_matmul_counts_flops_and_multiplies_normal_values(dtype):
    work = prepared("matmul", dtype)
    phase = work.phases["forward"]
    assert phase.flops == 2 * 64 * 32 * 48 and work.columns == {"calls": 1}
    out = phase.run(phase.before())
    assert out.shape == (64, 32) and out.dtype == getattr(torch, dtype)
    assert out.float().std() == pytest.approx(48**0.5, rel=0.2)


def test_sustained_matmul_counts_every_call(monkeypatch):
    mm, made = torch.mm, []
    monkeypatch.setattr(torch, "mm", lambda *given, **named: (made.append(0), mm(*given, **named)))
    monkeypatch.setattr(ceilings, "_SUSTAINED_S", {"cpu": 0.05})
    monkeypatch.setattr(ceilings, "_seconds", lambda call, device: 0.01)
    work = prepared("matmul", shape="64x64x64", load="sustained")
    phase = work.phases["forward"]
    assert work.columns == {"calls": 5} and phase.flops == 5 * 2 * 64**3
    phase.run(phase.before())
    assert len(made) == 5


@pytest.mark.parametrize(
    ("operation", "dtype", "read", "written"),
    [("copy", "float32", 4, 4), ("widen", "bfloat16", 2, 4), ("narrow", "float32", 4, 2)],
)
def test_copy_counts_bytes_read_and_written(operation, dtype, read, written):
    phase = prepared(operation, dtype, "1000").phases["forward"]
    assert phase.bytes == 1000 * (read + written)
    assert phase.run(None).nbytes == 1000 * written
