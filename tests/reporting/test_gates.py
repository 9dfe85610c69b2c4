"""The reason that the report gives for a failed accuracy gate of a row.

It states the error and its bound, PyTorch's error if known, or the recorded reason.
"""

import pandas as pd
import pytest

from lmperf.reporting import gates


def reason_of(**row):
    cell = {"seq_len": 128, "implementation": "mine", "phase": "forward", "status": "failed_check"}
    (name,) = gates.summary(pd.DataFrame([cell | row])).red
    assert name.startswith("seq_len=128, mine, forward (")
    return name.partition("(")[2].removesuffix(")")


@pytest.mark.parametrize(
    ("row", "why"),
    [
        ({"max_error": 2e-3, "error_bound": 1e-3}, "error 2.0e-03, bound 1.0e-03"),
        (
            {"max_error": 2e-3, "error_bound": 1e-3, "pytorch_error": 9e-4, "reason": "out is off"},
            "error 2.0e-03, bound 1.0e-03, PyTorch's error 9.0e-04",
        ),
        # The gate passed, but the result of a timed call was wrong.
        ({"max_error": 2e-4, "error_bound": 1e-3, "reason": "a timed call"}, "a timed call"),
        ({"max_error": None, "reason": "returned a Lazy"}, "returned a Lazy"),
        ({"status": "nan", "max_error": float("nan"), "reason": "not finite"}, "not finite"),
        ({}, "error –, bound –"),
    ],
)
def test_failed_gate_states_why(row, why):
    assert reason_of(**row) == why
