"""Sentences on bf16 weights: how much faster, at what loss."""

import planted
import pytest
from planted_steps import rung, sdpa

from lmperf.reporting.sections import section


@pytest.mark.parametrize(
    ("ms", "verdict", "gains"),
    [(50.0, "faster", True), (200.0, "slower", False), (100.0, "same", False)],
)
def test_verdict_over_sdpa_follows_times(ms, verdict, gains):
    rows = sdpa(100.0), rung("bf16_graph", ms)
    made = section(planted.evidence(*rows), "bf16_weights")
    assert {*made.over_sdpa["verdict"]} == {verdict}
    assert made.gains is gains
