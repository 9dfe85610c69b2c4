"""Kernels of a trace belong to the steps that were observed."""

import pytest

from lmperf.instruments.overlap import steps_of


def kernels(*starts_and_durations):
    """A Chrome trace whose times begin at 1,000 ms: a kernel for each start and duration in ms."""
    events = [
        {"ph": "X", "cat": "kernel", "name": str(number), "ts": start * 1e3, "dur": length * 1e3}
        for number, (start, length) in enumerate(starts_and_durations)
    ]
    return {"baseTimeNanoseconds": 1_000_000_000, "traceEvents": events}


def test_kernels_belong_to_the_step_in_which_they_start():
    trace = kernels((1, 2), (4, 5), (10, 1), (12, 3))
    first, second = steps_of(trace, [(1000, 1009.5), (1011.5, 1016)])
    assert [e["name"] for e in first.events] == ["0", "1"]
    assert [e["name"] for e in second.events] == ["3"], "one ran between the steps"
    assert second.interval(second.events[0]) == (1012, 1015)


def test_kernel_beyond_the_end_of_its_step_is_an_error():
    with pytest.raises(RuntimeError, match=r"ends 1\.500 ms after its step"):
        steps_of(kernels((1, 2), (8, 3)), [(1000, 1009.5)])
