"""Strategies on GPUs: one rank on one GPU, and two ranks, one on each of two."""

import functools

import gpu_cases
import pytest
import torch
from ranks import on_ranks
from recommended_cases import distance
from strategy_cases import AUTOCAST, PLANTED, gates

pytestmark = [pytest.mark.process, pytest.mark.slow, pytest.mark.gpu]

needs_one = pytest.mark.skipif(torch.cuda.device_count() < 1, reason="needs a GPU")
needs_two = pytest.mark.skipif(torch.cuda.device_count() < 2, reason="needs two GPUs")
ALONE = ("one_rank", "one_rank_compiled", "one_rank_graph")


@pytest.fixture(scope="module")
def two_gpus():
    """What `gpu_cases.run` returned on each rank. If it fails, it does so once for all tests."""
    return on_ranks(2, gpu_cases.run, "cuda")


@needs_one
def test_plain_step_passes_on_one_gpu():
    (found,) = on_ranks(1, functools.partial(gates, dtype=AUTOCAST, names=ALONE), "cuda")
    assert set(found) == set(ALONE)
    for name, columns in found.items():
        assert columns["gate"]["status"] == columns["check"]["status"] == "ok", (name, columns)


@needs_two
@pytest.mark.parametrize("name", gpu_cases.ON_TWO)
def test_weights_after_five_steps_equal_those_of_one_process(two_gpus, name):
    each = [found for rank in two_gpus for found in rank["gates"] if name in found]
    assert each
    for found in (one[name] for one in each):
        assert found["gate"]["status"] == found["check"]["status"] == "ok", found
        assert found["alive"] == 0


@needs_two
@pytest.mark.parametrize("fault", PLANTED)
def test_planted_fault_fails_the_gate_on_some_rank(two_gpus, fault):
    found = [rank["planted"][fault] for rank in two_gpus]
    assert "failed_check" in {columns["status"] for columns in found}, found


@needs_two
def test_gate_of_sharded_leaderboard_finds_doubled_gradient(two_gpus):
    found = [rank["sharded"] for rank in two_gpus]
    assert {sharded["gate"]["status"] for sharded in found} == {"ok"}, found
    assert "failed_check" in {sharded["planted"]["status"] for sharded in found}
    assert {"computation", "all_gather"} <= {row["kind"] for row in found[0]["line"]}


@needs_two
@pytest.mark.parametrize("name", ["data_parallel", "resumed"])
def test_example_trains_with_a_sharded_state_and_goes_on(two_gpus, name):
    """But for weights that are rounded to another bf16 number."""
    runs = two_gpus[0]["example"]
    assert distance(runs["zero1"], runs[name], "cuda") < 0.05
