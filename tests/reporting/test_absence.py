"""A table cell without a value states why: not configured, not measured, or omitted."""

import synthetic

from lmperf.reporting.absence import with_reasons
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
