"""Tests of cells, columns and tables of results, which data frames and pages read."""

from dataclasses import FrozenInstanceError

import pytest

from lmperf.results import AXIS, EMPTY, SIGNS, Cell, Column, Table, joined

TABLE = Table(
    "Forward, bf16",
    (
        Column("seq_len", "length", (Cell("128", 128), Cell("256", 256)), role=AXIS),
        Column("dtype", "dtype", (Cell("bf16", "bfloat16"), Cell("bf16", "bfloat16")), role=AXIS),
        Column(
            "forward.triton",
            "Triton (ms)",
            (Cell("0.120", 0.12, marks=("capped", "stale")), Cell(EMPTY, state="oom")),
            format="significant",
        ),
    ),
)


def test_cell_text_appends_signs_of_its_marks():
    assert str(Cell("1.00", 1.0)) == "1.00"
    assert str(Cell("1.00", 1.0, marks=("capped", "stale"))) == f"1.00{SIGNS['capped']}ˢ"
    assert str(Cell("1.00", 1.0, marks=("odd",))) == "1.00"


def test_cell_cannot_be_changed():
    with pytest.raises(FrozenInstanceError):
        Cell("1").words = "2"


def test_frame_keeps_axis_numbers_and_rounded_cell_texts():
    frame = TABLE.frame
    assert list(frame) == ["length", "dtype", "Triton (ms)"]
    assert frame.to_numpy().tolist() == [[128, "bf16", "0.120ᶜˢ"], [256, "bf16", EMPTY]]


def test_table_can_be_cut_to_last_lines_and_columns():
    assert TABLE.length == 2 and TABLE.last(1).frame["length"].tolist() == [256]
    assert [column.name for column in TABLE.without("dtype").columns] == [
        "seq_len",
        "forward.triton",
    ]


def test_joined_column_name_leaves_out_empty_parts():
    assert joined("forward", "", "triton", "over", "sdpa_cudnn") == "forward.triton.over.sdpa_cudnn"
