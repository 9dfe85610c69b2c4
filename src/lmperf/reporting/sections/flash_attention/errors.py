"""F4: errors against float64 by tensor, beside those of PyTorch in the same dtype."""

from __future__ import annotations

import pandas as pd

from lmperf.names import axis_words, dtype_words, implementation_words
from lmperf.reporting import gates
from lmperf.reporting.evidence import MachineEvidence, having
from lmperf.reporting.numbers import error
from lmperf.reporting.sections.flash_attention import kinds
from lmperf.reporting.tables import Lines, shared_axes, status_words

TENSORS = {
    "error_out": "output",
    "error_lse": "logsumexp",
    "error_dq": "dQ",
    "error_dk": "dK",
    "error_dv": "dV",
}
CELL = ["seq_len", "d_head", "mask", "batch", "heads", "cuda_graph"]
# Where plain attention has no row, the backend that takes every dtype.
REFERENCES = {kinds.PLAIN: "plain PyTorch", kinds.GENERAL: implementation_words(kinds.GENERAL)}


def tensors(frame: pd.DataFrame) -> list[str]:
    """The columns of the errors that were measured."""
    return [name for name in TENSORS if name in frame and frame[name].notna().any()]


def worst_errors(frame: pd.DataFrame, implementation: str) -> pd.DataFrame:
    """The largest error of each tensor over the phases of a cell (index: dtype and CELL)."""
    rows = having(kinds.with_mask(frame), implementation=implementation)
    rows = rows[gates.gated(rows)].assign(red=gates.red(rows))
    columns = [*tensors(frame), "max_error", "error_bound", "red"]
    return rows.groupby(["dtype", *CELL], sort=False)[columns].max()


def error_tables(evidence: MachineEvidence, frame: pd.DataFrame) -> list[Lines]:
    """F4, a table a dtype: ours / PyTorch by tensor, the bound of the worst, the gate."""
    kernel = kinds.kernel_of(frame)
    theirs = pd.concat(worst_errors(frame, n).assign(reference=n) for n in REFERENCES)
    theirs = theirs[~theirs.index.duplicated()]
    ours, key = worst_errors(frame, kernel).reset_index(), ["dtype", *CELL]
    both = ours.merge(theirs.reset_index(), how="left", on=key, suffixes=("", "_theirs"))
    both = both.assign(grid=both["heads"] > 1)
    both = both.sort_values(["grid", "cuda_graph", *CELL[:3]], kind="stable")
    return [_table(part, kernel) for part in kinds.parts(both, "dtype")]


def _table(both: pd.DataFrame, kernel: str) -> Lines:
    constant, lines = shared_axes(both, CELL if both["cuda_graph"].any() else CELL[:-1])
    beside = both["reference"].notna().any()
    table = both[lines].copy()
    for name in tensors(both):
        pairs = zip(both[name], both[f"{name}_theirs"], strict=True)
        table[TENSORS[name]] = [
            f"{error(a)} / {error(b)}" if beside else error(a) for a, b in pairs
        ]
    if beside:
        table["compared with"] = both["reference"].map(REFERENCES)
    words = implementation_words(kernel) + (" / PyTorch" if beside else "")
    caption = f"{words}, {kinds.numerics_words(both['dtype'].iloc[0], kernel)}{constant}"
    return Lines(kinds.sentence_case(caption), _with_gate(table, both).rename(columns=axis_words))


def _with_gate(table: pd.DataFrame, errors: pd.DataFrame) -> pd.DataFrame:
    return table.assign(
        **{
            "error of the worst tensor": errors["max_error"].map(error),
            "its bound": errors["error_bound"].map(error),
            "gate": errors["red"].map({True: "failed", False: "passed"}),
        }
    )


def check_tables(evidence: MachineEvidence) -> list[Lines]:
    """The kernel tests, one line a case."""
    frame = evidence.frame(kinds.CHECK)
    if frame is None:
        return []
    frame = kinds.with_mask(frame).assign(red=gates.red(frame))
    constant, lines = shared_axes(frame, [*CELL[:2], "mask", "layout", "batch", "heads"])
    table = frame[lines].assign(numerics=frame["dtype"].map(dtype_words))
    table = table.assign(**{TENSORS[name]: frame[name].map(error) for name in tensors(frame)})
    table = _with_gate(table, frame)
    table["gate"] = table["gate"].where(frame["status"] == "ok", status_words(frame))
    caption = f"Errors against float64 at odd lengths and widths{constant}"
    return [Lines(caption, table.rename(columns=axis_words))]
