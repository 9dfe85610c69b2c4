"""Tests that a pass whose kernels in Gluon fail runs in Triton, and that rows say so."""

from collections import Counter

import pytest
import torch

from lmperf.attention import gluon


@pytest.fixture(autouse=True)
def no_calls(monkeypatch):
    monkeypatch.setattr(gluon, "CALLS", Counter())
    monkeypatch.setattr(gluon, "FAULTS", {})


def failing(error):
    def make():
        def launches(x):
            raise error

        return launches

    return make


def in_gluon():
    return lambda x: f"gluon {x}"


def in_triton():
    return lambda x: f"triton {x}"


def test_pass_runs_in_triton_after_a_failure_in_gluon():
    fails = failing(AttributeError("at 97:4:\n  barrier()\nno attribute 'barrier'"))
    attempt = gluon.Attempt("backward", fails, in_triton)
    with pytest.warns(RuntimeWarning, match="no attribute 'barrier'"):
        assert attempt(1) == "triton 1"
    # Another signature does not try again; the other pass does.
    assert gluon.Attempt("backward", in_gluon, in_triton)(2) == "triton 2"
    assert gluon.Attempt("forward", in_gluon, in_triton)(3) == "gluon 3"
    assert gluon.columns(Counter()) == {
        "gluon": "forward",
        "gluon_fault": "backward: AttributeError: no attribute 'barrier'",
    }


def test_lack_of_memory_is_no_fault_of_gluon():
    with pytest.raises(torch.OutOfMemoryError):
        gluon.Attempt("forward", failing(torch.OutOfMemoryError()), in_triton)(1)
    assert not gluon.FAULTS
