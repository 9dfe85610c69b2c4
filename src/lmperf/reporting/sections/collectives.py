"""Collectives between ranks: bus bandwidth, its share of a copy, and what a call costs (D1)."""

from __future__ import annotations

from functools import cached_property

import numpy as np
import pandas as pd

from lmperf.names import in_order
from lmperf.reporting.evidence import having, some
from lmperf.reporting.rows import Rows
from lmperf.reporting.sections import Section

STEM = "collectives"


class Collectives(Section):
    """The library's collectives; sentences are on all-reduces over most ranks in one dtype."""

    @cached_property
    def every(self) -> Rows:
        """The rows with `bus` in GB/s and `of_copy`, its share of the best copy between ranks."""
        rows = having(self.evidence.rows(STEM), implementation="library")
        bus = rows["message_bytes"] * bus_factors(rows) / rows["ms"] / 1e6
        copies = bus[rows["state"].isna() & (rows["operation"] == "copy")]
        return self.rows(STEM, rows.assign(bus=bus, of_copy=bus / copies.max()))

    @cached_property
    def _all_reduces(self) -> pd.DataFrame:
        rows = some(having(self.every.sound, operation="all_reduce"), "no all-reduce")
        rows = having(rows, ranks=rows["ranks"].max())
        rows = having(rows, dtype=in_order("dtype", rows["dtype"])[0])
        return rows.sort_values("message_bytes")

    @property
    def longest(self) -> pd.Series:
        """The all-reduce of the longest message."""
        return self._all_reduces.iloc[-1]

    @property
    def start_us(self) -> float:
        """Microseconds to start a call: what a small message takes beyond its transfer, at least.

        Small: its transfer, at the rate of the longest message, takes at most half of its time.
        """
        rows, longest = self._all_reduces, self.longest
        transfer = rows["message_bytes"] * longest["ms"] / longest["message_bytes"]
        beyond = (rows["ms"] - transfer)[transfer <= rows["ms"] / 2]
        return 1e3 * float(some(beyond, "no message is small enough").min())

    @property
    def small_bytes(self) -> float:
        """The message whose transfer, at the rate of the longest, takes as long as the start.

        In two digits: a rate is lower for small messages.
        """
        found = self.start_us * self.longest["message_bytes"] / (1e3 * self.longest["ms"])
        return float(f"{found:.1e}")


def bus_factors(rows: pd.DataFrame) -> pd.Series:
    """Bytes that a rank sends in a ring, per byte of the message, as nccl-tests count them."""
    part = (rows["ranks"] - 1) / rows["ranks"]
    factors = {"copy": 1.0, "all_reduce": 2 * part, "all_gather": part, "reduce_scatter": part}
    found = pd.Series(np.nan, rows.index)
    for operation, factor in factors.items():
        found = found.mask(rows["operation"] == operation, factor)
    return found
