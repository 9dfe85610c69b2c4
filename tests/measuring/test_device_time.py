"""Time in which a device works, from made-up events of a profiler, and on a GPU from real ones."""

import time
from functools import partial

import pytest
import torch

from lmperf.benchmarks import load
from lmperf.measuring.device_time import (
    DeviceTime,
    device_time,
    of_events,
    on_device,
)
from lmperf.measuring.job import Job


def event(name, ts, dur, cat="kernel"):
    return {"name": name, "ts": ts, "dur": dur, "cat": cat, "ph": "X"}


EVENTS = [
    event("gemm", 1000, 500),
    event("softmax", 1400, 300),  # beside the gemm for 0.1 ms
    event("Memcpy HtoD", 2000, 100, "gpu_memcpy"),
    event("Memset", 2200, 50, "gpu_memset"),
    event("ncclDevKernel_AllReduce_Sum_f32_RING_LL", 1600, 1000),
    event("cudaLaunchKernel", 0, 9000, "cuda_runtime"),
    event("forward", 0, 9000, "gpu_user_annotation"),
]


def test_intervals_that_overlap_count_once_and_communication_apart():
    assert of_events(EVENTS) == DeviceTime(
        device_ms=pytest.approx(0.85), communication_ms=1.0, busy_ms=1.6, launches=5
    )


def test_call_without_work_of_the_device_has_none():
    assert of_events(EVENTS[5:]) == DeviceTime(0.0, 0.0, 0.0, 0)


def test_train_step_of_a_gpu_without_kernels_is_an_error():
    with pytest.raises(RuntimeError, match="recorded no kernel"):
        on_device(EVENTS[4:])


@pytest.mark.parametrize(("step_ms", "bound"), [(1.7, "device"), (1.8, "host")])
def test_step_waits_for_its_host_below_nine_tenths_of_busy_time(step_ms, bound):
    found = of_events(EVENTS).columns(step_ms)
    assert found["bound"] == bound
    assert found["launches"] == 5 and found["communication_ms"] == 1.0
    assert "communication_ms" not in of_events(EVENTS[:4]).columns(step_ms)


@pytest.mark.parametrize(("stem", "detaches"), [("end_to_end", "1"), ("distributed_overlap", "0")])
def test_cupti_is_detached_after_a_profile_where_something_is_timed(stem, detaches):
    """What is detached while the next profile begins loses its kernels."""
    assert Job(load(stem), "cuda", []).environ("cache", [])["TEARDOWN_CUPTI"] == detaches


@pytest.mark.gpu
def test_gaps_before_kernels_are_no_work_of_the_device():
    x = torch.randn(2048, 2048, device="cuda")

    def matmuls(pause_s):
        for _ in range(10):
            torch.mm(x, x)
            time.sleep(pause_s)

    x @ x
    alone, with_gaps = (
        device_time(lambda pause=pause: partial(matmuls, pause)) for pause in (0.0, 0.01)
    )
    assert alone.launches == with_gaps.launches == 10 and alone.communication_ms == 0
    assert with_gaps.device_ms == pytest.approx(alone.device_ms, rel=0.3)
    assert with_gaps.columns(100.0)["bound"] == "host"
