"""Strategies on gloo processes: gates, planted faults, memory that is freed."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from strategy_cases import AUTOCAST, EAGER, PLANTED, course, gates, planted

pytestmark = [pytest.mark.process, pytest.mark.slow]

ON_TWO = [name for name in EAGER if name != "one_rank"]


@pytest.fixture(scope="module", params=["float32", AUTOCAST])
def found(request, on_ranks):
    """What `gates` returned on each of two ranks."""
    return on_ranks(2, gates, dtype=request.param)


@pytest.mark.parametrize("name", ON_TWO)
def test_weights_after_five_steps_equal_those_of_one_process(found, name):
    for rank in found:
        assert rank[name]["gate"]["status"] == "ok", rank[name]
        assert rank[name]["check"]["status"] == "ok", rank[name]


@pytest.mark.parametrize("name", ON_TWO)
def test_models_of_a_strategy_are_freed(found, name):
    assert [rank[name]["alive"] for rank in found] == [0, 0]


def test_single_rank_equals_its_sequences_one_by_one(on_ranks):
    (found,) = on_ranks(1, gates)
    assert found["one_rank"]["gate"]["status"] == "ok"
    assert found["one_rank"]["gate"]["error_parameters"] > 0


def test_three_ranks_pass_and_their_order_of_sums_shows(on_ranks):
    names = ("overlapped", "bucket_1", "sharded_optimizer", "fully_sharded", "fsdp2")
    for rank in on_ranks(3, gates, names=names):
        assert {found["gate"]["status"] for found in rank.values()} == {"ok"}
        assert {found["check"]["status"] for found in rank.values()} == {"ok"}


@pytest.mark.parametrize("fault", PLANTED)
@pytest.mark.parametrize("dtype", ["float32", AUTOCAST])
def test_planted_fault_fails_the_gate_on_some_rank(fault, dtype, on_ranks):
    found = [rank[dtype, fault] for rank in on_ranks(2, planted)]
    assert "failed_check" in {columns["status"] for columns in found}, found


@pytest.mark.parametrize("fault", ["no_reduction", "wrong_number"])
def test_missing_or_wrong_average_fails_the_check_after_timed_calls(fault, on_ranks):
    assert not all(rank["float32", fault]["checked"] for rank in on_ranks(2, planted))


@pytest.mark.parametrize("right", ["right", "right_fsdp"])
@pytest.mark.parametrize("dtype", ["float32", AUTOCAST])
def test_right_classes_pass_as_a_users(right, dtype, on_ranks):
    for rank in on_ranks(2, planted):
        assert rank[dtype, right]["status"] == "ok" and rank[dtype, right]["checked"]


@pytest.mark.parametrize(
    ("name", "most"),
    [
        *((name, 1e-6) for name in ("one_by_one", "overlapped", "bucketed", "flat")),
        ("fully_sharded", 1e-6),
        *((name, 1e-6) for name in ("sharded", "sharded_in_chunks")),
    ],
)
def test_classes_equal_one_process_on_the_courses_toy_model(name, most, on_ranks):
    for rank in on_ranks(2, course):
        assert rank[name] <= most


def test_state_of_a_sharded_optimizer_is_split_in_aligned_halves(on_ranks):
    ranks = on_ranks(2, course)
    whole = 10 * 12 + 12 + 2 * 12 + 2 * 12 * 12
    assert sum(rank["sharded_state"] for rank in ranks) == whole
    # Tensors begin at multiples of 64 elements. Buffers of the three groups have 256, 384 and 256,
    # and rank 0 has the first half: 120 of 120 + 12, 12 + 12 + 64 of 168, and 128 of 144 weights.
    assert [rank["sharded_state"] for rank in ranks] == [336, 108]
    assert sum(rank["sharded_in_chunks_state"] for rank in ranks) == whole


def test_parameter_of_two_units_is_refused(on_ranks):
    assert "share a parameter" in on_ranks(2, course)[0]["tied"]
