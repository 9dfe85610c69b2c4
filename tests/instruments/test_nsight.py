from contextlib import contextmanager

import pytest
import torch

from lmperf.instruments import nsight


@pytest.fixture
def ranges(monkeypatch):
    """Names of the NVTX ranges entered, in order; replaces NVTX, which needs a CUDA device."""
    entered = []

    @contextmanager
    def named(name="operators"):
        entered.append(name)
        yield

    monkeypatch.setattr(torch.cuda.nvtx, "range", named)
    monkeypatch.setattr(torch.cuda, "synchronize", lambda: None)
    monkeypatch.setattr(torch.autograd.profiler, "emit_nvtx", named)
    return entered


@pytest.mark.slow
def test_each_phase_runs_in_a_range_of_its_name(ranges):
    nsight.run("tiny", 16, 1, "float32", "cpu")
    assert [name for name in ranges if name != "operators"] == list(nsight.PHASES)
    assert ranges.count("operators") == len(nsight.PHASES)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ([], "expected size"),
        (["huge", "512", "4", "float32"], "sizes: tiny, 0.13B"),
        (["small", "512", "4", "float64"], "dtypes: float32"),
        (["small", "0", "4", "float32"], "got small 0 4 float32"),
    ],
)
def test_invalid_cell_prints_one_line(arguments, words, capsys):
    assert nsight.main(arguments) == 2
    said = capsys.readouterr().err
    assert words in said and said.count("\n") == 1


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a CUDA device on this machine")
def test_missing_device_prints_one_line(capsys):
    assert nsight.main(["tiny", "16", "1", "float32"]) == 2
    assert "no CUDA device" in capsys.readouterr().err


@pytest.mark.gpu
def test_runs_on_a_device():
    assert nsight.main(["tiny", "16", "1", "autocast_bfloat16"]) == 0
