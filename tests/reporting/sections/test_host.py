"""Sentences on steps that wait for the CPU, and on what a CUDA graph gains there."""

import planted
from planted_steps import rung, sdpa

from lmperf.reporting.sections import section


def host(*rows):
    return section(planted.evidence(*rows), "host")


def printed(*rows, **more):
    return planted.printed(planted.page("report/host", planted.evidence(*rows, **more)))


def test_no_step_waits_where_all_are_graphs():
    assert not host(rung("graph", 10.0)).some_wait and not printed(rung("graph", 10.0))


def test_sentences_on_waiting_rest_on_no_loaded_step():
    busy = dict(waits=True, device_ms=9.0, launches=100)
    rows = [sdpa(15.0, "0.13B", **busy), sdpa(20.0, marks="loaded", **busy)]
    assert host(*rows).busy["size"].to_list() == ["small"]
    rows.append(rung("bf16_weights", 20.0, waits=True, marks="loaded"))
    assert printed(*rows, rung("bf16_graph", 5)) == [150], "µs a kernel"


def test_what_a_second_process_took_is_said_beside_the_wait():
    first = sdpa(20.0, "0.13B", waits=True, device_ms=9.0)
    again = first | {"rounds_ms": "15.0;15.0", "median_ms": "15.0"}
    assert printed(first, again={"end_to_end": [again]})[:2] == [15, 20]
    assert 15 not in printed(first)
    of = planted.evidence(first, again={"end_to_end": [again | {"gpus": "GPU-2"}]})
    assert " on another GPU took " in planted.page("report/host", of).text
