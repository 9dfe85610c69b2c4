"""The leaderboard's step on two gloo processes: only a right exchange passes the gate."""

import pytest
from leaderboard_cases import STRATEGIES, TINY

from lmperf.benchmark import Rank, Unsupported
from lmperf.distributed.leaderboard import RankProblem


@pytest.mark.process
@pytest.mark.parametrize("name", STRATEGIES)
def test_weights_after_five_steps_are_those_of_one_process(name, two_ranks):
    for found in (rank["leaderboard"] for rank in two_ranks):
        assert found[name]["status"] == "ok", found[name]
        assert found[name]["error_parameters"] == found[name]["error_ranks"] == 0


@pytest.mark.process
def test_sharded_moments_are_split_over_the_ranks(two_ranks):
    right = [rank["leaderboard"] for rank in two_ranks]
    for found in right:
        whole = found["data_parallel"]["moments"]
        assert abs(found["sharded_moments"]["moments"] / whole - 0.5) < 0.01
    assert sum(found["sharded_moments"]["moments"] for found in right) == whole


@pytest.mark.process
@pytest.mark.parametrize("name", ["one reduction fewer", "no broadcast"])
def test_wrong_exchange_fails_the_gate(name, two_ranks):
    for found in (rank["wrong"] for rank in two_ranks):
        assert found[name]["status"] == "failed_check"
        assert found[name]["error_parameters"] > 0.1 and found[name]["error_ranks"] > 0


@pytest.mark.process
def test_gate_of_fully_sharded_step_finds_doubled_gradient(two_ranks):
    sharded = [rank["sharded"] for rank in two_ranks]
    assert {found["gate"]["status"] for found in sharded} == {"ok"}
    assert "failed_check" in {found["planted"]["status"] for found in sharded}
    assert all(abs(found["shards"] - 0.5) < 0.01 for found in sharded)


@pytest.mark.process
def test_time_line_has_gathers_beside_computation_in_both_passes(two_ranks):
    rows = two_ranks[0]["sharded"]["line"]
    assert [row["position"] for row in rows] == [*range(len(rows))]
    for part in ("forward", "backward"):
        kinds = {row["kind"] for row in rows if row["part"] == part}
        assert {"computation", "all_gather"} <= kinds
    assert all(0 <= row["start_ms"] < row["end_ms"] <= row["step_ms"] for row in rows)


def test_batch_that_does_not_split_is_unsupported():
    with pytest.raises(Unsupported, match="batch of 2 does not split over 3 ranks"):
        RankProblem(TINY, Rank(0, 3, "cpu", "gloo"), 1)
