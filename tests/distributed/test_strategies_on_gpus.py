"""Strategies on GPUs: one rank on one GPU, and two ranks, one on each of two."""

import functools

import pytest
import sharded_leaderboard_cases
import torch
from ranks import on_ranks
from strategy_cases import AUTOCAST, BENCHMARK, PLANTED, gates, planted

pytestmark = [pytest.mark.process, pytest.mark.slow, pytest.mark.gpu]

needs_one = pytest.mark.skipif(torch.cuda.device_count() < 1, reason="needs a GPU")
needs_two = pytest.mark.skipif(torch.cuda.device_count() < 2, reason="needs two GPUs")
NAMES = tuple(one.name for one in BENCHMARK.implementations)
# Compiled ones are measured in autocast alone.
IN_FLOAT32 = tuple(one.name for one in BENCHMARK.implementations if not one.compiles)
ON_TWO = [name for name in NAMES if not name.startswith("one_rank")]


def run(rank):
    """Everything that runs on two GPUs, in one group: its start takes long."""
    return {
        "gates": [gates(rank, AUTOCAST, NAMES), gates(rank, "float32", IN_FLOAT32)],
        "planted": planted(rank, PLANTED),
        "sharded": sharded_leaderboard_cases.run(rank),
    }


@functools.cache
def two_gpus():
    return on_ranks(2, run, "cuda")


@needs_one
def test_plain_step_passes_on_one_gpu():
    (found,) = on_ranks(1, functools.partial(gates, dtype=AUTOCAST, names=NAMES), "cuda")
    assert set(found) == {"one_rank", "one_rank_compiled", "one_rank_graph"}
    for name, columns in found.items():
        assert columns["gate"]["status"] == columns["check"]["status"] == "ok", (name, columns)


@needs_two
@pytest.mark.parametrize("name", ON_TWO)
def test_weights_after_five_steps_equal_those_of_one_process(name):
    each = [found for rank in two_gpus() for found in rank["gates"] if name in found]
    assert each
    for found in (one[name] for one in each):
        assert found["gate"]["status"] == found["check"]["status"] == "ok", found
        assert found["alive"] == 0


@needs_two
@pytest.mark.parametrize("fault", PLANTED)
def test_planted_fault_fails_the_gate_on_some_rank(fault):
    found = [rank["planted"][fault] for rank in two_gpus()]
    assert "failed_check" in {columns["status"] for columns in found}, found


@needs_two
def test_fully_sharded_leaderboard_passes_and_rank_that_counts_twice_does_not():
    found = [rank["sharded"] for rank in two_gpus()]
    assert {sharded["gate"]["status"] for sharded in found} == {"ok"}, found
    assert "failed_check" in {sharded["planted"]["status"] for sharded in found}
    assert {"computation", "all_gather"} <= {row["kind"] for row in found[0]["line"]}
