"""The self-test of a machine as its page reads it: `selftest.csv`, planted faults and outcomes."""

from __future__ import annotations

from pathlib import Path

import pandas as pd

from lmperf.errors import UserError
from lmperf.reporting.files import SELFTEST

# Values of the column `held`.
HELD, NOT_HELD, NOT_RUN = "yes", "no", "not run"


def read_selftest(directory: Path) -> pd.DataFrame | None:
    """The rows of a machine's self-test, one for each case; None if it was not run.

    Raises:
        UserError: the file is no CSV, or not that of a self-test.
    """
    path = directory / SELFTEST
    if not path.exists():
        return None
    try:
        rows = pd.read_csv(path, dtype=str, keep_default_na=False)
    except ValueError:
        rows = pd.DataFrame()
    if rows.empty or not {"case", "held", "device"} <= {*rows}:
        raise UserError(f"{path}: is no record of a self-test; move it, then run make selftest")
    return rows
