"""The time line of a fully sharded step: its figure, and when weights are there in time."""

import planted
import pytest
from planted_ranks import evidence, step

from lmperf.reporting.sections import section

STEP_MS = 4400
PASSES = {
    "forward": [("computation", 0, 61), ("all_gather", 0, 0.8), ("all_gather", 30, 30.8)],
    "backward": [("computation", 0, 185), ("all_gather", 92, 92.9), ("reduce_scatter", 1, 3.5)],
}


def rows(late_ms):
    ledger = {"step": STEP_MS, "compute": 4300, "communication": 400, "hidden": 390}
    ledger |= {"exposed": 10, "late": late_ms, "waited": 0}
    intervals = [(part, *one) for part, of in PASSES.items() for one in of]
    return [
        planted.row(
            "distributed_timeline",
            **{"size": "8.1B", "context_length": 32768, "batch": 2, "ranks": 2},
            **{"dtype": "autocast_bfloat16", "implementation": "fsdp2", "steps": 3},
            **{"position": position, "part": part, "kind": kind},
            **{"start_ms": start, "end_ms": end},
            **{
                f"{of}{which}_ms": ms
                for of, ms in ledger.items()
                for which in ("", "_low", "_high")
            },
        )
        for position, (part, kind, start, end) in enumerate(intervals)
    ]


def test_figure_has_the_intervals_of_both_passes_in_two_lines():
    line = section(evidence(*rows(2)), "time_line")
    assert len(line.ledger) == 1
    bars = line.bars
    assert [bar["panel"].partition(",")[0] for bar in bars] == ["forward"] * 3 + ["backward"] * 3
    assert [bar["name"] for bar in bars[3:]] == ["computation", "all-gather", "reduce-scatter"]
    assert [bar["line"] for bar in bars[3:]] == ["computation", *["communication"] * 2]
    text = planted.page("distributed", evidence(step("overlapped", 120), *rows(2))).text
    assert "30.5 ms in the forward pass, and the gathers of its weights take" in text
    assert "gathered in time?" in text


@pytest.mark.parametrize(("late_ms", "words"), [(2, "there in time"), (400, "weights are late")])
def test_course_says_whether_weights_are_there_in_time(late_ms, words):
    text = planted.page("course", evidence(step("overlapped", 120), *rows(late_ms))).text
    assert words in text and f"{late_ms:.3g}" in text
