"""Tables of the report: words for statuses, formats of times, escaping, side-by-side tables."""

import pandas as pd
import pytest

from lmperf.reporting.markdown import FOLD, markdown, pipe_table
from lmperf.reporting.side_by_side import Beside, side_by_side
from lmperf.reporting.tables import (
    TableGroup,
    from_frame,
    kernel_note,
    kernel_times,
    reasons,
    shared_axes,
    shared_words,
    step_times,
    with_status_notes,
)

GIB = 2**30


def words(cells):
    """The texts that a page shows for table cells."""
    return [*map(str, cells)]


def rows(*cells):
    base = {
        "mean_ms": None,
        "std_ms": None,
        "median_ms": None,
        "least_ms": None,
        "host_ms": None,
        "reason": None,
        "implementation": "eager",
        "repetitions": 6,
    }
    base |= {"requested_bytes": None, "free_bytes": None, "max_error": None, "error_bound": None}
    return pd.DataFrame([{**base, **cell} for cell in cells])


def test_oom_states_bytes_requested_and_free():
    frame = rows(
        {"status": "oom", "requested_bytes": 12 * GIB, "free_bytes": 3.5 * GIB},
        {"status": "oom", "requested_bytes": GIB, "free_bytes": GIB},
        {"status": "oom"},
        {"status": "timeout"},
        {"status": "nan", "max_error": float("nan"), "error_bound": 1.0},
    )
    assert words(step_times(frame)) == [
        "OOM (asked 12.0 GiB, 3.5 GiB free)",
        "OOM (asked 1.0 GiB; 1.0 GiB free, in pieces)",
        "OOM",
        "time-out",
        "result not finite",
    ]


def test_note_explains_unchecked_cells_once():
    def note(*statuses):
        cells = step_times(rows(*({"status": status} for status in statuses)))
        return with_status_notes(from_frame("Steps", cells.to_frame("time"), "Means.")).notes

    assert note("unchecked", "unchecked") == (
        "Means. Not checked: the measured call fits into memory, its check does not."
    )
    assert note("timeout") == "Means."


def test_failed_accuracy_gate_withholds_the_time():
    frame = rows(
        {
            "status": "ok",
            "mean_ms": 1.0,
            "std_ms": 0.1,
            "median_ms": 1.0,
            "max_error": 2.0,
            "error_bound": 1.0,
        },
        {"status": "failed_check", "mean_ms": 1.0, "std_ms": 0.1, "median_ms": 1.0},
        {"status": "ok", "mean_ms": 1.0, "std_ms": 0.1, "median_ms": 1.0, "error_bound": 1.0},
        {
            "status": "ok",
            "mean_ms": 1.0,
            "std_ms": 0.1,
            "median_ms": 1.0,
            "max_error": 0.5,
            "error_bound": 1.0,
        },
    )
    withheld = "gate failed, withheld"
    assert words(step_times(frame)) == [withheld, withheld, withheld, "1.00 ± 0.10 (6)"]


def test_numbers_align_right_and_text_left_without_padding():
    frame = pd.DataFrame({"name": ["a long name", "b"], "ms": ["1.00", "12.0"]})
    assert pipe_table(frame).splitlines() == [
        "| name | ms |",
        "|:---|---:|",
        "| a long name | 1.00 |",
        "| b | 12.0 |",
    ]


def test_number_like_text_stays_as_written():
    assert "| 1e5 |" in pipe_table(pd.DataFrame({"n": ["1e5"]}))


def test_long_table_is_folded_and_states_its_length():
    table = from_frame("Times", pd.DataFrame({"n": range(FOLD + 1)}), "Median.")
    assert f"<summary>Times ({FOLD + 1} lines)</summary>" in markdown(table)
    assert "Median." in markdown(table)
    assert "<details>" not in markdown(table, fold=None)


def test_anchor_of_a_table_is_made_from_its_heading():
    table = TableGroup("F2", "Against the backends of PyTorch, named", lambda _: [])
    assert table.anchor == "f2-against-the-backends-of-pytorch-named"


