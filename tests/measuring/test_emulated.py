"""Tests of matmuls in bf16 on a CPU without instructions for them."""

from types import SimpleNamespace

import pytest
import torch

from lmperf.benchmark import Unsupported
from lmperf.benchmarks import load
from lmperf.measuring import emulated


def refused(stem, device="cpu"):
    """The dtypes, operations and implementations of the cases of a benchmark that are refused."""
    benchmark, found = load(stem), set()
    for case in benchmark.cases("cpu"):
        try:
            emulated.require_instructions(benchmark, case, device)
        except Unsupported as reason:
            assert "no instructions for bf16" in str(reason)
            found.add(case.axes.get("dtype") or case.implementation)
    return found


@pytest.mark.parametrize(
    ("stem", "expected"),
    [
        ("end_to_end", {"autocast_bfloat16", "bfloat16"}),
        ("memory", {"autocast_bfloat16"}),
        ("ladder_loss", {"autocast", "bf16_weights"}),
        ("attention", {"bfloat16"}),
        ("lrpe", set()),
        ("mixed_precision", set()),
        ("flash_attention_check", set()),
    ],
)
def test_cpu_without_bf16_refuses_matmuls_in_bf16(monkeypatch, stem, expected):
    monkeypatch.setattr(emulated, "has_bf16", lambda: False)
    assert refused(stem) == expected
    assert not refused(stem, "cuda")
    monkeypatch.setattr(emulated, "has_bf16", lambda: True)
    assert not refused(stem)


@pytest.mark.parametrize(("machine", "has"), [("x86_64", False), ("AMD64", False), ("arm64", True)])
def test_bf16_is_missing_if_pytorch_denies_it_on_x86(monkeypatch, machine, has):
    monkeypatch.setattr(emulated.platform, "machine", lambda: machine)
    operators = SimpleNamespace(_is_mkldnn_bf16_supported=lambda: False)
    monkeypatch.setattr(torch.ops, "mkldnn", operators)
    assert emulated.has_bf16.__wrapped__() == has


def test_copies_are_no_matmuls(monkeypatch):
    monkeypatch.setattr(emulated, "has_bf16", lambda: False)
    ceilings = load("ceilings")
    cases = [case for case in ceilings.cases("cpu") if case.axes["dtype"] == "bfloat16"]
    (copy,) = (case for case in cases if case.axes["operation"] == "widen")
    emulated.require_instructions(ceilings, copy, "cpu")
    assert refused("ceilings") == {"bfloat16"}
