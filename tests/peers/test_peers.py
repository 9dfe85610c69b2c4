"""Tests of the arguments that peers (other projects' code) are called with, and their gates."""

import pytest

from lmperf.attention.problem import AttentionProblem
from lmperf.benchmarks import load
from lmperf.config.model import Config


def benchmark(stem):
    return load(stem, Config().external(stem))


@pytest.mark.parametrize("causal", [True, False])
def test_flash_attention_4_gets_positions_before_heads(packages, causal):
    packages.install("flash-attn-4", "4.0.0")
    attention = benchmark("flash_attention").callable_of("flash_attention_4")
    problem = AttentionProblem((2, 3, 64, 16), "bfloat16", causal, "cpu", seed=1)
    phases = ("forward", "backward")
    assert problem.workload(attention, phases).gate(phases).passed
