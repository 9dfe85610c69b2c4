"""Tests of rank groups on GPUs: by NCCL with a GPU for each rank, by gloo where two share one."""

import pytest
import torch
from ranked_toy import FAULTS, RankedToy, case_of

from lmperf.measuring import group
from lmperf.measuring.rounds import Pace
from lmperf.measuring.supervisor import Supervisor

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.process,
    pytest.mark.slow,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]
two_gpus = pytest.mark.skipif(torch.cuda.device_count() < 2, reason="needs two CUDA devices")


@pytest.fixture
def rows_of(monkeypatch):
    monkeypatch.setattr(group, "pace_of", lambda *_: Pace(5, 5, 0.3))
    with Supervisor("cuda") as supervisor:

        def measure(*names, clock="kernel"):
            benchmark = RankedToy("ranked_toy")
            benchmark.clock, benchmark.limit_s = clock, 60.0
            cases = [case_of(name, 1 if name == "alone" else 2) for name in names]
            rows = supervisor.measure(benchmark, cases, 1, twins=False)
            return {row["implementation"]: row for row in rows}

        yield measure


def test_two_ranks_share_one_gpu_by_gloo(rows_of, monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0")
    rows = rows_of("right", "averages_over_one_too_many", clock="step")
    assert rows["right"]["status"] == "ok", rows["right"]
    assert rows["averages_over_one_too_many"]["status"] == "failed_check"


@two_gpus
def test_nccl_ranks_are_timed_by_device_events(rows_of):
    rows = rows_of("right", "other", "alone", "leaves_out_the_last_bucket")
    assert rows["leaves_out_the_last_bucket"]["status"] == "failed_check"
    for name in ("right", "other", "alone"):
        row = rows[name]
        assert row["status"] == "ok", row
        assert 0.001 < row["median_ms"] < 1 and row["host_ms"] > 0
        assert "host_bound" not in row["marks"]
    assert rows["alone"]["median_ms"] < rows["right"]["median_ms"]
    assert rows["other"]["sustained_steps"] >= 20


@two_gpus
@pytest.mark.parametrize("name", [*FAULTS])
def test_fault_of_an_nccl_rank_is_a_row(rows_of, name):
    if name == "hangs":
        pytest.skip("waits for the limit; gloo covers it")
    expected = {
        "exhausts_memory": "oom",
        "refuses": "unsupported",
        "finds_it_wrong": "failed_check",
    }
    rows = rows_of("right", name, clock="step")
    assert rows[name]["status"] == expected.get(name, "crash"), rows[name]
    assert rows["right"]["status"] == "ok", rows["right"]
