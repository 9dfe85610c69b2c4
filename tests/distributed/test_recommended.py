"""The recommended step on two gloo processes: data parallel and ZeRO stage 1."""

import re

import pytest
import torch
from recommended_cases import EPS, EXAMPLE_NORM, NAMES, RATE, distance, flat

from lmperf.attention.accuracy import UNIT_ROUNDOFF

pytestmark = [pytest.mark.process, pytest.mark.slow]


@pytest.fixture
def ranks(two_ranks):
    return [found["recommended"] for found in two_ranks]


@pytest.mark.parametrize("name", NAMES)
def test_weights_pass_the_gate_of_the_benchmark(ranks, name):
    for found in (rank["gates"][name] for rank in ranks):
        assert found["gate"]["status"] == found["check"]["status"] == "ok", found
        assert found["alive"] == 0, "its model is freed"


@pytest.mark.parametrize("sharded", [False, True])
def test_weights_equal_those_of_one_process_that_averages_the_parts(ranks, sharded):
    """Bit by bit: two ranks' bf16 gradients are added exactly in float32, and rounded once."""
    for rank in ranks:
        for name, weight in rank["steps"][sharded]["weights"].items():
            assert torch.equal(weight, rank["alone"][name]), name


def test_step_equals_one_process_on_the_whole_batch(ranks):
    """Element by element, with u = 2^-8, the unit roundoff of bf16.

    One process rounds the gradient g of the whole batch: an error of u |g|. The ranks round those
    of their parts, g1 and g2, and their mean: u (|g1| + |g2|) / 2 + u |g|, as the mean is g but for
    terms of u^2. An activation of the whole batch may be rounded to the next number, since float32
    sums have another order: as much again at most. The first step of AdamW, rate g / (|g| + eps),
    has a derivative of at most rate / eps, and both processes round the weight w to float32.
    """
    u, exact = UNIT_ROUNDOFF["bfloat16"], UNIT_ROUNDOFF["float32"]
    for rank in ranks:
        for name, alone in rank["one_step"]["alone"].items():
            weight = rank["one_step"]["ranks"]["weights"][name]
            gradient = 2 * u * (2 * alone["gradient"] + alone["parts"])
            bound = RATE / EPS * gradient + 2 * exact * alone["weight"].abs()
            assert ((weight - alone["weight"]).abs() <= bound).all(), name


def test_moments_are_sharded_in_halves(ranks):
    for whole, half in ([rank["steps"][k]["moments"] for k in (False, True)] for rank in ranks):
        assert half == whole / 2


@pytest.mark.parametrize("fault", ["copies are not gathered", "a bucket is not reduced"])
def test_planted_fault_fails_the_gate(ranks, fault):
    assert "failed_check" in {rank["planted"][fault] for rank in ranks}


def test_example_with_a_sharded_state_trains_as_data_parallel(ranks):
    """But for the order of sums: those of the norm that both clip to."""
    runs = ranks[0]["example"]
    norms = re.findall(r"norm ([\d.]+)", runs["zero1"]["printed"])
    assert len(norms) == 2 and min(map(float, norms)) > EXAMPLE_NORM, "gradients are clipped"
    assert distance(runs["zero1"], runs["data_parallel"]) < 1e-4


def test_example_adds_up_micro_batches_on_ranks_as_alone(ranks):
    """In float32. After a step: later ones round the weights to bf16, up or down."""
    runs = ranks[0]["example"]
    alone = runs["a step of micro-batches alone"]
    assert distance(runs["a step of micro-batches"], alone) < 1e-4


def test_example_goes_on_from_its_checkpoint(ranks):
    """Bit by bit, with the moments of all ranks. Those of data parallel: see other ranks below."""
    once, resumed = (ranks[0]["example"][name] for name in ("zero1", "resumed"))
    once, resumed = ({"printed": losses_of(run), **flat(run)} for run in (once, resumed))
    assert once.pop("printed") == resumed.pop("printed") and once.keys() == resumed.keys()
    for name, value in once.items():
        assert torch.equal(value, resumed[name]), name


def test_example_goes_on_with_other_ranks(ranks):
    """But for the order of sums, and so for weights that are rounded to another bf16 number."""
    runs = ranks[0]["example"]
    assert distance(runs["micro-batches on other ranks"], runs["micro-batches"]) < 0.01


def test_step_that_does_not_fit_on_a_rank_asks_for_fewer_sequences(ranks):
    for rank in ranks:
        assert "of a rank: give fewer sequences, or a smaller micro_batch" in rank["too_much"]


def losses_of(run) -> list[str]:
    return re.findall(r"step.*validation [\d.]+", run["printed"])
