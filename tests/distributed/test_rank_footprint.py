"""Closed forms of the memory of the strategies."""

import pytest

from lmperf.distributed.rank_footprint import (
    predicted_bytes,
    state_bytes,
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


def test_copies_take_the_place_of_gathered_float32_weights():
    """16 N bytes, and 4 + 12/R: bf16 copies and gradients whole, float32 weights and moments in
    parts. Embedding and head, 1.5 % of the weights, have no copies."""
    stages = {"overlapped_graph": 16, "sharded_optimizer_graph": 5.5}
    totals = {name: sum(state_bytes(name, XL, 8).values()) / PARAMETERS for name in stages}
    assert totals == pytest.approx(stages, rel=0.02)


def test_checkpoints_lower_the_peak_of_a_fully_sharded_step():
    plain, fewer = (
        predicted_bytes(name, XL, 4096, 4, 2, AUTOCAST)["peak"]["total"]
        for name in ("fully_sharded", "fully_sharded_checkpointed")
    )
    assert fewer < plain - 2**30
