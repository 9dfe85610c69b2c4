"""Tables of device time beside host time: which of the two a user of a kernel waits for.

A row of a kernel on a GPU has ``median_ms``, its time on the device; ``host_ms``, the host's time
to queue the call on an idle device; and ``eager_ms``, the time per call in a loop. Rows of other
machines and older rows have ``median_ms`` alone; they are left out.
"""

from __future__ import annotations

from collections.abc import Sequence

import pandas as pd

from lmperf.measuring.clock_settings import HOST_CALLS, LOOP_CALLS
from lmperf.names import implementation_words, in_order, phase_words
from lmperf.reporting import gates
from lmperf.reporting.evidence import having
from lmperf.reporting.marks import with_marks
from lmperf.reporting.side_by_side import each, side_by_side, time
from lmperf.reporting.tables import medians, value_cells
from lmperf.results import Table

TITLE = "Device, host and loop"
NOTE = (
    "Device: median time on the device, caches overwritten before each call. Host: time from the"
    f" call to its return on an idle device, median of {HOST_CALLS} calls. Loop: time per call of"
    f" up to {LOOP_CALLS} calls back to back on the same inputs. Where the host takes longer than"
    " the device, a loop of calls waits for the host; the device time does not include that. A"
    " finding says so only where it also holds for the host at its best: its time divided by its"
    " slow-down (`host_reference` in the evidence)."
)
TIMES = {"host": "host_ms", "loop": "eager_ms"}


def known(frame: pd.DataFrame) -> pd.DataFrame:
    """The rows with a valid timing (``gates.shown``) and a measured host time."""
    return frame[gates.shown(frame) & frame["host_ms"].notna()]


def tables(frame: pd.DataFrame | None, what: str, cell: Sequence[str]) -> list[Table]:
    """A table for each phase: device, host and loop time of each implementation.

    Args:
        frame: rows of the benchmark; None, or rows without a host time, give no tables.
        what: the beginning of the captions.
        cell: the axes of a line.
    """
    if frame is None or known(frame).empty:
        return []
    parts = (having(frame, phase=phase) for phase in in_order("phase", frame["phase"]))
    return each(*(_table(part, what, cell) for part in parts))


def _table(frame: pd.DataFrame, what: str, cell: Sequence[str]) -> Table | None:
    measured, phase = set(known(frame)["implementation"]), frame["phase"].iloc[0]
    columns = []
    for name in in_order("implementation", measured):
        rows, words = having(frame, implementation=name), implementation_words(name)
        columns.append(time(f"{words}, device", medians(rows), f"{phase}.{name}.device"))
        for kind, column in TIMES.items():
            cells = with_marks(value_cells(rows, rows[column]), rows)
            columns.append(time(f"{words}, {kind}", cells, f"{phase}.{name}.{kind}"))
    rows = having(frame, implementation=list(measured))
    return side_by_side(f"{what}, {phase_words(phase)}", rows, [*cell, "dtype"], columns, NOTE)


def launch_is_longer(rows: pd.DataFrame) -> pd.Series:
    """Whether each call takes longer to launch than to run, also with the host at its best speed.

    ``host_reference`` is how many times slower than its best the host was. A row without it has
    False here and in ``launch_is_shorter``, as has a row whose verdict depends on the host's speed.
    """
    return rows["median_ms"] < _least_and_most(rows).min(axis=1, skipna=False)


def launch_is_shorter(rows: pd.DataFrame) -> pd.Series:
    """Whether each call takes no longer to launch than to run, at either speed of the host."""
    return rows["median_ms"] >= _least_and_most(rows).max(axis=1, skipna=False)


def _least_and_most(rows: pd.DataFrame) -> pd.DataFrame:
    """The host time of each row at the host's best speed, and as measured."""
    slower = rows.get("host_reference", pd.Series(float("nan"), rows.index))
    return pd.DataFrame({"best": rows["host_ms"] / slower, "measured": rows["host_ms"]})


def longer_launch_until(rows: pd.DataFrame, axis: str) -> int | None:
    """The axis value up to which every call takes longer to launch than to run; None if none."""
    longer = launch_is_longer(rows).groupby(rows[axis]).all()
    until = longer.index[longer.cummin()]
    return int(until.max()) if len(until) else None
