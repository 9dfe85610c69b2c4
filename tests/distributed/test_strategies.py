"""Strategies on two gloo processes: gates, planted faults, memory that is freed."""

import pytest
import torch.distributed as dist
from strategy_cases import NAMES, PLANTED, RIGHT, gates, use_toy

from lmperf.benchmark import Rank

pytestmark = [pytest.mark.process, pytest.mark.slow]


@pytest.mark.parametrize(
    ("name", "dtype"), [(name, dtype) for dtype, names in NAMES.items() for name in names]
)
def test_weights_after_five_steps_equal_those_of_one_process(two_ranks, name, dtype):
    for found in (rank["strategies"][name, dtype] for rank in two_ranks):
        assert found["gate"]["status"] == found["check"]["status"] == "ok", found
        assert found["alive"] == 0, "its model is freed"


def test_single_rank_equals_its_sequences_one_by_one(tmp_path, monkeypatch):
    use_toy(monkeypatch)
    dist.init_process_group("gloo", f"file://{tmp_path}/group", rank=0, world_size=1)
    try:
        found = gates(Rank(0, 1, "cpu", "gloo"), "float32", ["one_rank"])
    finally:
        dist.destroy_process_group()
    assert found["one_rank"]["gate"]["status"] == "ok"
    assert found["one_rank"]["gate"]["error_parameters"] > 0


@pytest.mark.parametrize("fault", PLANTED)
def test_planted_fault_fails_the_gate_on_some_rank(two_ranks, fault):
    found = [rank["planted"][fault] for rank in two_ranks]
    assert "failed_check" in {columns["status"] for columns in found}, found
    if fault == "wrong_number":  # which is in the gradients of a timed call
        assert not all(columns["checked"] for columns in found)


@pytest.mark.parametrize("right", RIGHT)
def test_right_classes_pass_as_a_users(two_ranks, right):
    for found in (rank["planted"][right] for rank in two_ranks):
        assert found["status"] == "ok" and found["checked"]


@pytest.mark.parametrize("name", ["ByClass", "ShardedOptimizer", "fsdp2", "course_fsdp"])
def test_strategy_trains_its_authors_own_model(two_ranks, name):
    for found in (rank["own_model"][name] for rank in two_ranks):
        assert found["status"] == "ok" and found["checked"], found


@pytest.mark.parametrize("name", ["StaleByClass", "WrongNumber"])
def test_fault_on_the_authors_own_model_fails_the_gate(two_ranks, name):
    assert "failed_check" in {rank["own_model"][name]["status"] for rank in two_ranks}


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("not_sharded", "NotSharded shards nothing: parameters() of each rank has all "),
        ("not_sharded", "are nn.Linear and nn.Embedding of torch: layers that are sharded by ano"),
        ("other_name", "OtherNames has no finish_gradient_synchronization; it has sync_gradients"),
    ],
)
def test_strategy_that_does_not_do_what_it_claims_is_refused(two_ranks, name, words):
    assert all(words in rank["refused"][name] for rank in two_ranks)


def test_classes_equal_one_process_on_the_courses_toy_model(two_ranks):
    for course in (rank["course"] for rank in two_ranks):
        assert max(course["errors"].values()) <= 1e-6, course["errors"]
        assert "share a parameter" in course["tied"], "a parameter of two units is refused"


def test_state_of_a_sharded_optimizer_is_split_in_aligned_halves(two_ranks):
    states = [rank["course"]["states"] for rank in two_ranks]
    whole = 10 * 12 + 12 + 2 * 12 + 2 * 12 * 12
    # Tensors begin at multiples of 64 elements. Buffers of the three groups have 256, 384 and 256,
    # and rank 0 has the first half: 120 of 120 + 12, 12 + 12 + 64 of 168, and 128 of 144 weights.
    assert [state["sharded"] for state in states] == [336, 108] and whole == 336 + 108
    assert sum(state["sharded_in_chunks"] for state in states) == whole
