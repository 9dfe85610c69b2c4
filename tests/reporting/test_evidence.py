"""Read evidence (measured rows in CSV): column types, order of rows, invalid values."""

import csv

import numpy as np
import pandas as pd
import pytest

from lmperf.benchmark import COMMON_COLUMNS
from lmperf.reporting.evidence import (
    MachineEvidence,
    axes,
    groups,
    in_reading_order,
    row_names,
    typed_rows,
)

KINDS = {c.name: c.kind for c in COMMON_COLUMNS} | {"causal": bool, "seq_len": int}
HEADER = "seq_len,dtype,causal,implementation,phase,status,median_ms,rounds_ms,commit,key\n"


def read(*lines, header=HEADER):
    return typed_rows(list(csv.DictReader([header, *lines])), KINDS, "topic")


def test_columns_are_typed_as_declared():
    frame = read(
        "128,float32,True,eager,forward,ok,1.5,1.5,0012345,77",
        "256,float32,False,eager,forward,oom,,,0012345,78",
    )
    assert frame["causal"].tolist() == [True, False] and frame["causal"].dtype == bool
    assert frame["seq_len"].tolist() == [128, 256]
    assert frame["median_ms"].iloc[0] == 1.5 and np.isnan(frame["median_ms"].iloc[1])
    assert frame["commit"].tolist() == ["0012345", "0012345"]
    assert frame["key"].iloc[0] == "77" and frame["rounds_ms"].iloc[0] == "1.5"


@pytest.mark.parametrize(
    ("line", "column"),
    [
        ("128,float32,maybe,eager,forward,ok,1.5,,c,k", "causal"),
        ("128,float32,True,eager,forward,ok,fast,,c,k", "median_ms"),
    ],
)
def test_invalid_value_is_an_error_that_names_the_column(line, column):
    with pytest.raises(ValueError, match=rf"topic.*{column}"):
        read(line)


def test_unknown_axis_keeps_its_text():
    header = "shape,implementation,phase,status\n"
    frame = read("16x16,eager,forward,ok", header=header)
    assert frame["shape"].tolist() == ["16x16"]
    assert axes(frame) == ["shape"]


def test_rows_are_sorted_in_reading_order():
    cells = [
        ("2.0B", "forward"),
        ("small", "train_step"),
        ("small", "backward"),
        ("3.4B", "forward"),
    ]
    frame = pd.DataFrame(
        [{"size": s, "implementation": "eager", "phase": p, "status": "ok"} for s, p in cells]
    )
    ordered = in_reading_order(frame)
    assert list(ordered["size"]) == ["small", "small", "2.0B", "3.4B"]
    assert list(ordered["phase"])[:2] == ["backward", "train_step"]


def test_row_name_is_one_line():
    frame = pd.DataFrame(
        [{"seq_len": 128.0, "implementation": "eager", "phase": "forward", "status": "ok"}]
    )
    assert row_names(frame) == ["seq_len=128, eager, forward"]


def test_damaged_evidence_has_no_frame(gpu_copy):
    gpu_copy.damaged["attention"] = "digest differs"
    assert gpu_copy.frame("attention") is None
    assert MachineEvidence("m").present() == {}


def test_groups_are_in_reading_order_and_not_empty():
    frame = pd.DataFrame(
        {"phase": ["backward", "forward", "forward"], "dtype": ["tf32", "tf32", "float32"]}
    )
    found = [(phase, dtype, list(rows.index)) for phase, dtype, rows in groups(frame, *frame)]
    assert found == [
        ("forward", "float32", [2]),
        ("forward", "tf32", [1]),
        ("backward", "tf32", [0]),
    ]
