"""Sentences on steps that wait for the CPU, and on what a CUDA graph gains there."""

import planted
import pytest
from planted_steps import rung, sdpa

from lmperf.reporting.sections import section


def host(*rows):
    return section(planted.evidence(*rows), "host")


def text(*rows):
    return planted.page("report/host", planted.evidence(*rows)).text


def test_no_step_waits_where_all_are_graphs():
    assert "waits for the CPU" not in text(rung("graph", 10.0))


def test_sentences_on_waiting_rest_on_no_loaded_step():
    busy = dict(waits=True, device_ms=9.0, launches=100)
    rows = [sdpa(15.0, "0.13B", **busy), sdpa(20.0, marks="loaded", **busy)]
    assert host(*rows).busy["size"].to_list() == ["small"]
    said = text(
        *rows, rung("bf16_weights", 20.0, waits=True, marks="loaded"), rung("bf16_graph", 5)
    )
    assert "At small, a step takes 150 µs a kernel (bf16 autocast, SDPA, compiled by" in said
    assert "of SDPA, compiled, at small, what" in said


@pytest.mark.parametrize(("gpu", "where"), [("GPU-1", " took"), ("GPU-2", " on another GPU took")])
def test_what_a_second_process_took_is_said_beside_the_wait(gpu, where):
    first = sdpa(20.0, "0.13B", waits=True, device_ms=9.0)
    again = first | {"rounds_ms": "15.0;15.0", "median_ms": "15.0", "gpus": gpu}
    of = planted.evidence(first, again={"end_to_end": [again]})
    said = planted.page("report/host", of).text
    assert "what the first table shows beyond the GPU's time is this host's." in said
    assert f"A second process{where} 15.0 instead of 20.0 ms at small." in said
    assert "A second process" not in text(first)
