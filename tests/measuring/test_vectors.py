"""Compiled code of a CPU on which PyTorch's default vectors give wrong gradients."""

import importlib

import pytest
import torch

from lmperf.measuring import vectors
from lmperf.measuring.probe import probed


@pytest.mark.parametrize(("share", "bits"), [(0.74, 256), (1.0, None)])
def test_vectors_are_narrow_where_wide_ones_are_wrong(tried, share, bits):
    config = importlib.import_module("torch._inductor.config")
    tried(share)
    with config.patch({"cpp.simdlen": None}):
        assert vectors.narrow() is (bits is not None) and vectors.bits() == bits


def broken(function):
    return lambda *given: function(*given) * float("nan")


@pytest.mark.parametrize(
    ("capability", "compiles", "is_finite"),
    [("AVX512", broken, False), ("AVX512", lambda same: same, True), ("AVX2", broken, True)],
)
def test_gradient_tells_whether_wide_vectors_are_right(
    monkeypatch, capability, compiles, is_finite
):
    monkeypatch.setattr(torch.backends.cpu, "get_cpu_capability", lambda: capability)
    monkeypatch.setattr(torch, "compile", compiles)
    assert (vectors.finite_share() == 1.0) is is_finite


@pytest.mark.process
def test_answer_of_a_process_is_kept_unless_it_fails(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert probed("one", "raise SystemExit(3)") == 1.0
    assert probed("one", "print(0.5)") == 0.5
    assert probed("one", "print(0.6)") == 0.5
