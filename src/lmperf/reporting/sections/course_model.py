"""The answers about train steps: their times, mixed precision, compiling and memory."""

from __future__ import annotations

import math
import re
from contextlib import suppress
from functools import cached_property
from itertools import permutations

import pandas as pd

from lmperf.dtypes import DTYPES
from lmperf.names import in_order
from lmperf.reporting.calculations.steps import AUTOCAST, CELL, EAGER, FLOAT32, STEM, STEP
from lmperf.reporting.frames import FIRST, at, having, matching, required
from lmperf.reporting.gains import Gain
from lmperf.reporting.numbers import of_rows
from lmperf.reporting.rows import Rows
from lmperf.reporting.sections.course import Course, resolved
from lmperf.reporting.words import NotMeasured, Range

PHASES = ["forward", "backward", STEP]


class CourseModel(Course):
    """Rows of the subject, at one context and batch where tables have one."""

    @cached_property
    def timed(self) -> pd.DataFrame:
        """The timed rows of the model in its first dtype."""
        rows = having(self.one(STEM).frame, phase=PHASES)
        rows = required(rows[rows["holds"]], "the model was not timed")
        return at(rows, dtype=FIRST)

    @cached_property
    def model(self) -> Rows:
        """Those of the context and batch at which most sizes have all phases."""
        complete = self.timed.groupby(CELL)["phase"].transform("nunique") == len(PHASES)
        rows = required(self.timed[complete], "no model has all phases")
        counts = rows.groupby(["context_length", "batch"])["size"].nunique()
        most = dict(zip(counts.index.names, counts.idxmax(), strict=True))
        rows = having(rows, **most)
        waited = {"waited": rows["ms"], "waited_optimizer": rows["optimizer_ms"]}
        waited = {name: values.where(rows["waits"]) for name, values in waited.items()}
        return self.rows(STEM, rows.assign(**waited))

    @property
    def models(self) -> Rows:
        """The rows of all subjects in the cells of `model`."""
        same = {name: self.model.only(name) for name in ("context_length", "batch", "dtype")}
        return self.every(STEM).where(phase=PHASES, **same)

    @property
    def backward_over_forward(self) -> Range:
        """The backward's time over the forward's, of models that do not wait."""
        rows = self.model.query("holds and not waits").frame
        wide = rows.pivot_table("ms", CELL, "phase").reindex(columns=["forward", "backward"])
        return of_rows(Range.of((wide["backward"] / wide["forward"]).dropna()), rows)

    @cached_property
    def by_context(self) -> dict[str, object]:
        """The largest `size` with steps that do not wait of several `contexts`: least and greatest.

        tokens, time: how many times as many, and as long.
        """
        rows = self.timed[self.timed["holds"] & ~self.timed["waits"]]
        wide = having(rows, phase=STEP).pivot_table("ms", ["size", "batch"], "context_length")
        wide = required(wide[wide.count(axis=1) > 1], "no size has steps of two contexts")
        size = in_order("size", wide.index.get_level_values("size"))[-1]
        times = wide.loc[size].iloc[-1].dropna().iloc[[0, -1]]
        tokens, time = times.index[1] / times.index[0], times.iloc[1] / times.iloc[0]
        return {"size": size, "contexts": [*times.index], "tokens": tokens, "time": time}

    @cached_property
    def first_steps(self) -> Rows:
        """A row for each process of the warm-up with the subject, with columns over its steps."""
        processes = self.of("warmup").processes
        return processes.where(implementation=self.subject("warmup"))

    @property
    def first_is_longer(self) -> bool:
        """Whether each process's first step is longer than its second, beyond the noise floor."""
        least = 1 + self.evidence.floors[self.of("repeatability").steps]
        return self.first_steps.range("step_1 / step_2").low > least

    def gain(self, dtype: str, base: str) -> Gain:
        """The speed-ups of a dtype in steps of the subject at the context that most sizes have."""
        where = {"phase": STEP, "dtype": dtype, "context_length": self.of(STEM).context}
        return self.one(STEM).where(**where).over(dtype=base)

    @property
    def slowed(self) -> pd.Series:
        """The smallest step that waits and that autocast makes longer than float32 (`ms_base`).

        By more than the noise floor of such steps. launches: kernels in float32 and in autocast.
        """
        steps = self.one(STEM).where(phase=STEP)
        pairs = steps.where(dtype=AUTOCAST).query("waits").pairs(dtype=FLOAT32)
        pairs = pairs[pairs["holds"] & (pairs["high"] * (1 + pairs["floor"]) < 1)]
        return required(pairs, "autocast makes no step longer that waits").iloc[0]

    @property
    def model_gains_less(self) -> bool:
        """Whether compiling gains less in the float32 model, mostly matmuls, than in attention."""
        steps, matmuls = self.of(STEM), self.of("profiles").matmul_shares(FLOAT32)
        model = steps.over(steps.compiling, EAGER).where(dtype=FLOAT32)
        return matmuls.low > 0.5 and self.of("attention").compiled.mean > model.mean

    @property
    def compiled_models(self) -> list[tuple[str, str, Gain]]:
        """(model that is compiled, the same one as it is, its speed-up over that)."""
        declared, pairs = self.evidence.declared(STEM), []
        for name, first in permutations(self.names(STEM), 2):
            model, other = declared[name], declared[first]
            same = (model.entry, model.options) == (other.entry, other.options)
            if same and model.compiles and not other.compiles:
                pairs.append((name, first))
        return resolved(self.rows(STEM), pairs)

    @cached_property
    def recorded(self) -> Rows:
        """The float32 peaks of the subject: of the size whose allocations were recorded, else of
        the largest one."""
        rows = self.of("memory").every.where(implementation=self.subject("memory"), dtype=FLOAT32)
        sizes = in_order("size", rows.sound["size"])
        with suppress(NotMeasured):
            sizes = [
                size for size in sizes if size == self.of("memory_timeline").peak.size
            ] or sizes
        peaks = having(rows.sound, size=sizes[-1])
        return rows.kept(having(peaks, batch=peaks["batch"].max()))

    @property
    def peaks(self) -> Rows:
        """GiB at the peak of a forward and a step, of contexts that have both."""
        rows = self.recorded.frame
        wide = rows.pivot_table("peak_gib", "context_length", "phase")
        return self.rows("", wide.reindex(columns=["forward", STEP]).dropna().reset_index())

    @property
    def autocast_peaks(self) -> Rows:
        """The peaks of train steps under autocast, `change`: over those in float32."""
        rows = self.of("memory").every.where(implementation=self.subject("memory"))
        steps = having(rows.sound, phase=STEP)
        single = matching(steps, having(steps, dtype=FLOAT32), CELL)["peak_mib"]
        steps = steps.assign(change=steps["peak_mib"] / single - 1)
        return rows.kept(having(steps, dtype=AUTOCAST).dropna(subset=["change"]))

    @cached_property
    def blocks(self) -> pd.DataFrame:
        """The largest tensors at the peak of that size's float32 step; `is_older` than the step."""
        if not self.names("memory_timeline"):
            raise NotMeasured("the allocations of the subject were not recorded")
        peak = self.of("memory_timeline").peak
        rows = self.of("memory_timeline").blocks.frame
        rows = having(rows, size=peak.size, dtype=peak.dtype, phase=STEP)
        rows = rows[rows["size_mib"] == rows["size_mib"].max()].drop_duplicates("tensor")
        return required(rows, "no tensors").assign(is_older=rows["made_in"] == "before")

    @property
    def as_large(self) -> list[tuple[str]]:
        """The other tensors of that size."""
        return [(tensor,) for tensor in self.blocks["tensor"].iloc[1:]]

    @property
    def shape_explains(self) -> bool:
        """Whether the shape of the largest tensor gives all of its bytes."""
        first = self.blocks.iloc[0]
        shape = re.fullmatch(r"(\w+)\[([\d, ]+)\]", str(first["tensor"]))
        if shape is None or shape[1] not in DTYPES:
            return False
        elements = math.prod(map(int, shape[2].split(",")))
        return first["size_mib"] == elements * DTYPES[shape[1]].bytes / 2**20
