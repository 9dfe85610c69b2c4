"""The recommended step on two gloo processes: data parallel and ZeRO stage 1."""

import pytest
import torch
from recommended_cases import EPS, NAMES, RATE

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


def test_trainer_trains_on_several_ranks_with_groups_and_clipping(ranks):
    plain, sharded = (ranks[0]["trained"][name] for name in ("DATA_PARALLEL", "SHARDED"))
    assert float(plain["norm"]) == pytest.approx(float(sharded["norm"]), rel=1e-5)
    assert float(plain["norm"]) > 0.1, "gradients are clipped"
    assert not plain["saved"] and "a sharded state cannot be saved" in sharded["saved"]
    for name, weight in plain["weights"].items():
        torch.testing.assert_close(weight, sharded["weights"][name], rtol=1e-4, atol=1e-6)


def test_example_trains_on_two_ranks_and_goes_on_from_its_checkpoint(ranks):
    once, resumed = (ranks[0]["example"][name] for name in ("once", "resumed"))
    assert once.keys() == resumed.keys()
    for name, weight in once.items():
        assert torch.equal(weight, resumed[name]), name
