"""Strategies on GPUs: one rank on one GPU, and two ranks, one on each of two."""

import functools

import pytest
import torch
from ranks import on_ranks
from strategy_cases import AUTOCAST, BENCHMARK, DTYPES, PLANTED, gates, planted

pytestmark = [pytest.mark.process, pytest.mark.slow, pytest.mark.gpu]

needs_one = pytest.mark.skipif(torch.cuda.device_count() < 1, reason="needs a GPU")
needs_two = pytest.mark.skipif(torch.cuda.device_count() < 2, reason="needs two GPUs")
NAMES = tuple(one.name for one in BENCHMARK.implementations)
ON_TWO = [name for name in NAMES if not name.startswith("one_rank")]


@functools.cache
def found_on_two(dtype: str):
    return on_ranks(2, functools.partial(gates, dtype=dtype, names=NAMES), "cuda")


@functools.cache
def planted_on_two(dtype: str):
    return on_ranks(2, functools.partial(planted, dtype=dtype), "cuda")


@needs_one
def test_plain_step_passes_on_one_gpu():
    (found,) = on_ranks(1, functools.partial(gates, dtype=AUTOCAST, names=NAMES), "cuda")
    assert set(found) == {"one_rank", "one_rank_compiled", "one_rank_graph"}
    for name, columns in found.items():
        assert columns["gate"]["status"] == columns["check"]["status"] == "ok", (name, columns)


@needs_two
@pytest.mark.parametrize("name", ON_TWO)
def test_weights_after_five_steps_equal_those_of_one_process(name):
    ranks = [rank for dtype in DTYPES for rank in found_on_two(dtype) if name in rank]
    assert ranks
    for found in (rank[name] for rank in ranks):
        assert found["gate"]["status"] == found["check"]["status"] == "ok", found
        assert found["alive"] == 0


@needs_two
@pytest.mark.parametrize("fault", PLANTED)
@pytest.mark.parametrize("dtype", DTYPES)
def test_planted_fault_fails_the_gate_on_some_rank(fault, dtype):
    found = [rank[fault] for rank in planted_on_two(dtype)]
    assert "failed_check" in {columns["status"] for columns in found}, found
