"""What rows of evidence say: their final status, their name, and the kind of their fault."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path

from lmperf.benchmark import Benchmark, Timed
from lmperf.errors import shown
from lmperf.gate import FAILED, UNCHECKED
from lmperf.names import STATUSES

LOADED, OOM = "timed beside other load", "out of memory"
# Status of a row without a valid result -> the kind of its fault. A retry may change each of them,
# because its cause may be gone. A check may have failed because it needed too much memory, because
# the host was woken late, or because a few right results exceed its bound.
FAILURES = {
    **dict.fromkeys(FAILED, "failed check"),
    **dict.fromkeys(("crash", "timeout"), "failed"),
    **dict.fromkeys(("oom", "unchecked"), OOM),
}


def fault(benchmark: Benchmark, row: Mapping[str, object]) -> str:
    """Return why nothing can have measured a row that a worker sends; empty if something can.

    The code of a user's benchmark makes the values of its rows. Errors may be nan or infinite.
    """
    for column in benchmark.declared_columns:
        value = row.get(column.name)
        if column.kind not in (int, float) or value in ("", None):
            continue
        try:
            number = float(value)
        except (TypeError, ValueError):
            return f"{column.name} is {shown(value)}; it must be a number"
        is_error = "error" in column.name
        if not (is_error or math.isfinite(number)) or (number < 0 and not column.signed):
            return f"{column.name} is {number:g}"
    if row.get("status") not in STATUSES:
        return f"status is {shown(row.get('status'))}, which this version of lmperf does not know"
    error, bound = (row.get(name) for name in ("max_error", "error_bound"))
    is_gated = row["status"] == "ok" and bound not in ("", None)
    if is_gated and (error in ("", None) or not float(error) <= float(bound)):
        return f"status is ok, but max_error is {error}, and error_bound {bound}"
    must_be_timed = isinstance(benchmark, Timed) and row["status"] == "ok"
    has_time = float(row.get("median_ms") or 0) > 0
    return "" if has_time or not must_be_timed else "status is ok, but there is no median_ms"


def readable(
    benchmark: Benchmark, rows: Sequence[dict[str, str]], path: Path
) -> tuple[list[dict[str, str]], str]:
    """Return the rows of a file that this version can read, and a message for the others.

    Their digests are right: another version of lmperf may have written them.
    """
    wrong = {number: words for number, row in enumerate(rows) if (words := fault(benchmark, row))}
    if not wrong:
        return [*rows], ""
    first, words = next(iter(wrong.items()))
    number = "1 row is" if len(wrong) == 1 else f"{len(wrong)} rows are"
    name = row_name(benchmark, rows[first])
    why = f"{path}: {number} not used: {name}: {words}; measure again, or use the newer lmperf"
    return [row for number, row in enumerate(rows) if number not in wrong], why


def as_read(row: dict[str, str]) -> dict[str, str]:
    """Return a row with its final status.

    If a call fits into memory and its check does not, the worker writes the status `failed_check`
    and this reason. Nothing found the result wrong, so the status becomes `unchecked`.
    """
    if row.get("reason") != UNCHECKED:
        return row
    return {**row, "status": "unchecked", "reason": UNCHECKED.partition(": ")[2]}


def fault_kind(row: Mapping[str, str]) -> str:
    """Return the kind of a row's fault; empty if it has none."""
    return FAILURES.get(row["status"], LOADED if is_loaded(row) else "")


def is_loaded(row: Mapping[str, str]) -> bool:
    """Whether other processes took so much of the machine that a row's time may not hold.

    The worker that timed it has marked it.
    """
    return "loaded" in row.get("marks", "").split(";")


def row_name(benchmark: Benchmark, row: Mapping[str, object]) -> str:
    """Return the name of a row in messages: its axes that are not empty, implementation, phase."""
    values = {axis.name: row.get(axis.name) for axis in benchmark.axes}
    axes = ", ".join(f"{name}={value}" for name, value in values.items() if value not in ("", None))
    return f"{axes}: {row['implementation']}, {row['phase']}"
