"""Tests of the arguments that peers (other projects' code) are called with, and their gates."""

import pytest

from lmperf.attention.problem import AttentionProblem
from lmperf.benchmark import Case
from lmperf.benchmarks import load
from lmperf.config import Config


def benchmark(stem):
    return load(stem, Config().external(stem))


@pytest.mark.parametrize("causal", [True, False])
def test_flash_attn_gets_positions_before_heads(packages, causal):
    packages.install("flash-attn", "2.8.3")
    attention = benchmark("flash_attention").callable_of("flash_attn")
    problem = AttentionProblem((2, 3, 64, 16), "bfloat16", causal, "cpu", seed=1)
    phases = ("forward", "backward")
    assert problem.workload(attention, phases).gate(phases).passed


@pytest.mark.slow
def test_gpt2_is_built_from_a_size_and_passes_its_gate(packages):
    packages.install("transformers", "5.0")
    axes = {"size": "tiny", "context_length": 16, "batch": 1, "dtype": "float32"}
    case, found = Case(tuple(axes.items()), "gpt2_hf"), benchmark("end_to_end")
    assert found.prepare(case, "cpu", 1, {}).gate(list(found.phases)).passed
    (row,) = benchmark("memory").observe(case, "forward", "cpu", 1)
    assert row["peak_mib"] > 0


def test_broken_package_fails_with_its_reason(packages):
    packages.install("transformers", "5.0", "raise ImportError('undefined symbol')")
    made = benchmark("end_to_end")
    case = next(case for case in made.cases("cpu") if case.implementation == "gpt2_hf")
    with pytest.raises(ImportError, match="undefined symbol"):
        made.prepare(case, "cpu", 1, {})
