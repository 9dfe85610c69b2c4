"""Sentences on bf16 weights: how much faster, at what loss."""

import planted
import pytest
from planted_steps import AUTOCAST, step

from lmperf.reporting.sections import section

LARGE = "0.97B"


def narrow(*rows, **more):
    return section("bf16_weights", planted.evidence(*rows, **more))


def wide(ms, size=LARGE, **values):
    return step(size, AUTOCAST, "sdpa_compiled_blocks", ms, **values)


def graph(ms, size=LARGE, **values):
    return step(size, "bfloat16", "graph", ms, **values)


@pytest.mark.parametrize(
    ("ms", "verdict", "gains"),
    [(50.0, "faster", True), (200.0, "slower", False), (100.0, "same", False)],
)
def test_verdict_over_sdpa_follows_times(ms, verdict, gains):
    made = narrow(wide(100.0), graph(ms))
    assert {*made.over_sdpa["verdict"]} == {verdict}
    assert made.gains is gains
