"""Published figures stand beside this machine's rows of the same cells."""

import planted
import pytest

from lmperf.reporting.sections import section

CELL = {"batch": 8, "d_head": 16, "dtype": "float32", "causal": False, "phase": "forward"}


def attention(seq_len, ms, **more):
    work = {"flops": 1e6 * seq_len**2, "seq_len": seq_len}
    return planted.row("attention", ms, implementation="eager", **CELL, **work, **more)


def lines(*rows):
    """(title, lines) of each topic of the page."""
    topics = section("published", planted.evidence(*rows)).by_topic
    return {title: lines.frame for title, lines, _ in topics}


def test_largest_published_cell_of_a_source_is_shown():
    found = lines(attention(256, 1.5), attention(1024, 6.5))["Attention"]
    ours = found[(found["source"] == "write-up 000") & (found["metric"] == "time")]
    assert ours["here"].tolist() == [6.5] and "length 1024" in ours["cell"].iloc[0]


@pytest.mark.parametrize(
    "change", [{"status": "oom"}, {"gate": "failed", "status": "failed_check"}]
)
def test_row_without_a_result_is_not_compared(change):
    assert lines(attention(256, 1.5, **change)) == {}


def test_values_have_their_unit_and_seconds_become_ms():
    cell = {"size": "0.97B", "context_length": 256, "batch": 4, "dtype": "float32"}
    step = planted.row("end_to_end", 57.0, implementation="eager", phase="forward", **cell)
    found = lines(step)["End to end"].set_index("device")
    assert found.loc["MacBook Air, CPU", "published"] == "2,517 ms"
    assert found["quantity"].unique().tolist() == ["time (ms)"]


def test_all_sums_are_shown_as_they_have_no_size():
    sums = {"float32 + float32": 10.00013, "float16 + float16": 9.953125}
    rows = [
        planted.row(
            "mixed_precision",
            experiment="accumulation",
            subject=name,
            value=value,
            phase="forward",
            implementation="eager",
        )
        for name, value in sums.items()
    ]
    page = planted.page("published", planted.evidence(*rows))
    table = next(table for table in page.tables if table.title == "Mixed precision")
    here = next(column for column in table.columns if column.name == "here")
    assert {cell.words for cell in here.cells} == {"10.0001", "9.9531"} and len(here.cells) == 4
