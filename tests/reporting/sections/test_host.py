"""Sentences on steps that wait for the CPU, and on what a CUDA graph gains there."""

import planted
import pytest
from planted_steps import AUTOCAST, rung, sdpa, step

from lmperf.reporting.sections import section


def host(*rows):
    return section("host", planted.evidence(*rows))


def text(*rows):
    return planted.page("report", planted.evidence(*rows)).text


@pytest.mark.parametrize(
    ("ms", "waits", "gains"), [(18.0, True, 1), (18.5, True, 0), (10.0, False, 0)]
)
def test_graph_gains_beyond_ten_percent_where_a_step_waits(ms, waits, gains):
    assert len(host(rung("bf16_weights", 20.0, waits=waits), rung("bf16_graph", ms)).gains) == gains


def test_graph_with_float32_weights_is_shown_or_owed():
    graph = rung("graph", 10.0, device_ms=9.0, launches=600)
    made = text(rung("fused_blocks", 20.0, waits=True), graph)
    assert "With float32 weights, large falls from *20.0* to 10.0 ms (600 kernels" in made
    assert "With float32 weights: to measure." in text(sdpa(20.0, waits=True))


def test_sdpa_in_a_graph_is_shown_where_it_gains():
    small, large = "0.13B", "0.97B"
    known = {"device_ms": 9.0, "launches": 600}
    rows = [sdpa(20.0, small, waits=True), sdpa(30.0, large)]
    graphs = [
        step(size, AUTOCAST, "sdpa_graph", ms, **known)
        for size, ms in ((small, 10.0), (large, 30.2))
    ]
    made = text(*rows, *graphs)
    assert "small falls from *20.0* (SDPA, compiled) to 10.0 ms" in made
    assert "to 30.2 ms" not in made
    assert "waits for the CPU" not in text(*graphs)
