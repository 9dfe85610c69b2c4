"""What has no row: why a table cell lacks a value, and which rows are missing in a few lines."""

import itertools

import pandas as pd
import synthetic

from lmperf.reporting.absence import MOST_LINES, missing_lines, with_reasons
from lmperf.reporting.evidence import MachineEvidence, having
from lmperf.reporting.side_by_side import side_by_side, time
from lmperf.reporting.tables import medians
from lmperf.results import NO_ROW, NOT_CONFIGURED, NOT_MEASURED

STEM, CELL = "flash_attention", ["seq_len", "d_head"]


def states_without(kept, configured):
    """(length, state) of the cells of column `tiled`, without its rows beyond length ``kept``.

    configured: the lengths of removed rows that the configuration asks for.
    """
    full = synthetic.cpu_evidence().frame(STEM)
    full = having(full, phase="forward", dtype="float32", causal=True)
    full = full.assign(key=[f"key {number}" for number in range(len(full))])
    gone = (full["implementation"] == "tiled") & (full["seq_len"] > kept)
    lacking = full[gone & full["seq_len"].isin(configured)].assign(status=None)
    evidence = MachineEvidence("m", frames={STEM: full[~gone]}, lacking={STEM: lacking})
    rows = evidence.frame(STEM)
    columns = [
        time(name, medians(having(rows, implementation=name)), f"forward.{name}")
        for name in ("eager", "tiled")
    ]
    table = with_reasons(side_by_side("Times", rows, CELL, columns), evidence)
    lengths, *_, found = table.columns
    parts = zip(lengths.cells, found.cells, strict=True)
    return {(length.value, cell.state) for length, cell in parts}


def test_cell_without_a_row_is_not_configured_or_not_measured():
    lengths = sorted(synthetic.cpu_evidence().frame(STEM)["seq_len"].unique())
    first, second, *rest = lengths
    states = states_without(first, configured=[second])
    assert (first, None) in states and (second, NOT_MEASURED) in states
    assert rest and {(length, NOT_CONFIGURED) for length in rest} <= states


def test_cell_omitted_by_the_table_has_the_state_no_row():
    rows = synthetic.cpu_evidence().frame(STEM)
    rows = rows.assign(key=[f"key {number}" for number in range(len(rows))])
    evidence = MachineEvidence("m", frames={STEM: rows})
    rows = having(evidence.frame(STEM), phase="forward", dtype="float32", causal=True)
    eager = having(rows, implementation="eager")
    columns = [time("eager", medians(eager.iloc[:1]), "forward.eager")]
    table = with_reasons(side_by_side("Times", rows, CELL, columns), evidence)
    assert {cell.state for cell in table.columns[-1].cells} == {None, NO_ROW}


def missing(implementations=("eager",), phases=("forward",), **axes):
    """Missing rows: each combination of these values."""
    columns = {**axes, "implementation": implementations, "phase": phases}
    return pd.DataFrame([*itertools.product(*columns.values())], columns=[*columns])


def test_missing_rows_are_summarised_by_axis_in_words():
    both = {"phases": ("forward", "forward_backward")}
    narrow = missing(seq_len=[256, 512, 1024, 2048, 4096], d_head=[16, 32], causal=[True], **both)
    wide = missing(("triton", "sdpa"), seq_len=[8192], d_head=[256], causal=[False])
    assert missing_lines(pd.concat([wide, narrow])) == [
        "20 rows: length 256 to 4096; d_head 16 and 32; causal; PyTorch; forward and forward +"
        " backward",
        "2 rows: length 8192; d_head 256; not causal; Triton and SDPA; forward",
    ]


def test_missing_rows_have_sizes_in_words_and_count_many_names():
    names = ("eager", "compiled", "sdpa", "triton", "graph")
    rows = missing(names, size=["small"], dtype=["bfloat16"])
    rows["batch"] = None
    rows = rows[["size", "batch", "dtype", "implementation", "phase"]]
    assert missing_lines(rows) == [
        "5 rows: size small; bf16 weights; 5 implementations; forward",
    ]


def test_missing_rows_without_a_pattern_stay_a_short_list():
    rows = pd.concat(missing(seq_len=[2**n], d_head=[n]) for n in range(30))
    *lines, last = missing_lines(rows)
    assert len(lines) == MOST_LINES - 1 and last == "19 further rows"