def test_side_by_side_table_has_one_line_per_cell():
    frame = pd.DataFrame(
        {
            "n": [1, 1, 2],
            "batch": [4, 4, 4],
            "implementation": ["eager", "compiled", "eager"],
            "phase": "forward",
            "ms": ["a", "b", "c"],
        }
    )
    columns = [
        Beside(name, frame.loc[frame["implementation"] == name, "ms"], name)
        for name in ("eager", "compiled", "absent")
    ]
    table = side_by_side("Times", frame, ["n", "batch"], columns)
    assert table.caption == "Times, batch 4"
    assert list(table.frame.columns) == ["n", "eager", "compiled"]
    assert table.frame.to_numpy().tolist() == [[1, "a", "b"], [2, "c", "–"]]
    assert side_by_side("Times", frame, ["n"], columns[2:]) is None


def test_side_by_side_keeps_headers_and_translates_axes():
    frame = pd.DataFrame({"seq_len": [1, 2], "implementation": "my_own", "phase": "forward"})
    columns = [Beside("my_own (ms)", pd.Series(["a", "b"]), "forward.my_own")]
    table = side_by_side("Times", frame, ["seq_len"], columns)
    assert list(table.frame.columns) == ["length", "my_own (ms)"]


def test_side_by_side_shows_a_dash_for_a_missing_axis():
    frame = pd.DataFrame({"n": [1, None, None], "implementation": "eager", "phase": "forward"})
    columns = [Beside("ms", pd.Series(["a", "b", "c"]), "forward")]
    assert side_by_side("T", frame, ["n"], columns).frame["ms"].tolist() == ["c", "a"]
    assert side_by_side("T", frame, ["n"], columns).frame["n"].tolist() == ["–", 1]


def test_kernel_time_is_median_with_interval_and_count():
    rounds = ";".join(map(str, [1.0, 1.1, 1.2, 1.3, 1.4, 1.5]))
    row = {"status": "ok", "median_ms": 1.25, "rounds_ms": rounds, "repetitions": 60}
    assert words(kernel_times(rows(row))) == ["1.25 (1.00-1.50; 60)"]


def test_note_states_the_number_of_rounds():
    ok = [{"status": "ok", "rounds_ms": ";".join(["1.0"] * n)} for n in (6, 20, 9, 14)]
    failed = {"status": "crash", "rounds_ms": None}
    assert (
        kernel_note(rows(*ok, failed))
        == "Median (interval over rounds; n calls in 6 to 20 rounds)."
    )
    assert kernel_note(rows(ok[0])) == "Median (interval over rounds; n calls in 6 rounds)."
    assert kernel_note(rows(failed)) == "Median (interval over rounds; n calls)."


def test_axes_with_one_value_go_to_the_caption():
    frame = pd.DataFrame({"batch": [4, 4], "seq_len": [1, 2], "causal": [False, False]})
    cell = ["batch", "seq_len", "causal"]
    shared, varying = shared_axes(frame, cell)
    assert varying == ["seq_len"] and shared == ["batch", "causal"]
    assert shared_words(frame, cell, shared) == ", batch 4, not causal"


def test_reasons_are_counted_and_escaped():
    frame = rows(
        *[{"status": "unsupported", "reason": "no kernel | here"}] * 3,
        {"status": "crash", "reason": "segmentation fault"},
    )
    lines = reasons(frame).splitlines()
    assert "(3 rows)" in lines[0] and "no kernel \\| here" in lines[0]
    assert "crash" in lines[1]


@pytest.mark.parametrize(
    ("median", "shown"),
    [
        (300.0, "307 ± 15 (6)"),
        (219.0, "307 ± 15 (6), median 219"),
        (330.0, "307 ± 15 (6), median 330"),
    ],
)
def test_median_is_shown_if_it_differs_from_the_mean(median, shown):
    row = {"status": "ok", "mean_ms": 307.0, "std_ms": 15.0, "median_ms": median}
    assert words(step_times(rows(row))) == [shown]


def test_headers_and_cells_are_escaped():
    frame = pd.DataFrame({"a|b": ["plain", "a|b", "two\nlines", "  <b>", "x\\y"], "n": range(5)})
    header, _, *lines = pipe_table(frame).splitlines()
    assert header == "| a\\|b | n |"
    shown = [line.split(" | ")[0].removeprefix("| ").strip() for line in lines]
    assert shown == ["plain", "a\\|b", "two lines", "&lt;b>", "x\\\\y"]
