import pytest
import torch

from lmperf.attention import limit
from lmperf.attention.limit import first_too_long, peak_bytes, run_out
from lmperf.attention.reference import attention
from lmperf.measuring.peak_memory import peak_memory


@pytest.mark.slow
def test_closed_form_matches_measured_peak():
    qkv = torch.randn(3, 4, 512, 16)
    measured = peak_memory(lambda: attention(*qkv), "cpu", [qkv])
    assert measured == pytest.approx(peak_bytes(4, 512, 16, "float32"), rel=0.02)


def test_run_out_reports_fits_and_reraises_other_errors(monkeypatch):
    assert run_out(1, 16, 8, "float32", "cpu") == {"outcome": "fits"}

    def broken(*_):
        raise RuntimeError("not about memory")

    monkeypatch.setattr(limit, "attention", broken)
    with pytest.raises(RuntimeError, match="not about memory"):
        run_out(1, 16, 8, "float32", "cpu")


def test_out_of_memory_reports_requested_and_free_memory(monkeypatch):
    words = (
        "CUDA out of memory. Tried to allocate 16.00 GiB. GPU 0 has a total capacity of 139.80 GiB"
        " of which 2.50 GiB is free."
    )

    def full(*_):
        raise torch.OutOfMemoryError(words)

    monkeypatch.setattr(limit, "attention", full)
    assert run_out(1, 16, 8, "float32", "cpu") == {
        "outcome": "out of memory",
        "requested_mib": 16 * 1024,
        "free_mib": 2.5 * 1024,
    }


@pytest.mark.gpu
def test_predicted_length_runs_out_of_memory_and_half_fits():
    free = limit.free_bytes("cuda")
    n = first_too_long(8, 64, "bfloat16", free)
    assert run_out(8, n, 64, "bfloat16", "cuda")["outcome"] == "out of memory"
    torch.cuda.empty_cache()
    assert run_out(8, n // 2, 64, "bfloat16", "cuda")["outcome"] == "fits"
