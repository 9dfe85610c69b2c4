"""Closed forms of the memory of the strategies."""

import pytest

from lmperf.distributed.memory import (
    COMPONENTS,
    MOMENTS,
    STRATEGIES,
    predicted_bytes,
    state_bytes,
    strategy_of,
)
from lmperf.transformer.sizes import SIZES

XL = SIZES["3.4B"]
PARAMETERS = XL.parameters()
AUTOCAST = "autocast_bfloat16"


def test_zero_stages_shard_what_their_paper_says():
    """Rajbhandari et al. 2020, section 3: 16 N, 4 + 4 + 8/R and 16/R bytes."""
    stages = {"ddp": 16, "sharded_optimizer": 9, "fsdp2": 2}
    totals = {name: sum(state_bytes(name, XL, 8).values()) / PARAMETERS for name in stages}
    assert totals == pytest.approx(stages, rel=1e-3)


@pytest.mark.parametrize("name", STRATEGIES)
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
