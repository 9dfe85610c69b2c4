"""Sentences on steps that wait for the CPU, and on what a CUDA graph gains there."""

import planted
import pytest
from planted_steps import AUTOCAST, step

from lmperf.reporting.sections import section

SMALL, LARGE = "0.13B", "0.97B"


def sdpa(ms, size=SMALL, **values):
    return step(size, AUTOCAST, "sdpa_compiled_blocks", ms, **values)


def fused(ms, size=SMALL, dtype="bfloat16", **values):
    return step(size, dtype, "fused_blocks", ms, **values)


def graph(ms, size=SMALL, dtype="bfloat16", **values):
    return step(size, dtype, "graph", ms, **values)


def host(*rows, **more):
    return section("host", planted.evidence(*rows, **more))


def text(*rows, **more):
    return planted.page("report", planted.evidence(*rows, **more)).text


@pytest.mark.parametrize(
    ("ms", "waits", "gains"), [(18.0, True, 1), (18.5, True, 0), (10.0, False, 0)]
)
def test_graph_gains_beyond_ten_percent_where_a_step_waits(ms, waits, gains):
    assert len(host(fused(20.0, waits=waits), graph(ms)).gains) == gains


# A graph with float32 weights.


def test_graph_with_float32_weights_is_shown_or_owed():
    about = {"device_ms": 9.0, "launches": 600, "dtype": AUTOCAST}
    made = text(fused(20.0, dtype=AUTOCAST, waits=True), graph(10.0, **about))
    assert "With float32 weights, small falls from *20.0* to 10.0 ms (600 kernels" in made
    assert "With float32 weights: to measure." in text(sdpa(20.0, waits=True))
