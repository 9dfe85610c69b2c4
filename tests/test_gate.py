import math

from lmperf.gate import Gate


def test_worst_tensor_has_largest_error_to_bound_ratio():
    gate = Gate({"out": 0.5, "lse": 0.02}, {"out": 1.0, "lse": 0.03})
    assert gate.worst == "lse" and gate.passed


def test_failed_gate_reports_tensor_and_pytorch_error():
    where = {"gradient": "layers.0.wq"}
    gate = Gate({"gradient": 2.0}, {"gradient": 1.0}, lambda: {"gradient": 0.1}, where)
    columns = gate.columns
    assert columns["status"] == "failed_check" and columns["pytorch_error"] == 0.1
    assert columns["reason"] == "gradient of layers.0.wq differs from the float64 reference"


def test_failed_gain_says_that_gradients_may_be_clipped():
    gate = Gate({"gain": 2.0}, {"gain": 1.0}, where={"gain": "head.weight"})
    assert gate.columns["reason"].endswith(
        "its length is wrong, as after clipping or with a scaled loss"
    )


def test_gate_with_nan_error_fails_with_status_nan():
    gate = Gate({"out": math.nan, "lse": 9.0}, {"out": 1.0, "lse": 1.0})
    assert not gate.passed and gate.worst == "out"
    assert gate.columns["status"] == "nan"
    assert gate.columns["reason"] == "out is not finite"
