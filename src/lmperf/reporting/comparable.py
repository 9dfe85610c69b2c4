"""Which timed rows may be compared: rows timed in turn, or steps back to back on one device.

Sustained times are compared only if one device gave both (`reporting.jobs` knows the GPUs): at the
power limit two GPUs of one kind reach different clocks.
"""

from __future__ import annotations

import numpy as np
import pandas as pd

from lmperf.reporting.evidence import MachineEvidence
from lmperf.reporting.jobs import devices_of_rows
from lmperf.reporting.machine import newest
from lmperf.reporting.rounds import parse_rounds
from lmperf.statistics import medians

# The phase whose sustained times are compared; kernels are compared by single calls.
STEP = "train_step"


def devices(evidence: MachineEvidence, stem: str) -> pd.Series:
    """What identifies the device that measured each row: see ``devices_of_rows``.

    Rows of an unknown GPU belong together if they were timed in turn. All rows of a machine without
    a GPU were measured on the same device.
    """
    return evidence.once(("devices", stem), lambda: _devices(evidence, stem))


def _devices(evidence: MachineEvidence, stem: str) -> pd.Series:
    frame = evidence.frame(stem)
    if newest(evidence).get("kind") != "cuda":
        return pd.Series("", frame.index)
    found = devices_of_rows(evidence, frame, stem)
    return found.fillna(frame["together"]) if "together" in frame else found


def sustains(rows: pd.DataFrame) -> pd.Series:
    """Whether each row is a train step with a sustained time."""
    if "sustained_rounds_ms" not in rows:
        return pd.Series(False, rows.index)
    return (rows["phase"] == STEP) & rows["sustained_rounds_ms"].notna()


def on_other_devices(ours: pd.DataFrame, theirs: pd.DataFrame) -> np.ndarray:
    """Whether the rows of each pair may be from different devices; not if timed in turn.

    ours, theirs: frames with columns ``device`` (from ``devices``) and ``together``.
    """
    known = ours["device"].notna().to_numpy()
    same = known & (ours["device"].to_numpy() == theirs["device"].to_numpy())
    return ~(same | (ours["together"].to_numpy() == theirs["together"].to_numpy()))


def both_lasting(ours: pd.DataFrame, theirs: pd.DataFrame) -> np.ndarray:
    """Whether both rows of each pair have a sustained time, in one environment and on one device.

    Two GPUs of one kind reach different clocks at the power limit. Two H200s with the same code
    were up to 4 % apart, which is more than a noise floor.
    """
    both = sustains(ours).to_numpy() & sustains(theirs).to_numpy()
    same = ours["environment"].to_numpy() == theirs["environment"].to_numpy()
    return both & same & ~on_other_devices(ours, theirs)


def both_in_turn(ours: pd.DataFrame, theirs: pd.DataFrame) -> np.ndarray:
    """Whether the rows of each pair were timed in turn, for the same number of rounds."""
    counts = ours["count"].to_numpy()
    alike = (counts == theirs["count"].to_numpy()) & (counts > 0)
    return alike & (ours["together"].to_numpy() == theirs["together"].to_numpy())


def both_host_bound_apart(ours: pd.DataFrame, theirs: pd.DataFrame) -> np.ndarray:
    """Whether both rows of each pair are host-bound, and the times to compare not taken in turn.

    Sustained times never are: each stretch of steps lasts for seconds, in which the host drifts.
    """
    apart = ours["together"].to_numpy() != theirs["together"].to_numpy()
    apart |= both_lasting(ours, theirs)
    return apart & ours["host_bound"].to_numpy() & theirs["host_bound"].to_numpy()


def compared_apart(*sides: pd.DataFrame) -> list[pd.DataFrame]:
    """Matching rows of two runs with the rounds to compare, which are not timed in turn.

    Two train steps with sustained times are compared by these. ``rounds_ms``, ``rounds_mhz`` and
    ``clock_mhz`` are replaced accordingly; ``median_ms`` is the median of these rounds, so that the
    ratio of two rows is that of their ``median_ms``.

    sides: two frames with the same index.
    """
    lasting = sides[0]["phase"] == STEP
    for rows in sides:
        lasting &= rows["sustained_rounds_ms"].notna()
    return [
        rows.assign(
            rounds_ms=(rounds := rows["rounds_ms"].where(~lasting, rows["sustained_rounds_ms"])),
            rounds_mhz=rows["rounds_mhz"].mask(lasting),
            clock_mhz=rows["clock_mhz"].where(~lasting, rows["sustained_mhz"]),
            median_ms=medians(parse_rounds(rounds)),
        )
        for rows in sides
    ]
