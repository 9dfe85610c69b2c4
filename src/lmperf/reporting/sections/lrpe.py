"""md_lrpe_cosine: rows and calculations of its page and of its part of the first page."""

from __future__ import annotations

import math
from functools import cached_property

import numpy as np
import pandas as pd

from lmperf.names import in_order, value_words
from lmperf.reporting.calculations.bounds import LAUNCH_BOUND
from lmperf.reporting.columns import Quantity, number, over, time
from lmperf.reporting.frames import (
    FIRST,
    LAST,
    at,
    having,
    matching,
    parts,
    required,
    sorted_for_reading,
)
from lmperf.reporting.judging import WITHHELD
from lmperf.reporting.rows import Rows
from lmperf.reporting.sections import Section
from lmperf.reporting.words import Count, NotMeasured, Range, listed, percent, range_, ratio

STEM, CHECK = "lrpe", "lrpe_check"
COPY, KERNEL, CACHED = "copy", "triton", "triton_cached"
# The lead, which is compared with the others, is the first custom implementation or, without one,
# of these that has a result.
LEADS = (KERNEL, "compiled", "eager")
ORDER = (KERNEL, CACHED, "eager", "compiled")  # of the columns
PHASES = ("forward", "backward")
# What copies of one size share; their bytes differ by the extra tokens only.
ONE_SIZE = ["positions", "batch", "heads", "d_head", "dtype", "phase", "environment", "gpus"]
LARGE = 0.25  # shapes of fewer positions, as a part of the most, may be launch-bound
VARIES = 0.20  # what differs by less is not said
BOUND_BY_BYTES = 0.5  # below this share of a copy's speed, bytes do not bind
ERRORS = [f"error_{name}" for name in ("out", "dx", "angle", "norm", "inverse", "difference")]


