"""Turns an exception of a case into the status and reason of its row."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from lmperf.benchmark import Unsupported, WrongResult
from lmperf.errors import described, message_of, one_line
from lmperf.gate import UNCHECKED
from lmperf.measuring.interpreter import NEEDS_GPU, NO_DRIVER
from lmperf.measuring.out_of_memory import out_of_memory

Row = dict[str, Any]


class Failed(Exception):
    """Raised when a step of a case failed; `row` has its `status` and `reason`."""

    def __init__(self, row: Row):
        super().__init__(str(row))
        self.row = row


class Harmful(WrongResult):
    """Raised for a result after which the process must not measure other cases."""


def failure_row(error: BaseException) -> Row:
    """Return the columns of a row for an exception: unsupported, failed_check, oom or crash."""
    if (memory := out_of_memory(error)) is not None:
        sizes = {"requested_bytes": memory.requested_bytes, "free_bytes": memory.free_bytes}
        return {"status": "oom", "reason": "out of memory", **sizes}
    if isinstance(error, Unsupported | WrongResult):
        status = "unsupported" if isinstance(error, Unsupported) else "failed_check"
        return {"status": status, "reason": one_line(str(error))}
    if isinstance(error, RuntimeError) and message_of(error).startswith(NO_DRIVER):
        return {"status": "unsupported", "reason": NEEDS_GPU}
    return {"status": "crash", "reason": described(error)}


def lacks_memory(row: Mapping[str, Any]) -> bool:
    """Whether a case or its check ran out of memory."""
    return row["status"] == "oom" or row.get("reason") == UNCHECKED
