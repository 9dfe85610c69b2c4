"""Plain attention: times, what bounds it, matrices in memory and where it ends."""

import planted
import pytest

from lmperf.reporting.sections import section

LENGTHS = (1024, 4096, 16384)
BATCH, WIDTH = 8, 64


def matrix(length):
    """MiB of a float32 matrix of scores."""
    return BATCH * length**2 * 4 / 2**20


def tensor(length):
    """MiB of q, k, v or the output in float32."""
    return BATCH * length * WIDTH * 4 / 2**20


def call(length, phase, ms=1.0, implementation="eager", held=None, dtype="float32", **values):
    cell = {"batch": BATCH, "seq_len": length, "d_head": WIDTH, "dtype": dtype, "causal": False}
    at_peak = {"forward": 2, "backward": 4}[phase] if held is None else held
    outputs = {"forward": 1, "backward": 2}[phase]
    inputs = 4 * tensor(length)
    known = {
        "resident_mib": inputs,
        "saved_mib": inputs + tensor(length) + matrix(length),
        "peak_mib": inputs + outputs * tensor(length) + at_peak * matrix(length),
        "flops": 2e9,
        "bytes": 4e6,
    }
    return planted.row(
        "attention", ms, phase=phase, implementation=implementation, **(cell | known | values)
    )


def calls(compiled=None, spread=1.0, lengths=LENGTHS):
    """Both phases at some lengths; compiled: its time, if it was measured."""
    rows = []
    for length in lengths:
        for phase in ("forward", "backward"):
            rows.append(call(length, phase))
            if compiled:
                rows.append(call(length, phase, compiled, "compiled", held=2, spread=spread))
    return rows


def plain(*rows):
    return section(planted.evidence(*rows), "attention")


def test_matrices_exclude_inputs_and_outputs():
    found = plain(*calls())
    assert (found.held("forward"), found.kept) == (2, 1)


def ceilings():
    matmul = {"operation": "matmul", "tflops": 1, "flops": 1e9, "bytes": 0}
    copy = {"operation": "copy", "bandwidth_gbps": 1000, "flops": 0, "bytes": 1e9}
    return [planted.row("ceilings", 1.0, dtype="float32", **one) for one in (matmul, copy)]


def forward(ms):
    """A forward with 2 ms of FLOPs and, of length 1024, about 0.21 ms of bytes."""
    return [*ceilings(), call(1024, "forward", ms), call(1024, "backward")]


@pytest.mark.parametrize("ms, bound", [(4.3, "compute"), (4.5, "neither")])
def test_neither_bounds_if_both_explain_less_than_half(ms, bound):
    found = plain(*forward(ms)).longest_bounds.one
    assert found["bound"] == bound
    assert found["compute_ms"] == pytest.approx(2)
