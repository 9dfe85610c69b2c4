import gzip
import json

import pytest
import torch

from lmperf.benchmarks.profiles import kernel_rows, range_rows
from lmperf.instruments.profiling import (
    RANGES,
    durations,
    events_of,
    range_times,
    ranged_attention,
)
from lmperf.transformer.model import plain_attention


def event(name, ts, dur, cat="cpu_op", tid=1):
    return {"name": name, "ts": ts, "dur": dur, "cat": cat, "tid": tid}


def test_cpu_durations_are_self_times():
    events = [
        event("aten::linear", 0, 100),
        event("aten::addmm", 10, 60),
        event("aten::copy_", 20, 15),
        event("aten::view", 80, 5),
        event("aten::linear", 100, 7),
        event("aten::mul", 30, 50, tid=2),
    ]
    assert durations(events, "cpu") == {
        "aten::linear": [35, 7],
        "aten::addmm": [45],
        "aten::copy_": [15],
        "aten::view": [5],
        "aten::mul": [50],
    }


def test_cuda_durations_are_those_of_kernels_and_copies():
    events = [
        event("aten::mm", 0, 900),
        event("gemm", 10, 5, "kernel"),
        event("gemm", 20, 6, "kernel"),
        event("Memcpy DtoD", 30, 2, "gpu_memcpy"),
        event("cudaLaunchKernel", 0, 400, "cuda_runtime"),
    ]
    assert durations(events, "cuda") == {"gemm": [5, 6], "Memcpy DtoD": [2]}


def test_range_contains_kernels_that_start_inside_it():
    events = [
        event(RANGES["scores"], 0, 50, "gpu_user_annotation"),
        event(RANGES["scores"], 0, 999, "user_annotation"),
        event(RANGES["softmax"], 50, 50, "gpu_user_annotation"),
        event("gemm", 5, 40, "kernel"),
        event("scale", 46, 3, "kernel"),
        event("softmax", 50, 20, "kernel"),
        event("other layer", 200, 30, "kernel"),
    ]
    assert range_times(events, "cuda") == {"scores": 43, "softmax": 20, "values": 0}


def test_cpu_run_is_profiled_and_its_trace_kept(tmp_path):
    a = torch.randn(256, 256)
    kept = tmp_path / "traces" / "run.json.gz"
    found = durations(events_of(lambda: (a @ a).exp(), "cpu", kept), "cpu")
    assert len(found["aten::mm"]) == len(found["aten::exp"]) == 1
    assert all(us >= 0 for times in found.values() for us in times)
    names = [e.get("name") for e in json.loads(gzip.decompress(kept.read_bytes()))["traceEvents"]]
    assert "aten::mm" in names and not list(kept.parent.glob("*.part"))


def test_ranged_attention_is_that_of_the_model_in_three_ranges():
    q, k, v = torch.randn(3, 2, 3, 17, 8)
    torch.testing.assert_close(ranged_attention(q, k, v), plain_attention(q, k, v))
    ranged, plain = (
        events_of(lambda run=run: run(q, k, v), "cpu", None)
        for run in (ranged_attention, plain_attention)
    )
    times = range_times(ranged, "cpu")
    assert set(times) == {"scores", "softmax", "values"} and all(us > 0 for us in times.values())
    one, other = (
        {name: len(calls) for name, calls in durations(events, "cpu").items()}
        for events in (ranged, plain)
    )
    assert one == other


def test_kernel_rows_are_sorted_by_total_time():
    found = {f"kernel {i} of a long name": [float(i), i + 2.0] for i in range(1, 31)}
    rows = kernel_rows(found)
    assert [row["name"] for row in rows] == sorted(found, key=lambda name: -sum(found[name]))
    assert rows[0] == {
        "table": "kernel",
        "name": "kernel 30 of a long name",
        "instances": 2,
        "total_ms": 0.062,
        "median_us": 31.0,
        "min_us": 30.0,
        "max_us": 32.0,
        "std_us": 1.0,
    }


def test_range_rows_give_each_parts_share_of_flops():
    rows = range_rows({"scores": 4.0, "softmax": 6.0, "values": 3.0}, d_head=64)
    shares = {row["name"]: row["flops_share"] for row in rows}
    assert shares == pytest.approx({"scores": 128 / 261, "softmax": 5 / 261, "values": 128 / 261})
    assert [row["total_ms"] for row in rows] == [0.004, 0.006, 0.003]
