"""Tensors over a forward and a train step: calculations of tables Y2 to Y5 and of their figure."""

from __future__ import annotations

from functools import cached_property
from typing import NamedTuple

import numpy as np
import pandas as pd

from lmperf.dtypes import dtype_of
from lmperf.names import dtype_words, in_order
from lmperf.reporting.calculations.steps import STEP
from lmperf.reporting.columns import Quantity, memory
from lmperf.reporting.frames import FIRST, LAST, at, having, required, sorted_for_reading
from lmperf.reporting.rows import Rows
from lmperf.reporting.sections import Section
from lmperf.reporting.words import EMPTY, MIB_IN_GIB, NotMeasured, percent

STEM = "memory_timeline"
CELL = ["size", "context_length", "batch", "dtype", "phase"]
# Owner of a tensor -> its colour, from the bottom of the figure to its top.
OWNERS = {
    "parameters": "blue",
    "optimizer": "grey",
    "inputs": "mustard",
    "gradients": "orange",
    "activations": "green",
    "temporary": "violet",
}
# Autocast's bf16 copies of weights live from the forward to the backward, as activations do.
CAST = "activations, weights cast by autocast"
MOST_POINTS = 125
LEAST_SHARE = 0.01  # of the highest peak; a smaller owner is not drawn
NEAR = 0.05  # of the backward: its beginning
HARDLY_ANY = 0.05  # of the peak


class Peak(NamedTuple):
    """The highest point of a recorded call.

    Attributes:
        phase: of the call, in which it is; `through`: the fraction of it that has passed.
        share: of the largest owner, `owner`. gradients: share of the gradients.
    """

    size: str
    context: int
    dtype: str
    phase: str
    through: float
    owner: str
    share: float
    gradients: float

    @property
    def begins_backward(self) -> bool:
        """Whether all activations are alive, and hardly any gradient."""
        return self.phase == "backward" and self.through <= NEAR and self.gradients <= HARDLY_ANY


