"""Add to a row what follows from its columns, when evidence is read."""

from __future__ import annotations

from lmperf.evidence.consistent import Row, with_host_mark
from lmperf.gate import UNCHECKED


def as_read(row: Row) -> Row:
    """The row, with the mark `host` (`with_host_mark`) or the status `unchecked` if it is due.

    A row is `unchecked` if its call fits into memory and its check does not: a worker writes
    `failed_check` and the reason, but nothing found the result wrong.
    """
    if row.get("reason") == UNCHECKED:
        return {**row, "status": "unchecked", "reason": UNCHECKED.partition(": ")[2]}
    return with_host_mark(row)
