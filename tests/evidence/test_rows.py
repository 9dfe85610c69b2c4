"""What the rows of evidence say: whether they can be right."""

import pytest

from lmperf.benchmarks import load
from lmperf.evidence.rows import fault

OK = {"status": "ok", "median_ms": 1.5, "max_error": float("nan")}


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({}, ""),
        ({"median_ms": "fast"}, "median_ms is fast; it must be a number"),
        ({"median_ms": float("inf")}, "median_ms is inf"),
        ({"peak_mib": -1}, "peak_mib is -1"),
        ({"error_bound": 1e-6}, "status is ok, but max_error is nan, and error_bound 1e-06"),
        (
            {"max_error": None, "error_bound": 1},
            "status is ok, but max_error is None, and error_bound 1",
        ),
        ({"status": "fine"}, "status is fine, which this version of lmperf does not know"),
        ({"median_ms": None}, "status is ok, but there is no median_ms"),
        ({"status": "oom", "median_ms": None}, ""),
    ],
)
def test_row_that_nothing_can_measure_is_told(change, words):
    assert fault(load("attention"), OK | change).replace("'", "") == words