class MemoryTimeline(Section):
    """Recorded calls, each with rows for its curve, its phases and the tensors at its peak."""

    @cached_property
    def subject(self) -> str:
        """The model that was recorded: the first custom one with a result, or lmperf's."""
        rows = self.evidence.rows(STEM)
        ran = set(rows.loc[rows["state"].isna(), "implementation"])
        return next((name for name in self.evidence.subjects(STEM) if name in ran), "eager")

    @property
    def _rows(self) -> pd.DataFrame:
        return having(self.evidence.rows(STEM), implementation=self.subject)

    @cached_property
    def kept(self) -> Rows:
        """What one block of the largest size keeps for the backward, in the first dtype.

        share: of all.
        """
        rows = required(self.kind("kept"), "what a block keeps was not measured")
        rows = at(rows, size=LAST, dtype=FIRST)
        return self.rows(STEM, rows.assign(share=rows["size_mib"] / rows["size_mib"].sum()))

    @property
    def most_kept(self) -> Rows:
        """The five largest of these."""
        return self.kept.kept(self.kept.frame.head(5))

    def kind(self, table: str) -> pd.DataFrame:
        """The valid rows of one kind: curve, phase, block, stream, category or kept."""
        rows = self._rows
        rows = having(rows[rows["state"].isna()], table=table)
        return sorted_for_reading(rows.sort_values("position", kind="stable"), CELL)

    @cached_property
    def calls(self) -> Rows:
        """A row for each call, with `peak_in`; that of a failed call has its state (Y2)."""
        rows = self._rows
        tops = self._tops
        peaks = [self._peak(top) for _, top in tops.iterrows()]
        words = [
            f"{peak.phase}, {percent(peak.through)} through" if peak else EMPTY for peak in peaks
        ]
        tops = tops.assign(peak_in=pd.Series(words, tops.index, dtype=object))
        return self.rows(STEM, pd.concat([tops, rows[rows["state"].notna()].assign(peak_in=EMPTY)]))

    @cached_property
    def _tops(self) -> pd.DataFrame:
        """The point with the most memory of each call."""
        curve = self.kind("curve")
        total = levels(curve).sum(axis=1)
        return curve.loc[total.groupby([curve[n] for n in CELL], sort=False).idxmax()]

    def _peak(self, top: pd.Series) -> Peak | None:
        level = levels(top.to_frame().T).iloc[0].astype(float)
        for phase, start, end in spans(having(self.kind("phase"), **top[CELL])):
            if start <= top["position"] < end:
                return Peak(
                    top["size"],
                    int(top["context_length"]),
                    top["dtype"],
                    phase,
                    (top["position"] - start) / (end - start),
                    level.idxmax(),
                    level.max() / level.sum(),
                    level["gradients"] / level.sum(),
                )
        return None

    @cached_property
    def peak(self) -> Peak:
        """That of the train step of the largest size, in the first dtype, that is not stale."""
        steps = having(self._tops, phase=STEP, holds=True)
        steps = required(steps, "no train step was recorded")
        peak = self._peak(at(steps, size=LAST).iloc[0])
        if peak is None:
            raise NotMeasured("the phases of the step were not recorded")
        return peak

    @cached_property
    def blocks(self) -> Rows:
        """The largest tensors at the peak; equal ones share a row with their `number` (Y3)."""
        blocks = self.kind("block").rename(columns={"position": "rank"})
        blocks = blocks.assign(made_in=blocks["made_in"].fillna("before"))
        same = [*CELL, "tensor", "size_mib", "name", "made_in", "frame"]
        number = blocks.groupby(same, dropna=False)["rank"].transform("size")
        return self.rows(STEM, blocks.assign(number=number).drop_duplicates(same))

    @property
    def streams(self) -> Rows:
        """One tensor of the residual stream for each size (Y4)."""
        rows = self.kind("stream").drop_duplicates(CELL[:3])
        each = rows["size_mib"] / rows["predicted_mib"] * dtype_of("float32").bytes
        return self.rows(STEM, rows.assign(bytes_each=each))

    @cached_property
    def components(self) -> Rows:
        """Of each call `<owner>_predicted` and `<owner>_measured` at the peak, in MiB (Y5).

        A forward without gradients keeps nothing for a backward, so that the closed form's copies
        of weights are temporary in it.
        """
        rows = self.kind("category")
        cast = (rows["phase"] == "forward") & (rows["name"] == "activations")
        rows = rows.assign(name=rows["name"].mask(cast, "temporary"))
        sums = rows.groupby([*CELL, "name"], sort=False)[["predicted_mib", "size_mib"]].sum()
        wide = sums.unstack("name").swaplevel(axis=1)
        wide.columns = [
            f"{name}_{'predicted' if kind == 'predicted_mib' else 'measured'}"
            for name, kind in wide.columns
        ]
        return self.rows(STEM, sorted_for_reading(wide.reset_index(), CELL))

    @property
    def component_columns(self) -> list[Quantity]:
        rows = self.components.frame
        return [
            memory(f"{name}_predicted", name, form="precise", second=f"{name}_measured")
            for name in OWNERS
            if f"{name}_predicted" in rows
        ]

    @cached_property
    def areas(self) -> tuple[list[dict], dict[str, str], list[dict]]:
        """Points, colours and rules of the figure (`figures.area_chart`).

        Tensors by owner over the train step of the largest size, a panel for each dtype.
        """
        steps = required(having(self.kind("curve"), phase=STEP), "no train step was recorded")
        steps = at(steps, size=LAST)
        dtypes = in_order("dtype", steps["dtype"])
        named = {"activations": CAST} if any(dtype_of(dtype).autocast for dtype in dtypes) else {}
        colours = {named.get(name, name): colour for name, colour in OWNERS.items()}
        least = LEAST_SHARE * levels(steps).sum(axis=1).max()
        records, rules = [], []
        for dtype in dtypes:
            curve = having(steps, dtype=dtype)
            first = curve.iloc[0]
            panel = f"{first['size']}, context {first['context_length']:g}, {dtype_words(dtype)}"
            parts = spans(having(self.kind("phase"), **first[CELL]))
            parts = required(parts, "the phases of the step were not recorded")
            start = parts[0][1]
            curve = thinned(curve[curve["position"] >= start])
            level = levels(curve)
            records += [
                {"panel": panel, "name": named.get(name, name), "x": x - start, "y": y / MIB_IN_GIB}
                for name in level
                if level[name].max() >= least
                for x, y in zip(curve["position"], level[name], strict=True)
            ]
            rules += [
                {"panel": panel, "x": begin - start, "end": name}
                for name, begin, end in parts
                if end > begin
            ]
        return records, colours, rules


def levels(curve: pd.DataFrame) -> pd.DataFrame:
    """MiB of each owner at each point of a curve."""
    return curve[[f"{name}_mib" for name in OWNERS]].set_axis([*OWNERS], axis=1)


def spans(phases: pd.DataFrame) -> list[tuple[str, float, float]]:
    """(name, start, end) of each phase of one call, in order."""
    phases = phases.sort_values("position", kind="stable")
    starts = phases["position"].astype(float).tolist()
    return list(zip(phases["name"][:-1], starts, starts[1:], strict=False))


def thinned(curve: pd.DataFrame) -> pd.DataFrame:
    """The memory of about MOST_POINTS stretches of a curve at most, and of its end.

    A stretch has its point with the most memory, at the position where the stretch begins: drawn
    from there to the next one, the highest point is as wide as any other.
    """
    stretch = (np.arange(len(curve)) + 1) // -(-len(curve) // MOST_POINTS)
    most = curve.loc[levels(curve).sum(axis=1).groupby(stretch).idxmax()]
    begins = curve["position"].groupby(stretch).first().to_numpy()
    return pd.concat([most.assign(position=begins), curve.tail(1)])
