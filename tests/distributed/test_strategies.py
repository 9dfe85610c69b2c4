"""Strategies on two gloo processes: gates, planted faults, memory that is freed."""

import pytest
import torch.distributed as dist
from strategy_cases import DTYPES, EAGER, PLANTED, gates

from lmperf.benchmark import Rank

pytestmark = [pytest.mark.process, pytest.mark.slow]

ON_TWO = [name for name in EAGER if name != "one_rank"]


@pytest.mark.parametrize("name", ON_TWO)
def test_weights_after_five_steps_equal_those_of_one_process(two_ranks, name):
    for found in (rank[dtype][name] for rank in two_ranks for dtype in DTYPES):
        assert found["gate"]["status"] == found["check"]["status"] == "ok", found


def test_models_of_all_strategies_are_freed(two_ranks):
    for found in (rank[dtype] for rank in two_ranks for dtype in DTYPES):
        assert not [name for name in ON_TWO if found[name]["alive"]]


def test_single_rank_equals_its_sequences_one_by_one(tmp_path):
    dist.init_process_group("gloo", f"file://{tmp_path}/group", rank=0, world_size=1)
    try:
        found = gates(Rank(0, 1, "cpu", "gloo"), names=("one_rank",))
    finally:
        dist.destroy_process_group()
    assert found["one_rank"]["gate"]["status"] == "ok"
    assert found["one_rank"]["gate"]["error_parameters"] > 0


@pytest.mark.parametrize("fault", PLANTED)
@pytest.mark.parametrize("dtype", DTYPES)
def test_planted_fault_fails_the_gate_on_some_rank(two_ranks, fault, dtype):
    found = [rank["planted"][dtype, fault] for rank in two_ranks]
    assert "failed_check" in {columns["status"] for columns in found}, found


@pytest.mark.parametrize("fault", ["no_reduction", "wrong_number"])
def test_missing_or_wrong_average_fails_the_check_after_timed_calls(two_ranks, fault):
    assert not all(rank["planted"]["float32", fault]["checked"] for rank in two_ranks)


@pytest.mark.parametrize("right", ["right", "right_fsdp"])
def test_right_classes_pass_as_a_users(two_ranks, right):
    for found in (rank["planted"][dtype, right] for rank in two_ranks for dtype in DTYPES):
        assert found["status"] == "ok" and found["checked"]


def test_classes_equal_one_process_on_the_courses_toy_model(two_ranks):
    for rank in two_ranks:
        assert max(rank["course"]["errors"].values()) <= 1e-6, rank["course"]["errors"]


def test_state_of_a_sharded_optimizer_is_split_in_aligned_halves(two_ranks):
    states = [rank["course"]["states"] for rank in two_ranks]
    whole = 10 * 12 + 12 + 2 * 12 + 2 * 12 * 12
    # Tensors begin at multiples of 64 elements. Buffers of the three groups have 256, 384 and 256,
    # and rank 0 has the first half: 120 of 120 + 12, 12 + 12 + 64 of 168, and 128 of 144 weights.
    assert [state["sharded"] for state in states] == [336, 108] and whole == 336 + 108
    assert sum(state["sharded_in_chunks"] for state in states) == whole


def test_parameter_of_two_units_is_refused(two_ranks):
    assert "share a parameter" in two_ranks[0]["course"]["tied"]
