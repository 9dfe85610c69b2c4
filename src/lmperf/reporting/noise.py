"""Noise floors: how far apart the times of two processes of the same code are in 95 % of cells.

Each phase and numerics has its own, since float32 pairs tell nothing about bfloat16. With fewer
than ``LEAST_PAIRS`` of its own it uses those of all phases and numerics of the benchmark; if these
are fewer as well, the floor is at least ``UNKNOWN_FLOOR``. Pairs with a mark that says that a time
may not hold (`marks.doubtful`) are left out.
"""

from __future__ import annotations

import numpy as np
import pandas as pd

from lmperf.reporting import gates, marks
from lmperf.reporting.numbers import counted, percent
from lmperf.reporting.rounds import parse_rounds, same_width
from lmperf.statistics import LEAST_FLOOR, LEAST_PAIRS, UNKNOWN_FLOOR, noise_floor, paired


def noise_floors(frame: pd.DataFrame, unknown: float = UNKNOWN_FLOOR) -> pd.DataFrame:
    """Noise floors (how far apart processes of the same code are), by timed phase and dtype.

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
            **{"phase": timed["phase"].to_numpy(), "dtype": _numerics(timed).to_numpy()},
        }
    ).astype({"ratio": float})
    every, pairs = _apart(again), int(again["ratio"].notna().sum())
    common = every if pairs >= LEAST_PAIRS else np.fmax(every, unknown)
    parts = {
        place: (int(part["ratio"].notna().sum()), _apart(part))
        for place, part in again.groupby(["phase", "dtype"])
    }
    lines = [(n, apart, apart if n >= LEAST_PAIRS else common) for n, apart in parts.values()]
    sides = zip(*parts, strict=True) if parts else ([], [])
    places = pd.MultiIndex.from_arrays(list(sides), names=["phase", "dtype"])
    return pd.DataFrame(lines, places, columns=["pairs", "apart", "floor"])


def floor_words(floors: pd.DataFrame) -> str:
    """The largest noise floor, in words; empty if no pair of processes was timed.

    It may be an assumed one, ``UNKNOWN_FLOOR``, so it is not called a measured difference.

    floors: from ``noise_floors``.
    """
    if not floors["pairs"].sum():
        return ""
    largest = percent(max(floors["floor"].max(), LEAST_FLOOR))
    return (
        f"noise floor of up to {largest}, by phase and numerics, from"
        f" {counted(int(floors['pairs'].sum()), 'pair')} of processes of the same code; smaller"
        " differences are not called faster or slower"
    )


def floors_of(frame: pd.DataFrame, floors: pd.Series) -> np.ndarray:
    return floors.reindex(pd.MultiIndex.from_arrays([frame["phase"], _numerics(frame)])).to_numpy()


def _numerics(frame: pd.DataFrame) -> pd.Series:
    """The dtype of each row; empty text if the benchmark has no dtype axis."""
    return frame.get("dtype", pd.Series("", frame.index)).rename("dtype").fillna("")


def _apart(again: pd.DataFrame) -> float:
    return noise_floor(again["ratio"].to_numpy())
