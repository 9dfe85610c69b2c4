"""The peak memory of a train step with each rung of the ladder."""

from __future__ import annotations

from functools import cached_property

import pandas as pd

from lmperf.dtypes import dtype_of
from lmperf.names import SHORT, TECHNIQUES, in_order
from lmperf.reporting.calculations.steps import EAGER, STEM, steps
from lmperf.reporting.columns import Quantity, memory
from lmperf.reporting.figures import stacked
from lmperf.reporting.frames import LAST, at, having, required, sorted_for_reading
from lmperf.reporting.rows import Rows
from lmperf.reporting.sections import Section
from lmperf.reporting.words import GIB, sig

# AdamW keeps two moments of each weight, in the dtype of the weight. bf16 copies of weights count
# as added, whether autocast makes them or AdamW.
VALUES_A_PARAMETER = 3
KEPT, ADDED = "weights and AdamW's moments", "gradients, activations and all else at the peak"
# The rungs of the table, each with the rung that its saving is over.
SHOWN = {
    "float32": None,
    "autocast": "float32",
    "compiled_blocks": "autocast",
    "flash_attention": "compiled_blocks",
    "bf16_graph": "flash_attention",
}
SAVES = 0.10


class MemoryLadder(Section):
    """Rungs at one context and batch, whose names stand in the column `implementation`."""

    colours = {KEPT: "grey", ADDED: "violet"}

    @cached_property
    def every(self) -> Rows:
        """The rungs of each size; kept_gib: weights and moments; weights_gib: most of a size."""
        rows = steps(self.evidence)
        rows = rows[rows["rung"].notna()]
        stored = rows["dtype"].map(lambda dtype: dtype_of(dtype).bytes).astype(float)
        kept = rows["parameters"] * VALUES_A_PARAMETER * stored / GIB
        rows = rows.assign(implementation=rows["rung"], kept_gib=kept)
        valid = rows["state"].isna() & rows["peak_gib"].notna()
        shown = having(rows[valid], implementation=[*SHOWN])
        peaks = shown.groupby(["context_length", "batch", "size"]).size()
        several = required(peaks[peaks > 1], "no size has the peaks of two rungs of the table")
        context, batch = several.groupby(["context_length", "batch"]).sum().idxmax()
        sizes = [*peaks[context, batch].index]
        rows = having(rows, context_length=context, batch=batch, size=sizes)
        kept = rows["kept_gib"].groupby(rows["size"]).transform("max")
        return self.rows(STEM, rows.assign(weights_gib=kept))

    @property
    def columns(self) -> list[Quantity]:
        """A column of peaks for each rung of the table that has a row."""
        there = {*self.every.frame["implementation"]}
        words = SHORT | {"autocast": f"{SHORT['autocast']}, {EAGER}"}
        return [memory("peak_gib", words[rung], "", owner=rung) for rung in SHOWN if rung in there]

    @cached_property
    def peaks(self) -> pd.DataFrame:
        """GiB of each size and rung of the table; NaN where it has none, or a stale one."""
        rows = self.every.valid.frame
        rows = rows[~rows["signs"].map(lambda signs: "stale" in signs).astype(bool)]
        wide = rows.pivot_table("peak_gib", "size", "implementation", sort=False)
        return wide.reindex(index=in_order("size", wide.index), columns=[*SHOWN])

    def changes(self, rung: str) -> pd.Series:
        """Of each size, the change of the peak over the rung that the saving is over."""
        return (self.peaks[rung] / self.peaks[SHOWN[rung]] - 1).dropna()

    @property
    def savers(self) -> list[str]:
        """The techniques that save more than a tenth of the peak at every size, in words."""
        changes = {rung: self.changes(rung) for rung, base in SHOWN.items() if base}
        saving = [
            rung for rung, change in changes.items() if len(change) and (change < -SAVES).all()
        ]
        return [TECHNIQUES[rung] for rung in saving]

    @property
    def context(self) -> int:
        return self.every.only("context_length")

    @property
    def largest(self) -> pd.Series:
        """The peaks by rung of the largest size with a float32 peak, whose name the series has."""
        return required(self.peaks.dropna(subset=["float32"]), "no float32 peak").iloc[-1]

    @property
    def bars(self) -> list[dict]:
        """The parts of the bars of the figure, of one size: rungs of equal peaks share a bar."""
        rows = self.every.valid.frame.dropna(subset=["peak_gib", "kept_gib"])
        rows = required(rows, "no peak is known")
        single = having(rows, implementation="float32")
        size = at(single if len(single) else rows, size=LAST)["size"].iloc[0]
        rows, bars = sorted_for_reading(having(rows, size=size), ["implementation"]), []
        ends = rows["peak_gib"].map(sig)
        for _, equal in rows.groupby(ends.ne(ends.shift()).cumsum(), sort=False):
            row = equal.iloc[0]
            parts = {KEPT: row["kept_gib"], ADDED: row["peak_gib"] - row["kept_gib"]}
            line = "; ".join(map(SHORT.get, equal["implementation"])).replace("; +", " +")
            bars += stacked("", line, parts, "GiB", sig(row["peak_gib"]), row["signs"])
        return bars
