"""The gates: errors against float64 and of the properties, and those of the kernel's own tests."""

from __future__ import annotations

import pandas as pd

from lmperf.reporting import gates
from lmperf.reporting.evidence import MachineEvidence, in_order
from lmperf.reporting.numbers import dtype_words, error, implementation_words, percent
from lmperf.reporting.tables import markdown

CHECKED = {
    "out": "output",
    "dx": "dX",
    "angle": "angle",
    "norm": "length kept",
    "inverse": "backward inverts",
    "difference": "difference alone",
}


def check_table(evidence: MachineEvidence) -> str:
    """The kernel's own tests; empty without evidence."""
    frame = evidence.frame("lrpe_check")
    if frame is None:
        return ""
    return gate_table(frame, "Table L1, kernel tests: the largest errors over all cases")


def gate_table(frame: pd.DataFrame, caption: str) -> str:
    """One line per implementation and dtype: the largest error of each kind, and how many passed.

    The share is the largest of an error in its own row's bound.
    """
    frame = frame[gates.gated(frame)]
    lines = [
        _line(rows, name, dtype)
        for name in in_order("implementation", frame["implementation"])
        for dtype in in_order("dtype", frame["dtype"])
        if len(rows := frame[(frame["implementation"] == name) & (frame["dtype"] == dtype)])
    ]
    if not lines:
        return ""
    return markdown(pd.DataFrame(lines), caption, left=["numerics"])


def _line(frame: pd.DataFrame, name: str, dtype: str) -> dict[str, object]:
    share = (frame["max_error"] / frame["error_bound"]).max()
    return {
        "implementation": implementation_words(name),
        "numerics": dtype_words(dtype),
        **{label: error(frame[f"error_{key}"].max()) for key, label in CHECKED.items()},
        "largest share of its bound": percent(share),
        "rows": len(frame),
        "failed": int(gates.red(frame).sum()),
    }
