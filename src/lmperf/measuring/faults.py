"""Turns exceptions of a case into the status and reason of its row."""

from __future__ import annotations

import signal
import traceback
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from lmperf.benchmark import Case, Unsupported, WrongResult
from lmperf.errors import innermost
from lmperf.gate import UNCHECKED
from lmperf.measuring.printable import one_line


class Poisoned(Exception):
    """Raised for an error after which this process must not measure again, e.g. a CUDA error.

    Attributes:
        case, phase: the case and phase that failed; phase None: outside a phase.
        row: columns `status` and `reason` for the case.
    """

    def __init__(self, case: Case, phase: str | None, row: dict[str, Any]):
        super().__init__(case.name)
        self.case, self.phase, self.row = case, phase, row


class RankFailed(Exception):
    """Raised in a worker if a rank fails; its peers have been ended.

    Attributes:
        row: columns `status`, and `reason` or bytes, for the case that the ranks were running.
    """

    def __init__(self, row: dict[str, Any]):
        super().__init__(str(row))
        self.row = row


def failure_row(error: BaseException) -> dict[str, Any]:
    """Return the columns of a row that describe an exception: status, and reason or bytes.

    The status is `oom`, `unsupported`, `failed_check` or `crash`.
    """
    from lmperf.measuring.memory import out_of_memory

    if isinstance(error, RankFailed):
        return error.row
    memory = out_of_memory(error)
    if memory is not None:
        requested, free = memory.requested_bytes, memory.free_bytes
        return {"status": "oom", "requested_bytes": requested, "free_bytes": free}
    if isinstance(error, Unsupported):
        return {"status": "unsupported", "reason": _message(error)}
    if isinstance(error, WrongResult):
        return {"status": "failed_check", "reason": _message(error)}
    where = innermost(error) or traceback.extract_tb(error.__traceback__)[-1]
    place = f"{Path(where.filename).name}:{where.lineno}"
    return {"status": "crash", "reason": f"{type(error).__name__}: {_message(error)} ({place})"}


def _message(error: BaseException) -> str:
    try:
        return one_line(str(error))
    except Exception as fault:
        return f"its message cannot be read: str() raised {type(fault).__name__}"


def guarded(case: Case, phase: str | None, step: Callable[[], Any]) -> Any:
    """Run a step of a case and return its result.

    Raises:
        Unsupported, WrongResult: raised by the step.
        Poisoned: the step raised any other exception.
    """
    try:
        return step()
    except (Unsupported, WrongResult):
        raise
    except Exception as error:
        raise Poisoned(case, phase, failure_row(error)) from error


def guarded_check(case: Case, phase: str, step: Callable[[], Any]) -> Any:
    """Run a step of the correctness check as `guarded` does.

    The row of a check that runs out of memory has the status `failed_check` and says so: the calls
    before it fit into memory.
    """
    try:
        return guarded(case, phase, step)
    except Poisoned as fault:
        if fault.row["status"] == "oom":
            fault.row = {"status": "failed_check", "reason": UNCHECKED}
        raise


def lacks_memory(row: Mapping[str, Any]) -> bool:
    """Whether a case or its check ran out of memory."""
    return row["status"] == "oom" or row.get("reason") == UNCHECKED


def ending(exitcode: int | None) -> str:
    """Return how a process ended, in words; None: it still runs but has closed its connection."""
    if exitcode is None:
        return "the process closed its connection"
    if exitcode >= 0:
        return f"the process ended with exit code {exitcode}"
    known = {number.value: number.name for number in signal.Signals}
    return f"the process was ended by {known.get(-exitcode, f'signal {-exitcode}')}"
