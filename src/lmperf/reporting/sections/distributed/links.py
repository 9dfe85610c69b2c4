"""What is known of the links between ranks: rates of collectives, and fits of their times.

The rate of the link is the best rate of a copy between two ranks. Overhead and bus bandwidth of
each operation are fitted over the sizes of the messages; D7, D14 and D15 are predicted from them.
"""

from __future__ import annotations

from collections.abc import Mapping

import pandas as pd

from lmperf.distributed.cost import LEAST_SIZES, Line, bus_factor, fit, predicted_all_reduces
from lmperf.reporting import gates
from lmperf.reporting.evidence import MachineEvidence, groups, having
from lmperf.reporting.findings import sound

STEM = "collectives"
CELL = ["operation", "message_bytes", "dtype", "ranks"]
LIBRARY, COPY, ALL_REDUCE = "library", "copy", "all_reduce"
MS_PER_S = 1e3
Key = tuple[str, str, int]  # operation, dtype, ranks


def with_rates(frame: pd.DataFrame) -> pd.DataFrame:
    """The rows with ``algorithm_gbps`` and ``bus_gbps``, from their median times."""
    algorithm = frame["message_bytes"] / frame["median_ms"] / 1e6
    factors = [bus_factor(*pair) for pair in zip(frame["operation"], frame["ranks"], strict=True)]
    return frame.assign(algorithm_gbps=algorithm, bus_gbps=algorithm * factors)


def link_gbps(frame: pd.DataFrame) -> float | None:
    """The best rate of a copy between two ranks in GB/s; None if no copy was measured."""
    copies = having(frame[gates.shown(frame)], operation=COPY)
    rates = with_rates(copies)["bus_gbps"].dropna()
    return float(rates.max()) if len(rates) else None


def lines_of(evidence: MachineEvidence, trusted: bool) -> dict[Key, Line]:
    """(operation, dtype, ranks) -> fitted overhead and bus bandwidth of the library's operation.

    Of operations that were measured with enough sizes; empty without rows.

    trusted: whether only rows count on which a finding may rest; tables count all valid rows.
    """
    frame = evidence.frame(STEM)
    if frame is None:
        return {}
    rows = sound(evidence, STEM) if trusted else frame[gates.shown(frame)]
    return evidence.once(("collective lines", trusted), lambda: _lines(rows))


def _lines(rows: pd.DataFrame) -> dict[Key, Line]:
    rows = having(rows, implementation=LIBRARY)
    return {
        (operation, dtype, int(ranks)): fit(
            operation, ranks, part["message_bytes"], part["median_ms"] / MS_PER_S
        )
        for operation, dtype, ranks, part in groups(rows, "operation", "dtype", "ranks")
        if part["message_bytes"].nunique() >= LEAST_SIZES
    }


def predicted_ms(rows: pd.DataFrame, lines: Mapping[Key, Line]) -> pd.Series:
    """The predicted time of each row of D15 in ms; NaN without the fits of its parts."""
    found = [
        prediction_ms(row.implementation, row.dtype, int(row.ranks), row.message_bytes, lines)
        for row in rows.itertuples()
    ]
    return pd.Series(found, rows.index, dtype=float)


def prediction_ms(
    name: str, dtype: str, ranks: int, message: float, lines: Mapping[Key, Line]
) -> float:
    """The predicted ms of an all-reduce, `scatter_gather` or `pass_round`; NaN without fits."""
    known = {
        operation: lines.get((operation, dtype, 2 if operation == COPY else ranks))
        for operation in ("reduce_scatter", "all_gather", COPY)
    }
    if None in known.values():
        return float("nan")
    return MS_PER_S * predicted_all_reduces(ranks, known)[name](message)
