import pytest
import torch

from lmperf.attention.library import sdpa


def test_backend_that_cannot_run_is_an_error_and_no_other_runs():
    q = torch.randn(1, 1, 8, 16)
    with pytest.raises(RuntimeError, match=r"No viable backend|No available kernel"):
        sdpa(q, q, q, backend="EFFICIENT_ATTENTION")  # which is for CUDA only
