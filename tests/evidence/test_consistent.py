"""Tests that rows which contradict other rows are found, and no other rows."""

import pytest

from lmperf.benchmarks import load
from lmperf.evidence.consistent import RETAKEN, contradictions, is_unsettled, with_host_mark
from lmperf.names import MARKS, UNSETTLED

STEPS, LRPE, KERNELS = map(load, ("end_to_end", "lrpe", "flash_attention"))
CELL = {"size": "0.13B", "batch": "4", "dtype": "float32"}
SHAPE = {"batch": "1", "heads": "1", "shape": "1024", "d_head": "64", "extra_tokens": "0"}


def row(ms, noise=0.01, **columns):
    times = {"median_ms": ms, "p20_ms": ms * (1 - noise), "p80_ms": ms * (1 + noise)}
    times = {name: str(value) for name, value in times.items()}
    return {"implementation": "eager", "phase": "forward", "status": "ok", **times, **columns}


def step(length, ms, **columns):
    return row(ms, **{**CELL, "context_length": str(length), **columns})


def copied(name, ms, size=10**9):
    return row(ms, **SHAPE, dtype="float32", implementation=name, bytes=str(size))


def words(rows, benchmark=STEPS, kind="cuda"):
    return [one.words for one in contradictions(benchmark, rows, kind)]


def test_faster_step_at_twice_the_context_is_found():
    (found,) = contradictions(STEPS, [step(512, 90), step(128, 60), step(256, 140)], "cuda")
    assert found.words == "takes 140 ms, context_length=512 only 90 ms"
    assert [one["context_length"] for one in found.rows] == ["256", "512"]


@pytest.mark.parametrize(
    "rows",
    [
        [step(256, 90), step(512, 140)],
        [step(256, 100), step(512, 95)],  # less than the drift that needs no mark
        [step(256, 140, noise=0.4), step(512, 90, noise=0.4)],
        [step(256, 140), step(384, 90)],  # not twice the length
        [step(256, 140), step(512, 90, size="0.42B")],
        [step(256, 140), step(512, 90, implementation="compiled")],
        [step(256, 140, status="failed_check"), step(512, 90)],
        [step(256, 140, host_ms="133"), step(512, 90)],  # host-bound
    ],
)
def test_rows_that_explain_their_times_are_not_found(rows):
    assert words(rows) == []


WAITING = {"launch_us": "5", "host_reference": "1.2", "host_ms": "95", "sustained_ms": "100"}
WAITING |= {"sustained_rounds_ms": "98;100;112", "marks": "capped"}


@pytest.mark.parametrize(
    ("columns", "marks"),
    [
        ({}, "capped;host"),
        ({"marks": ""}, "host"),
        ({"marks": "host"}, "host"),
        ({"host_reference": "1.09"}, "capped"),  # as fast as at its best
        ({"host_ms": "49"}, "capped"),  # a host twice as slow still queues it in time
        ({"eager_ms": "1.0"}, "capped"),  # a kernel
        ({"sustained_rounds_ms": "99;100;101"}, "capped"),  # the GPU decides
        ({"launch_us": ""}, "capped"),  # no GPU
        ({"sustained_ms": "", "sustained_rounds_ms": ""}, "capped"),
        ({"sustained_rounds_ms": "", "p20_ms": "110", "p80_ms": "120"}, "capped;host"),
        ({"p20_ms": "110", "p80_ms": "120", "sustained_rounds_ms": "99;101"}, "capped"),
        ({"p20_ms": "", "sustained_rounds_ms": ""}, "capped"),  # times of another version
    ],
)
def test_step_that_varies_beside_a_slow_host_is_marked(columns, marks):
    found = with_host_mark({**step(1024, 120), **WAITING, **columns})
    assert found["marks"] == marks
    assert is_unsettled(found) == ("host" in marks)
    assert is_unsettled({**step(1024, 120), **WAITING, **columns}) == ("host" in marks)


def test_only_host_time_of_the_slower_step_explains_a_pair():
    assert words([step(256, 140), step(512, 90, host_ms="89")])
    kernel = {"batch": "1", "heads": "1", "d_head": "64", "dtype": "float32", "causal": "True"}
    kernel |= {"cuda_graph": "False"}
    slow, fast = (
        row(ms, **kernel, seq_len=n, host_ms="5") for n, ms in (("128", 2.0), ("256", 1.0))
    )
    assert words([slow, fast], KERNELS), "the host time of a kernel is taken apart from its time"
    assert words([slow, {**fast, "marks": "host_bound"}], KERNELS)
    assert not words([{**slow, "marks": "host_bound"}, fast], KERNELS)


@pytest.mark.parametrize("mark", MARKS)
def test_only_marks_of_a_disturbed_time_explain_it(mark):
    rows = [step(256, 140, marks=f"settings;{mark}"), step(512, 90)]
    assert bool(words(rows)) == (mark not in UNSETTLED | {"host_bound"})


@pytest.mark.parametrize(
    ("times", "found"),
    [
        ({"forward": 10, "backward": 20, "forward_backward": 29, "train_step": 35}, []),
        ({"forward": 10, "backward": 20, "forward_backward": 15, "train_step": 35}, ["forward +"]),
        ({"forward": 10, "backward": 20, "forward_backward": 60, "train_step": 65}, ["backward "]),
        ({"forward": 10, "backward": 20, "forward_backward": 30, "train_step": 25}, ["as forward"]),
        ({"forward": 10, "backward": 20, "forward_backward": 30, "train_step": 300}, ["300 ms"]),
        ({"forward": 10, "backward": 20, "train_step": 5}, []),
    ],
)
def test_sum_that_disagrees_with_its_parts_is_found(times, found):
    said = words([step(512, ms, phase=phase) for phase, ms in times.items()])
    assert len(said) == len(found)
    assert all(part in one for part, one in zip(found, said, strict=True))


def test_kernel_beyond_the_rate_of_a_copy_is_found():
    assert words([copied("copy", 1.0), copied("triton", 0.97)], LRPE) == []
    assert words([copied("copy", 1.0), copied("triton", 0.9)], LRPE) == [
        "takes 1 ms, triton only 0.9 ms"
    ]


def test_copy_of_bytes_that_a_cache_holds_bounds_no_kernel():
    assert words([copied("copy", 1.0, 28_311_552), copied("triton", 0.8, 28_311_552)], LRPE) == []


def test_drift_that_needs_no_mark_is_larger_on_a_cpu():
    rows = [step(256, 100), step(512, 80)]
    assert words(rows) and not words(rows, kind="cpu")


def test_contradiction_is_settled_once_all_its_rows_were_retaken():
    rows = [step(256, 140, **{RETAKEN: "True"}), step(512, 90)]
    (found,) = contradictions(STEPS, rows, "cuda")
    assert not found.is_settled
    rows[1][RETAKEN] = "True"
    (found,) = contradictions(STEPS, rows, "cuda")
    assert found.is_settled


def test_observations_without_a_clock_are_not_compared():
    assert contradictions(load("profiles"), [step(256, 140), step(512, 90)], "cuda") == []
