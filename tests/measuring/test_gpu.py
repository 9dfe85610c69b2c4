"""Faults and times on a real GPU; the rest of this folder needs none."""

import subprocess
import sys
from statistics import median

import pytest
import torch
import toys

from lmperf.measuring.job import Job

pytestmark = [pytest.mark.process, pytest.mark.gpu]
SIZE = {"size": [8]}


def test_faults_cost_only_their_own_rows(measured):
    names = ["doubles", "asks_for_a_pebibyte", "is_not_finite", "hangs"]
    names += ["writes_where_nothing_is", "also_doubles"]
    rows = measured(names, toys.Short, device="cuda", **SIZE)
    assert {name: of[0]["status"] for name, of in rows.items()} == {
        "doubles": "ok",
        "asks_for_a_pebibyte": "oom",
        "is_not_finite": "nan",
        "hangs": "timeout",
        "writes_where_nothing_is": "crash",
        "also_doubles": "ok",
    }
    assert "CUDA" in rows["writes_where_nothing_is"][0]["reason"]
    row = rows["doubles"][0]
    assert 0 < row["median_ms"] < 1 and row["host_ms"] > 0 and row["eager_ms"] > 0
    assert row["peak_mib"] > 0 and row["clock_mhz"] > 0


def test_a_train_step_has_the_time_of_the_device(measured):
    row = measured(["first"], toys.Steps, device="cuda")["first"][0]
    assert row["status"] == "ok" and row["n"] >= 40
    assert 0 < row["device_ms"] < row["median_ms"] and row["launches"] >= 3
    assert row["bound"] == "host"  # each step sleeps


def test_cheats_on_a_gpu_fail(measured):
    found = measured(["mine"], external={"mine": "toys:works_on_a_stream"}, device="cuda", **SIZE)
    assert {row["status"] for row in found["mine"]} == {"failed_check"}


def test_current_device_may_be_set_again(measured):
    rows = measured(["mine"], external={"mine": "toys:sets_its_device"}, device="cuda", **SIZE)
    assert {row["status"] for row in rows["mine"]} == {"ok"}


@pytest.mark.skipif(torch.cuda.device_count() < 2, reason="needs two GPUs")
def test_implementation_that_moves_to_another_device_says_so(measured):
    external = {"mine": "toys:moves_to_the_last_device"}
    rows = measured(["mine", "doubles"], external=external, device="cuda", **SIZE)
    assert {row["status"] for row in rows["doubles"]} == {"ok"}
    assert all("torch.cuda.set_device" in row["reason"] for row in rows["mine"])


@pytest.mark.skipif(torch.cuda.device_count() < 2, reason="needs two GPUs")
def test_ranks_on_two_gpus_measure_and_fail_together(measured):
    names = ("right", "is_wrong_on_rank_1", "raises", "hangs", "right_too")
    rows = measured(names, toys.Ranked, device="cuda")
    assert [rows[name][0]["status"] for name in names] == [
        *("ok", "failed_check", "crash", "timeout", "ok")
    ]
    assert rows["right"][0]["device_ms"] > 0


_NCCL = """
import torch
from lmperf.measuring.worker import _facts
print(_facts("cuda", forks=True)["nccl"], torch.cuda.is_initialized())
"""


def test_version_of_nccl_is_read_before_ranks_fork():
    version = ".".join(map(str, torch.cuda.nccl.version()))
    said = subprocess.check_output([sys.executable, "-c", _NCCL], text=True)
    assert said.split() == [version, "False"]


_PROFILED = """
import time, torch
from lmperf.measuring.device_time import device_time
x = torch.ones(8, device="cuda")
def step():
    for _ in range(2000):
        x.add_(1.0)
def reading():
    torch.cuda.synchronize()
    began = time.perf_counter()
    step()
    torch.cuda.synchronize()
    return time.perf_counter() - began
def least():
    return min(reading() for _ in range(30))
reading()
before = least()
assert device_time(lambda: step).launches == 2000
print(least() / before)
"""


def test_launches_are_as_fast_after_a_profiled_step(tmp_path):
    environ = Job(toys.Steps("steps"), "cuda", []).environ(str(tmp_path), [])
    ratios = [
        float(subprocess.check_output([sys.executable, "-c", _PROFILED], env=environ))
        for _ in range(5)
    ]
    assert median(ratios) < 1.1
