"""Tables F4: errors of our kernel and of PyTorch against float64, for each tensor."""

from __future__ import annotations

from collections.abc import Sequence

import pandas as pd

from lmperf.names import axis_words, dtype_words, implementation_words
from lmperf.reporting import custom, gates
from lmperf.reporting.evidence import MachineEvidence, having
from lmperf.reporting.numbers import Count, Spread, error, ranged, significant
from lmperf.reporting.sections.flash_attention import kinds
from lmperf.reporting.tables import (
    as_cell,
    beside,
    number_cells,
    shared_axes,
    shared_words,
    status_words,
)
from lmperf.results import AXIS, LOWER, Column, Table

TENSORS = {
    "error_out": "output",
    "error_lse": "logsumexp",
    "error_dq": "dQ",
    "error_dk": "dK",
    "error_dv": "dV",
}
# Errors are compared with those of plain attention, or without it of the fallback SDPA backend.
REFERENCES = {kinds.PLAIN: "plain PyTorch", kinds.GENERAL: implementation_words(kinds.GENERAL)}
GATES = {True: "failed", False: "passed"}


def worst_errors(frame: pd.DataFrame, implementation: str) -> pd.DataFrame:
    """The largest error of each tensor, its bound and its gate, over the phases of a cell.

    Index: dtype and ``kinds.CELL``. ``red`` is whether a gate failed.
    """
    rows = having(kinds.with_mask(frame), implementation=implementation)
    rows = rows[gates.gated(rows)].assign(red=gates.red(rows))
    columns = [*tensors(frame), "max_error", "error_bound", "red"]
    return rows.groupby(["dtype", *kinds.CELL], sort=False)[columns].max()


def tensors(frame: pd.DataFrame) -> list[str]:
    """The error columns that have a value in the data frame, one for each measured tensor."""
    return [name for name in TENSORS if name in frame and frame[name].notna().any()]


def error_tables(evidence: MachineEvidence) -> list[Table]:
    """Tables F4, one per kernel and dtype: errors of kernel / PyTorch, error bound, gate."""
    frame = evidence.frame(kinds.STEM)
    names = (kinds.kernel_of(frame), *custom.names(evidence, kinds.STEM))
    return [table for name in names for table in _of_kernel(frame, name)]


def _of_kernel(frame: pd.DataFrame, name: str) -> list[Table]:
    theirs = pd.concat(worst_errors(frame, n).assign(reference=n) for n in REFERENCES)
    theirs = theirs[~theirs.index.duplicated()].add_suffix("_theirs")
    both = worst_errors(frame, name).join(theirs).reset_index().assign(implementation=name)
    both = both.assign(gate=both["red"].map(GATES), grid=both["heads"] > 1)
    both = both.sort_values(["grid", "cuda_graph", *kinds.CELL[:3]], kind="stable")
    return [_against_pytorch(part) for part in kinds.parts(both, "dtype")]


def _against_pytorch(both: pd.DataFrame) -> Table:
    cell = kinds.CELL if both["cuda_graph"].any() else kinds.CELL[:-1]
    kernel, numerics = both["implementation"].iloc[0], dtype_words(both["dtype"].iloc[0])
    if kernel in kinds.OURS:
        kernel, numerics = kinds.kernel_words(both), kinds.numerics(both)
    if both["reference_theirs"].isna().all():
        theirs = [name for name in both if name.endswith("_theirs")]
        return _lines(both.drop(columns=theirs), cell, f"{kernel}, {numerics}")
    both = both.assign(compared_with=both["reference_theirs"].map(REFERENCES))
    plain = both[both["reference_theirs"] == kinds.PLAIN]
    names = [n for n in tensors(both) if f"{n}_theirs" in both]
    ratios = [plain[n] / plain[f"{n}_theirs"].where(plain[f"{n}_theirs"] > 0) for n in names]
    ratios = pd.concat(ratios).dropna() if ratios else ()
    note = _times_as_large(ratios) if len(ratios) else ""
    return _lines(both, [*cell, "compared_with"], f"{kernel} / PyTorch, {numerics}", note)


def _times_as_large(ratios: pd.Series) -> str:
    spread, larger = Spread.of(ratios), Count(int((ratios > 1).sum()), len(ratios))
    middle = significant(spread.middle)
    return (
        f"Over all cells and tensors the error is {ranged(spread)} times that of plain PyTorch"
        f" (median {middle}); it is larger in {larger}."
    )


def _lines(rows: pd.DataFrame, cell: Sequence[str], caption: str, note: str = "") -> Table:
    constant, lines = shared_axes(rows, cell)
    columns = [
        Column(name, axis_words(name), tuple(map(as_cell, rows[name])), role=AXIS) for name in lines
    ]
    errors = {TENSORS[name]: name for name in tensors(rows)}
    errors |= {"error of the worst tensor": "max_error", "its bound": "error_bound"}
    for header, name in errors.items():
        cells, second = number_cells(rows[name], error), ""
        if name in TENSORS and f"{name}_theirs" in rows:
            cells, second = beside(cells, rows[f"{name}_theirs"], error), "error of PyTorch"
        better = "" if name == "error_bound" else LOWER
        made = Column(name, header, tuple(cells), "", "error", better, second=second)
        columns.append(made)
    columns.append(Column("gate", "gate", tuple(map(as_cell, rows["gate"]))))
    shared = {name: as_cell(rows[name].iloc[0]).value for name in constant}
    caption += shared_words(rows, cell, constant)
    return Table(caption, tuple(columns), note, shared)


def check_tables(evidence: MachineEvidence) -> list[Table]:
    """The table of kernel tests: errors at odd lengths and widths, a line for each case."""
    frame = evidence.frame(kinds.CHECK)
    if frame is None:
        return []
    red = gates.red(frame)
    judged = frame["status"].isin(["ok", "failed_check"])
    gate = red.map(GATES).where(judged, status_words(frame))
    rows = kinds.with_mask(frame).assign(gate=gate, numerics=frame["dtype"].map(dtype_words))
    cell = [*kinds.CELL[:3], "layout", "batch", "heads", "numerics"]
    return [_lines(rows, cell, "Errors against float64 at odd lengths and widths")]
