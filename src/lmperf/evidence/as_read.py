"""Add to a row what follows from its columns, when evidence is read."""

from __future__ import annotations

from lmperf.evidence.consistent import Row, with_host_mark
from lmperf.gate import UNCHECKED


def as_read(row: Row) -> Row:
    """The row with its final status and marks; `with_host_mark` says when it gets the mark `host`.

    If a call fits into memory and its check does not, the worker writes the status `failed_check`
    and this reason. Nothing found the result wrong, so the status becomes `unchecked`.
    """
    if row.get("reason") == UNCHECKED:
        return {**row, "status": "unchecked", "reason": UNCHECKED.partition(": ")[2]}
    return with_host_mark(row)
