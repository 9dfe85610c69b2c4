"""Plain attention: matrices of scores in memory."""

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


def call(length, phase):
    cell = {"batch": BATCH, "seq_len": length, "d_head": WIDTH, "dtype": "float32"}
    held, outputs = {"forward": (2, 1), "backward": (4, 2)}[phase]
    inputs = 4 * tensor(length)
    known = {
        "resident_mib": inputs,
        "saved_mib": inputs + tensor(length) + matrix(length),
        "peak_mib": inputs + outputs * tensor(length) + held * matrix(length),
    }
    return planted.row("attention", 1.0, phase=phase, implementation="eager", **cell | known)


def test_matrices_exclude_inputs_and_outputs():
    rows = [call(length, phase) for length in LENGTHS for phase in ("forward", "backward")]
    found = section(planted.evidence(*rows), "attention")
    assert (found.held("forward"), found.kept) == (2, 1)


@pytest.mark.slow
def test_one_length_has_its_times_but_no_growth():
    def page(*lengths):
        rows = [call(length, phase) for length in lengths for phase in ("forward", "backward")]
        return planted.page("report", planted.evidence(*rows)).text

    for text in (page(*LENGTHS), page(4096)):
        assert (
            "The forward of plain attention holds 2 matrices" in text and "| 4,096 | 1.00" in text
        )
    assert "grow with the square" in page(*LENGTHS)
    assert "grow with the square" not in page(4096)
