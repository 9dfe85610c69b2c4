"""The leaderboard's step on several GPUs, beside that on one."""

import planted
import planted_ranks
import pytest

from lmperf.reporting.sections import section
from lmperf.reporting.words import NotMeasured

CELL = {"size": "8.1B", "context_length": 32768, "batch": 2, "dtype": "bfloat16"}


def leaderboard(**facts):
    """The section of two GPUs, beside the evidence of one GPU with these facts."""
    of = planted_ranks.evidence(planted.row("distributed_leaderboard", 4000, ranks=2, **CELL))
    alone = [planted.row("leaderboard", ms, **CELL) for ms in (9500, 9000)]
    of.others = [planted.evidence(*alone, facts=planted_ranks.TWO_H200 | {"devices": 1} | facts)]
    return section("distributed_leaderboard", of)


def test_fastest_step_on_one_gpu_may_be_of_another_machine():
    assert leaderboard().alone["ms"] == 9000


def test_other_software_is_not_compared():
    with pytest.raises(NotMeasured):
        _ = leaderboard(torch="2.10.0").alone
