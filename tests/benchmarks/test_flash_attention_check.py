import pytest
import torch

from lmperf.attention.triton import forward, interface
from lmperf.benchmarks import load

pytestmark = pytest.mark.interpreter
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


@pytest.fixture
def skips_a_key_tile(monkeypatch):
    """The forward kernel leaves out the first tile of keys for the first rows."""
    correct = forward.forward

    def skips(q, k, v, causal, scale):
        out, lse = correct(q, k, v, causal, scale)
        out[:, :, :32] = correct(q[:, :, :32], k[:, :, 32:], v[:, :, 32:], False, scale)[0]
        return out, lse

    monkeypatch.setattr(interface.forward_pass, "forward", skips)


def observed():
    benchmark = load("flash_attention_check")
    axes = {"batch": [1], "heads": [1], "seq_len": [65], "d_head": [16], "dtype": ["float32"]}
    (case,) = benchmark.cases("cpu", {**axes, "causal": [False], "layout": ["contiguous"]})[:1]
    (row,) = benchmark.observe(case, "forward_backward", DEVICE, seed=0)
    return row


def test_failed_check_records_the_error_of_pytorch(skips_a_key_tile):
    row = observed()
    assert row["max_error"] > row["error_bound"] > row["pytorch_error"] > 0


def test_passed_check_records_no_error_of_pytorch():
    row = observed()
    assert row["max_error"] <= row["error_bound"] and "pytorch_error" not in row
