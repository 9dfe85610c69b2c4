"""Noise floors: how far apart the times of two processes of the same code are in 95 % of cells.

Each phase and numerics has its own, since float32 pairs tell nothing about bfloat16. So do calls
that vary more (``varies``): those below ``SHORT_MS``, and host-bound steps. With fewer than
``LEAST_PAIRS`` of its own a floor uses those of all phases and numerics, and if these are fewer as
well, all pairs of the benchmark; it is no lower than how far its own pairs are apart. If the whole
benchmark has fewer, the floor is at least ``UNKNOWN_FLOOR``. Pairs with a mark that says that a
time may not hold (`marks.doubtful`) are left out.
"""

from __future__ import annotations

import numpy as np
import pandas as pd

from lmperf.reporting import gates, marks
from lmperf.reporting.host_bound import host_bound
from lmperf.reporting.numbers import counted, percent
from lmperf.reporting.rounds import parse_rounds, same_width
from lmperf.statistics import LEAST_FLOOR, LEAST_PAIRS, UNKNOWN_FLOOR, noise_floor, paired

# On an H200, two processes of the same kernel were apart by up to 6.3 % in 95 % of 125 cells with
# calls below 0.1 ms, 3.5 % of 29 below 0.3 ms, and 0.7 % of 206 with longer calls.
SHORT_MS = 0.3
KIND = ["phase", "dtype", "varies"]


def noise_floors(frame: pd.DataFrame, unknown: float = UNKNOWN_FLOOR) -> pd.DataFrame:
    """Noise floors (how far apart processes of the same code are), by kind of call.

    The kind is a timed phase, a dtype, and whether the call ``varies``.

    unknown: the least floor if the whole benchmark has fewer than LEAST_PAIRS pairs.

    Returns:
        A data frame with these columns:

        - pairs: number of pairs of processes; pairs that are ``marks.doubtful`` do not count
        - apart: FLOOR_QUANTILE quantile of how far the ratios of the pairs are from 1, as a
          fraction; NaN without pairs
        - floor: the noise floor, as a fraction
    """
    timed = frame[gates.shown(frame) & frame["rounds_ms"].notna()]
    sides = same_width(*(parse_rounds(timed[f"{name}_ms"]) for name in ("rounds", "again")))
    again = pd.DataFrame(
        {
            "ratio": np.where(marks.doubtful(timed), np.nan, paired(*sides).ratio),
            **{name: of.to_numpy() for name, of in _kinds(timed).items()},
        }
    ).astype({"ratio": float})
    pairs, every = _apart(again)
    common = every if pairs >= LEAST_PAIRS else np.fmax(every, unknown)
    alike = {varying: _apart(part) for varying, part in again.groupby("varies")}
    lines, places = [], []
    for place, part in again.groupby(KIND):
        pairs, apart = _apart(part)
        known = [(pairs, apart), alike[place[-1]]]
        enough = [floor for number, floor in known if number >= LEAST_PAIRS]
        lines.append((pairs, apart, np.fmax(enough[0] if enough else common, apart)))
        places.append(place)
    index = pd.MultiIndex.from_arrays([*zip(*places, strict=True)] or [[]] * 3, names=KIND)
    return pd.DataFrame(lines, index, columns=["pairs", "apart", "floor"])


def varies(frame: pd.DataFrame) -> pd.Series:
    """Whether each call is shorter than SHORT_MS or a host-bound step.

    On an H200 two processes of the same step were apart by at most 5 % in 49 cells that were not
    host-bound, and by up to 28 % in the others. A kernel is known by ``eager_ms``: its time is the
    device's, whatever the host needs.
    """
    known = frame.reindex(columns=["median_ms", "host_ms", "eager_ms"]).astype(float)
    return (known["median_ms"] < SHORT_MS) | host_bound(known.where(known["eager_ms"].isna()))


def floor_words(floors: pd.DataFrame) -> str:
    """The largest noise floor, in words; empty if no pair of processes was timed.

    It may be an assumed one, ``UNKNOWN_FLOOR``, so it is not called a measured difference.

    floors: from ``noise_floors``.
    """
    if not floors["pairs"].sum():
        return ""
    largest = percent(max(floors["floor"].max(), LEAST_FLOOR))
    return (
        f"noise floor of up to {largest}, by phase, numerics and kind of the calls, from"
        f" {counted(int(floors['pairs'].sum()), 'pair')} of processes of the same code; smaller"
        " differences are not called faster or slower"
    )


def floors_of(frame: pd.DataFrame, floors: pd.Series) -> np.ndarray:
    """The floor of each row; NaN if its kind has none.

    floors: the column ``floor`` of ``noise_floors``.
    """
    return floors.reindex(pd.MultiIndex.from_arrays([*_kinds(frame).values()])).to_numpy(float)


def _kinds(frame: pd.DataFrame) -> dict[str, pd.Series]:
    """The columns of ``KIND``; the dtype is an empty text if the benchmark has no dtype axis."""
    dtype = frame.get("dtype", pd.Series("", frame.index)).fillna("")
    return dict(zip(KIND, (frame["phase"], dtype, varies(frame)), strict=True))


def _apart(again: pd.DataFrame) -> tuple[int, float]:
    """The number of pairs, and how far they are apart; NaN without pairs."""
    return int(again["ratio"].notna().sum()), noise_floor(again["ratio"].to_numpy())
