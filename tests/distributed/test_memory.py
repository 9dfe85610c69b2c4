"""Closed forms of memory and communication of the strategies."""

import pytest

from lmperf.distributed.memory import (
    COMPONENTS,
    MOMENTS,
    STRATEGIES,
    predicted_bytes,
    sent_bytes,
    state_bytes,
    strategy_of,
)
from lmperf.transformer.sizes import SIZES

XL = SIZES["3.4B"]
PARAMETERS = XL.parameters()
AUTOCAST = "autocast_bfloat16"


def test_zero_stages_shard_what_their_paper_says():
    """Rajbhandari et al. 2020, section 3: 16 N, 4 + 4 + 8/R, 4 + 12/R and 16/R bytes."""
    totals = {
        name: sum(state_bytes(name, XL, 8).values()) / PARAMETERS
        for name in ("ddp", "zero_1", "zero_2", "zero_3")
    }
    assert totals == pytest.approx({"ddp": 16, "zero_1": 9, "zero_2": 5.5, "zero_3": 2}, rel=1e-3)


def test_one_rank_sends_nothing_and_two_send_half():
    for name in STRATEGIES:
        assert sent_bytes(name, XL, 1, "float32")["total"] == 0
    assert sent_bytes("ddp", XL, 2, "float32")["total"] == 4 * PARAMETERS
    assert sent_bytes("sharded_optimizer", XL, 2, "float32")["total"] == 6 * PARAMETERS
    assert sent_bytes("zero_1", XL, 2, "float32")["total"] == 4 * PARAMETERS


def test_fully_sharded_sends_less_when_weights_travel_in_bf16():
    float32, bf16 = (sent_bytes("fully_sharded", XL, 2, dtype) for dtype in ("float32", AUTOCAST))
    gathered = float32["all_gather"] - bf16["all_gather"]
    linear = XL.num_layers * XL.linear_parameters * 2 + 10_000 * XL.d_model
    assert gathered == 2 * linear / 2
    assert float32["reduce_scatter"] == bf16["reduce_scatter"]


@pytest.mark.parametrize("name", ["one_rank", *STRATEGIES])
def test_moments_sum_components_and_the_peak_is_highest(name):
    found = predicted_bytes(name, XL, 512, 4, 2, AUTOCAST)
    assert list(found) == list(MOMENTS)
    for parts in found.values():
        assert parts["total"] == sum(parts[part] for part in COMPONENTS)
    assert found["peak"]["total"] >= found["after_step"]["total"] > found["init"]["total"]


def test_checkpoints_lower_the_peak_of_a_fully_sharded_step():
    plain, fewer = (
        predicted_bytes(name, XL, 4096, 4, 2, AUTOCAST)["peak"]["total"]
        for name in ("fully_sharded", "fully_sharded_checkpointed")
    )
    assert fewer < plain - 2**30


def test_unknown_strategy_and_indivisible_batch_are_errors():
    with pytest.raises(ValueError, match="unknown strategy 'dpp'"):
        strategy_of("dpp")
    with pytest.raises(ValueError, match="batch of 3"):
        predicted_bytes("ddp", XL, 512, 3, 2, AUTOCAST)
