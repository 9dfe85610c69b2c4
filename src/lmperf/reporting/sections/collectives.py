"""Collectives between ranks: bus bandwidth, its share of a copy, and what a call costs (D1)."""

from __future__ import annotations

from functools import cached_property

import pandas as pd

from lmperf.names import OPERATIONS
from lmperf.reporting.frames import FIRST, LAST, at, having, required
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
        rows = required(having(self.every.sound, operation="all_reduce"), "no all-reduce")
        return at(rows, ranks=LAST, dtype=FIRST).sort_values("message_bytes")

    @property
    def longest(self) -> pd.Series:
        """The all-reduce of the longest message."""
        return self._all_reduces.iloc[-1]

    @property
    def shorter(self) -> Rows:
        """The all-reduces of the next two shorter messages, the longer one first."""
        rows = self._all_reduces.iloc[-3:-1].iloc[::-1]
        return self.every.kept(required(rows, "no shorter message"))

    @property
    def shortest(self) -> pd.Series:
        """The all-reduce of the shortest message."""
        return self._all_reduces.iloc[0]

    @property
    def of_shards(self) -> Rows:
        """The collectives of sharded strategies, on messages as long as the longest all-reduce."""
        same = self.longest[["message_bytes", "ranks", "dtype"]]
        rows = self.every.where(operation=["all_gather", "reduce_scatter"], **same).sound
        return self.every.kept(rows.assign(called=rows["operation"].map(OPERATIONS)))

    @property
    def small(self) -> pd.Series:
        """The longest message up to which all take at most twice as long as the shortest one, if it
        is neither the shortest nor the longest."""
        rows = self._all_reduces
        steady = (rows["ms"] <= 2 * rows["ms"].iloc[0]).cummin()
        return required(rows[steady & ~steady.all()][1:], "none lies between").iloc[-1]


def bus_factors(rows: pd.DataFrame) -> pd.Series:
    """Bytes that a rank sends in a ring, per byte of the message, as nccl-tests count them."""
    passes = {"copy": 1, "all_reduce": 2, "all_gather": 1, "reduce_scatter": 1}
    part = ((rows["ranks"] - 1) / rows["ranks"]).mask(rows["operation"] == "copy", 1.0)
    return rows["operation"].map(passes).astype(float) * part
