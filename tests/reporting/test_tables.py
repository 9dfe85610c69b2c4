"""Tables: statuses in words, cells that cannot break the Markdown."""

import pandas as pd
import pytest

from lmperf.reporting.tables import markdown, reasons, shared_axes, timing_cells, wide

GIB = 2**30


def rows(*cells):
    base = {
        "mean_ms": None,
        "std_ms": None,
        "median_ms": None,
        "reason": None,
        "implementation": "eager",
    }
    base |= {"requested_bytes": None, "free_bytes": None, "max_error": None, "error_bound": None}
    return pd.DataFrame([{**base, **cell} for cell in cells])


def test_out_of_memory_says_what_was_asked_and_what_was_free():
    frame = rows(
        {"status": "oom", "requested_bytes": 12 * GIB, "free_bytes": 3.5 * GIB},
        {"status": "oom"},
        {"status": "timeout"},
        {"status": "nan", "max_error": float("nan"), "error_bound": 1.0},
    )
    assert timing_cells(frame).tolist() == [
        "OOM (asked 12.0 GiB, 3.5 GiB free)",
        "OOM",
        "time-out",
        "result not finite",
    ]


def test_a_red_gate_withholds_the_timing_whatever_the_status():
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
    assert timing_cells(frame).tolist() == [withheld, withheld, withheld, "1.00 ± 0.10"]


def test_cells_are_escaped():
    text = markdown(pd.DataFrame({"a|b": ["x | y", "<b>", "two\nlines"]}), "Table")
    lines = text.splitlines()[2:]
    assert all(line.replace("\\|", "").count("|") == 2 for line in lines)
    assert "<b>" not in text and "two lines" in text


def test_combinations_that_do_not_exist_are_dashes():
    frame = pd.DataFrame(
        {"n": [1, 1, 2], "implementation": ["eager", "compiled", "eager"], "x": ["a", "b", "c"]}
    )
    table = wide(frame, frame["x"], ["n"], "implementation")
    assert table.to_numpy().tolist() == [[1, "a", "b"], [2, "c", "–"]]


def test_axes_with_one_value_go_to_the_caption():
    frame = pd.DataFrame({"batch": [4, 4], "seq_len": [1, 2], "causal": [False, False]})
    words, varying = shared_axes(frame, ["batch", "seq_len", "causal"])
    assert varying == ["seq_len"] and words == ", batch 4, not causal"


def test_reasons_are_counted_and_escaped():
    frame = rows(
        *[{"status": "unsupported", "reason": "no kernel | here"}] * 3,
        {"status": "crash", "reason": "segmentation fault"},
    )
    lines = reasons(frame).splitlines()
    assert "(3 rows)" in lines[0] and "no kernel \\| here" in lines[0]
    assert "crash" in lines[1]


@pytest.mark.parametrize(
    ("median", "words"),
    [(300.0, "307 ± 15"), (219.0, "307 ± 15, median 219"), (330.0, "307 ± 15, median 330")],
)
def test_a_mean_that_is_off_the_median_has_it_beside_it(median, words):
    row = {"status": "ok", "mean_ms": 307.0, "std_ms": 15.0, "median_ms": median}
    assert list(timing_cells(pd.DataFrame([row]))) == [words]


def test_a_cell_cannot_break_its_table():
    frame = pd.DataFrame({"name": ["plain", "a|b", "two\nlines", "  <b>", "x\\y"], "n": range(5)})
    lines = markdown(frame, "Names").splitlines()[4:]
    shown = [line.split(" | ")[0].removeprefix("| ").strip() for line in lines]
    assert shown == ["plain", "a\\|b", "two lines", "&lt;b>", "x\\\\y"]