class Lrpe(Section):
    """The lead implementation beside a copy of the same bytes and beside the others."""

    kernel, cached = KERNEL, CACHED

    @cached_property
    def every(self) -> Rows:
        """All rows with further columns.

        axes, positions (without extra tokens), large; gbps: rate of the bytes that must be moved;
        copy_gbps: of the fastest copy of as many positions, since PyTorch's compiler makes slow
        copies, too; copy_percent: percent of it; closed_mib: predicted peak.
        """
        rows = self.evidence.rows(STEM)
        lengths = rows["shape"].str.split("x")
        positions = lengths.map(lambda each: math.prod(map(int, each))).astype(float)
        forward = rows["phase"] == "forward"
        rows = rows.assign(
            axes=lengths.map(len),
            positions=positions,
            large=positions >= LARGE * positions.max(),
            gbps=rows["bytes"] / rows["ms"] / 1e6,
            closed_mib=rows["predicted_forward_mib"].where(forward, rows["predicted_backward_mib"]),
        )
        copies = having(rows, implementation=COPY, holds=True)
        fastest = matching(rows, copies.sort_values("gbps", ascending=False), ONE_SIZE)["gbps"]
        share = 100 * rows["gbps"] / fastest
        return self.rows(STEM, rows.assign(copy_gbps=fastest, copy_percent=share))

    @cached_property
    def leads(self) -> list[str]:
        """The lead, then those that it is compared with."""
        there = self.every.valid.frame["implementation"].values
        names = (*self.evidence.subjects(STEM), *LEADS)
        return required(
            [name for name in names if name in there], "md_lrpe_cosine was not measured"
        )

    @property
    def lead(self) -> str:
        return self.leads[0]

    @property
    def is_own(self) -> bool:
        """Whether the lead is a custom implementation."""
        return self.lead not in LEADS

    @property
    def order(self) -> list[str]:
        """The implementations of the columns."""
        return [*self.evidence.subjects(STEM), *ORDER]

    @property
    def peer(self) -> str:
        """The next implementation; of a custom one the first that is none."""
        others = [name for name in self.leads[1:] if name in LEADS]
        return required(others, "there is no second implementation")[0]

    @cached_property
    def dtype(self) -> str:
        """The dtype that sentences are about: the last one in reading order.

        Of those in which a custom implementation has a result, if it is about one.
        """
        rows = required(self.every.frame, "md_lrpe_cosine was not measured")
        rows = having(self.every.valid.frame, implementation=self.lead) if self.is_own else rows
        return in_order("dtype", rows["dtype"])[-1]

    @cached_property
    def shown(self) -> Rows:
        """The rows in this dtype."""
        return self.every.where(dtype=self.dtype)

    @cached_property
    def large(self) -> Rows:
        return self.shown.where(large=True)

    @cached_property
    def largest(self) -> Rows:
        """The rows of the first page: most positions, then fewest axes and extra tokens."""
        rows = at(self.shown.frame, positions=LAST, axes=FIRST, extra_tokens=FIRST)
        return self.shown.kept(rows)

    def of_copy(self, rows: Rows, name: str) -> Range:
        """The speed of an implementation relative to a copy in some rows."""
        return rows.where(implementation=name).range("copy_percent / 100")

    @cached_property
    def share(self) -> Range:
        """The speed of the lead relative to a copy in the rows of the first page."""
        return self.of_copy(self.largest, self.lead)

    @property
    def percent_of_copy(self) -> str:
        """That share in whole percent, as `83` or `83 to 85`."""
        return range_([100 * self.share.low, 100 * self.share.high], "whole")

    @property
    def over_peer(self) -> list[tuple[str, int | None, str]]:
        """(phase, extra tokens or None, speed-ups of the lead) over the next implementation.

        NotMeasured if some of the large rows that hold are not known well.
        """
        over = self.large.where(implementation=self.lead).over(self.peer)
        if len(over.rows) < over.timed["holds"].sum():
            raise NotMeasured("not all speed-ups are known")
        return [
            (phase, tokens or None, range_(part.range, "ratio"))
            for phase, of_phase in over
            for tokens, part in of_phase.by("extra_tokens")
        ]

    @property
    def compiled_is_compute_bound(self) -> bool:
        """Whether arithmetic limits the compiled forward: it is far from the speed of a copy."""
        forward = self.largest.where(phase="forward")
        return self.of_copy(forward, "compiled").high < BOUND_BY_BYTES

    @cached_property
    def launch_bound(self) -> list[tuple[str, int]]:
        """Phase and the positions up to which each launch of the lead takes longer than the run."""
        rows = self.shown.where(implementation=self.lead)
        until = [(phase, part.until(LAUNCH_BOUND, "positions")) for phase, part in rows.by("phase")]
        return [(phase, int(positions)) for phase, positions in until if positions]

    @cached_property
    def curves(self) -> pd.DataFrame:
        """The rows of the figure: fewest axes and extra tokens; gbps_low, gbps_high: interval.

        A copy is drawn at the speed of the fastest one of as many positions.
        """
        rows = at(self.shown.valid.frame, axes=FIRST, extra_tokens=FIRST)
        if rows["positions"].nunique() < 2:
            raise NotMeasured("there is no curve")
        low, high = (rows["bytes"] / rows[f"{end}_ms"] / 1e6 for end in ("high", "low"))
        rows = rows.assign(gbps_low=low, gbps_high=high)
        slow = (rows["implementation"] == COPY) & (rows["gbps"] < rows["copy_gbps"])
        rows.loc[slow, ["gbps_low", "gbps_high"]] = np.nan
        rows["gbps"] = rows["gbps"].mask(slow, rows["copy_gbps"])
        return sorted_for_reading(rows, ("phase", "implementation", "positions"))

    @property
    def shares(self) -> list[tuple[str, Range]]:
        """Phase and the speed of the lead relative to a copy in the large rows of the figure."""
        large = self.shown.kept(self.curves).where(large=True)
        return [(phase, self.of_copy(rows, self.lead)) for phase, rows in large.by("phase")]

    def along(self, axis: str) -> dict[str, object]:
        """Values of an axis with `shares`: (phase, speeds of the lead relative to a copy).

        varying: (phase, times of the next implementation over the lead's), where they vary.
        """
        rows = self._alike(axis).where(implementation=self.lead)
        shares = _by_phase(axis, rows.frame["copy_percent"] / 100, rows.frame)
        words = [(phase, listed(map(percent, values))) for phase, values in shares.items()]
        gains = _by_phase(axis, rows.over(self.peer).rows["ratio"], rows.frame)
        varies = gains.max() / gains.min() > 1 + VARIES
        return {
            "values": [*shares.index],
            "shares": words,
            "change": (shares.max() / shares.min()).max(),
            "varying": [
                (n, listed(map(ratio, values))) for n, values in gains.items() if varies[n]
            ],
            "positions": rows.only("positions"),
        }

    def _alike(self, axis: str) -> Rows:
        """The rows of the most positions that most values have; of axes and extra tokens the other
        one is least."""
        [other] = {"axes", "extra_tokens"} - {axis}
        rows = at(self.shown.sound, **{other: FIRST})
        values = required(rows, "no shape was measured").groupby("positions")[axis].nunique()
        return self.shown.kept(having(rows, positions=values[values == values.max()].index.max()))

    @property
    def speed_columns(self) -> list[Quantity]:
        """The time of each implementation, and the rates of the copy and the lead (L1)."""
        columns = []
        for name in (COPY, *self.order):
            columns.append(time(name))
            if name in (COPY, self.lead):
                words = value_words("implementation", name)
                columns.append(number("gbps", words, unit="GB/s", owner=name))
        return columns

    @property
    def share_columns(self) -> list[Quantity]:
        """Each implementation beside the copy, and the lead beside its peers (L1)."""
        words = {name: value_words("implementation", name) for name in self.order}
        shares = [
            number("copy_percent", header, "fixed", "% of copy", owner=name)
            for name, header in words.items()
        ]
        lead = words[self.lead]
        peers = [over(self.lead, peer, f"{lead} over {words[peer]}") for peer in self.leads[1:]]
        copy = number("copy_gbps", "fastest copy", unit="GB/s", owner=self.lead)
        return [copy, *shares, *peers]

    def errors(self, rows: Rows) -> Rows:
        """A line for each implementation and dtype: the largest errors of some rows."""
        rows = rows.frame
        rows = rows[rows["error_bound"].notna() | rows["state"].isin(WITHHELD)]
        rows = rows.assign(bound=rows["max_error"] / rows["error_bound"])
        return self.table_rows(
            {
                "implementation": name,
                "dtype": dtype,
                **part[[*ERRORS, "bound"]].max(),
                "passed": str(Count(int(part["state"].isna().sum()), len(part))),
            }
            for (name, dtype), part in parts(rows, "implementation", "dtype")
        )


def _by_phase(axis: str, values: pd.Series, rows: pd.DataFrame) -> pd.DataFrame:
    """A line for each value of an axis, a column for each phase; NotMeasured of a single value."""
    values = rows.loc[values.index, [axis, "phase"]].assign(value=values)
    values = values.pivot_table("value", axis, "phase").reindex(columns=[*PHASES]).dropna()
    if len(values) < 2:
        raise NotMeasured(f"only one value of {axis}")
    return values
