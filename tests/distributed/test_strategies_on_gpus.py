"""Strategies on GPUs: one rank on one GPU, and two ranks, one on each of two."""

import functools
import sys
from pathlib import Path

import pytest
import torch

sys.path.insert(0, str(Path(__file__).parent))

from gpu_ranks import on_gpus
from strategy_cases import AUTOCAST, BENCHMARK, PLANTED, gates, planted

pytestmark = [pytest.mark.process, pytest.mark.slow, pytest.mark.gpu]

needs_one = pytest.mark.skipif(torch.cuda.device_count() < 1, reason="needs a GPU")
needs_two = pytest.mark.skipif(torch.cuda.device_count() < 2, reason="needs two GPUs")
NAMES = tuple(one.name for one in BENCHMARK.implementations)
ON_TWO = [name for name in NAMES if not name.startswith("one_rank")]


@functools.cache
def found_on_two(dtype: str):
    return on_gpus(2, functools.partial(gates, dtype=dtype, names=NAMES))


planted_on_two = functools.cache(lambda: on_gpus(2, planted))


@needs_one
def test_plain_step_passes_on_one_gpu():
    (found,) = on_gpus(1, functools.partial(gates, dtype=AUTOCAST, names=NAMES))
    assert set(found) == {"one_rank", "one_rank_compiled"}
    for name, columns in found.items():
        assert columns["gate"]["status"] == columns["check"]["status"] == "ok", (name, columns)


@needs_two
@pytest.mark.parametrize("name", ON_TWO)
@pytest.mark.parametrize("dtype", ["float32", AUTOCAST])
def test_weights_after_five_steps_equal_those_of_one_process(name, dtype):
    for rank in found_on_two(dtype):
        print(name, dtype, {key: rank[name][key] for key in ("gate", "check")})
        assert rank[name]["gate"]["status"] == "ok", rank[name]
        assert rank[name]["check"]["status"] == "ok", rank[name]
        assert rank[name]["alive"] == 0


@needs_two
@pytest.mark.parametrize("fault", PLANTED)
@pytest.mark.parametrize("dtype", ["float32", AUTOCAST])
def test_planted_fault_fails_the_gate_on_some_rank(fault, dtype):
    found = [rank[dtype, fault] for rank in planted_on_two()]
    assert "failed_check" in {columns["status"] for columns in found}, found
