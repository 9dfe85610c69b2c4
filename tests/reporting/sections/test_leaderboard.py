"""The leaderboard's step beside the published times."""

import planted
import pytest


def step(ms, implementation):
    known = {"tokens": 65536, "flops": 4.7e15, "peak_mib": 131_072, "matmul_blocks": 9}
    return planted.row("leaderboard", ms=ms, implementation=implementation, **known)


@pytest.mark.parametrize(("ms", "said"), [(5000, "2.00x"), (9999, "on par")])
def test_keeping_more_is_compared_with_recomputing_all(ms, said):
    rows = [step(10_000, "recompute_all"), step(ms, "keep_attention")]
    page = planted.page("end_to_end", planted.evidence(*rows))
    assert any(said in one for one in page.said if one.startswith("Leaderboard's step"))
