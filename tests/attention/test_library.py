import pytest
import torch

from lmperf.attention.library import sdpa
from lmperf.attention.reference import attention


@pytest.mark.parametrize("backend, causal", [(None, True), ("MATH", False), ("MATH", True)])
def test_sdpa_backend_computes_attention(backend, causal):
    q, k, v = torch.randn(3, 2, 3, 20, 16).unbind(0)
    got = sdpa(q, k, v, causal, backend=backend)
    torch.testing.assert_close(got, attention(q, k, v, causal))


@pytest.mark.parametrize("backend", ["cudnn_attention", "ERROR"])
def test_unknown_sdpa_backend_is_rejected(backend):
    q = torch.randn(1, 1, 4, 8)
    with pytest.raises(ValueError, match=r"MATH, .*, got '"):
        sdpa(q, q, q, backend=backend)


def test_backend_that_cannot_run_is_an_error_and_no_other_runs():
    q = torch.randn(1, 1, 8, 16)
    with pytest.raises(RuntimeError, match=r"No viable backend|No available kernel"):
        sdpa(q, q, q, backend="EFFICIENT_ATTENTION")  # which is for CUDA only
