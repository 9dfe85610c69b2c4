"""The self-test of a machine as its page reads it: `selftest.csv`, planted faults and outcomes."""

from __future__ import annotations

from pathlib import Path

import pandas as pd

from lmperf.errors import UserError
from lmperf.reporting.foreign import taken_frame

SELFTEST = "selftest.csv"
# Values of the column `held`.
HELD, NOT_HELD, NOT_RUN = "yes", "no", "not run"
COLUMNS = (
    *("case", "does", "expected", "outcome", "why", "held"),
    *("device", "torch", "commit", "measured_at"),
)


def read_selftest(directory: Path) -> pd.DataFrame | None:
    """The rows of a machine's self-test, one for each case; None if it was not run.

    Raises:
        UserError: the file cannot be read or is incomplete.
    """
    path = directory / SELFTEST
    if not path.exists():
        return None
    try:
        rows = pd.read_csv(path, dtype=str, keep_default_na=False)
    except (ValueError, OSError):
        raise UserError(f"{path}: cannot be read; run make selftest to write it again") from None
    lacking = [name for name in COLUMNS if name not in rows]
    if lacking or rows.empty:
        what = f"lacks {', '.join(lacking)}" if lacking else "has no row"
        raise UserError(f"{path}: {what}; run make selftest to write it again")
    return taken_frame(rows)
