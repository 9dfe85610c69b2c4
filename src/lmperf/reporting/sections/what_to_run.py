"""What to run: the fastest train step of each size."""

from __future__ import annotations

from functools import cached_property

import numpy as np
import pandas as pd

from lmperf.benchmarks import load
from lmperf.evidence.cases import measurable
from lmperf.machine import bf16
from lmperf.names import axis_words, in_order, size_in_full, size_words
from lmperf.reporting.calculations.steps import (
    APART,
    AUTOCAST,
    CELL,
    EAGER,
    FUSED,
    FUSED_GRAPH,
    GRAPH,
    GRAPH_NARROW,
    NAMES,
    NARROW,
    SDPA,
    SDPA_COPIES,
    SDPA_GRAPH,
    SDPA_NARROW,
    STEM,
    STORED_LOGITS,
    WAYS,
    Way,
    all_steps,
    compared,
    fastest_steps,
    steps,
    usual,
)
from lmperf.reporting.frames import (
    having,
    matching,
    parts,
    required,
    shared_value,
    sorted_for_reading,
)
from lmperf.reporting.rows import Rows
from lmperf.reporting.sections import Section
from lmperf.reporting.words import NotMeasured
from lmperf.statistics import FASTER
from lmperf.transformer.rungs import IN_FLOAT8, RUNGS, STEPS_ALONE
from lmperf.transformer.sizes import SIZES

# From the simplest to run to the most elaborate one.
SIMPLEST = (
    *("eager", "compiled", "compiled_blocks"),
    *("sdpa", "sdpa_compiled", "sdpa_compiled_blocks"),
    *("triton", "triton_compiled", "triton_compiled_blocks"),
    *("fused_loss", "fused_blocks", "sdpa_graph", "fused_graph", "sdpa_copies_graph"),
    "graph",
)
WITHOUT_GRAPH = (
    *(Way(name, AUTOCAST) for name in ("compiled_blocks", "triton_compiled_blocks", "fused_loss")),
    *(SDPA, FUSED),
)
COLUMNS = (SDPA, SDPA_GRAPH, FUSED_GRAPH, SDPA_COPIES, GRAPH)  # of the times on a GPU
CLOSE = 0.02  # a recipe that takes at most this much longer is as good as the fastest


class WhatToRun(Section):
    """One line for each size, at the context and batch of the ladder."""

    @cached_property
    def steps(self) -> pd.DataFrame:
        """The steps at the usual cell of each size; `of_peak`: percent of `peak`."""
        rows = usual(self.evidence)
        if not rows["state"].isna().any():
            raise NotMeasured("no train step was measured")
        return rows.assign(of_peak=100 * rows["tflops"] / (self.peak or np.nan))

    @cached_property
    def valid(self) -> pd.DataFrame:
        return self.steps[self.steps["state"].isna()]

    @cached_property
    def wide(self) -> pd.DataFrame:
        """The steps with a result and float32 weights."""
        return self.valid[self.valid["dtype"] != NARROW]

    @property
    def sizes(self) -> list[str]:
        """The sizes that have a result, the smallest first."""
        return in_order("size", self.valid["size"])

    # How to read the page.

    def shared(self, axis: str) -> int:
        """The context or batch of all sizes."""
        return int(shared_value(self.valid[axis]))

    @property
    def names(self) -> dict[str, str]:
        """Size -> its name in the first column, with the context and batch if they differ."""
        apart = [axis for axis in ("context_length", "batch") if self.valid[axis].nunique() > 1]
        cells = self.valid.drop_duplicates("size").set_index("size")
        return {
            size: ", ".join(
                [size_in_full(size), *(f"{axis_words(a)} {cells.at[size, a]:,}" for a in apart)]
            )
            for size in self.sizes
        }

    @cached_property
    def peak(self) -> float | None:
        """TFLOP/s of which MFU is a share: of the data sheet, else of the fastest matmul here."""
        if not self.evidence.is_cuda:
            return None
        rates = (self.evidence.sheet_tflops("bfloat16"), self.evidence.peak("bfloat16"))
        return next((rate for rate in rates if rate > 0), None)

    # The recipe.

    @cached_property
    def _near(self) -> pd.DataFrame:
        """The steps that are as good as the fastest of their size; a graph may have bf16 weights.

        Sizes of a single way decide nothing, unless no size has more.
        """
        rows = self.valid[(self.valid["dtype"] != NARROW) | (self.valid["way"] == GRAPH_NARROW)]
        rows = required(rows, "no step was measured with float32 weights")
        rows = rows.assign(way=rows["way"].map(lambda way: GRAPH if way == GRAPH_NARROW else way))
        has_several = rows.groupby("size")["way"].transform("nunique") > 1
        rows = rows[has_several] if has_several.any() else rows
        return pd.concat([part[self._are_as_good(part)] for _, part in parts(rows, "size")])

    def _are_as_good(self, rows: pd.DataFrame) -> pd.Series:
        """Which steps are nearly as fast as the fastest; on a CPU also those within the noise."""
        best = rows.loc[rows["ms"].idxmin()]
        near = rows["ms"] <= (1 + CLOSE) * best["ms"]
        if self.evidence.is_cuda:
            return near
        beside = rows["way"].map(lambda way: compared(self.evidence, best["way"], way)["verdict"])
        verdicts = beside.map(lambda by_step: by_step.get(best.name))
        # Stale and loaded rows are not compared: their times alone decide.
        return near | (rows["holds"] & best["holds"] & (verdicts != FASTER))

    @cached_property
    def recipe(self) -> Way:
        """The graph if it is as good as the fastest at every size; else what is so at most sizes.

        Of several, the simplest.
        """
        near = self._near.drop_duplicates(["size", "way"])["way"].to_list()
        if near.count(GRAPH) == self._near["size"].nunique():
            return GRAPH
        return min(near, key=lambda way: (-near.count(way), effort(way)))

    @property
    def sizes_of_recipe(self) -> list[str]:
        """The sizes at which the recipe was measured."""
        return in_order("size", having(self.valid, way=[self.recipe])["size"])

    @property
    def is_in_doubt(self) -> bool:
        """Whether a step that the recipe follows from is stale or was timed beside other load."""
        return not self._near["holds"].all()

    @property
    def is_graph(self) -> bool:
        return self.recipe == GRAPH

    @property
    def exceptions(self) -> pd.DataFrame:
        """The fastest steps of the sizes at which `recipe` is slower."""
        is_near = (self._near["way"] == self.recipe).groupby(self._near["size"]).transform("any")
        return fastest_steps(self._near[~is_near])

    @property
    def maker(self) -> str:
        """Python that makes the steps of the recipe."""
        name = self.recipe.implementation
        if name in STEPS_ALONE:
            return f"steps.{name.upper()}"
        return f"steps.step_maker(implementations.{name})"

    @property
    def keys(self) -> list[str]:
        """The names of the measured sizes in `SIZES`, the smallest first."""
        return [key for size in self.sizes for key in SIZES if size_words(key) == size]

    @property
    def unmeasured(self) -> list[Way]:
        """The ways that the grid has in the cells of `steps`, and that were not measured in any.

        A preset that measures a part of the grid knows nothing of these.
        """
        benchmark, rows = load(STEM), self.evidence.raw.get("ceilings", ())
        cases = benchmark.cases("gpu" if self.evidence.is_cuda else "cpu")
        emulates = bf16.slowdown_in(rows) > bf16.SLOW
        cells = {*self.steps[CELL].itertuples(index=False, name=None)}
        ways = {
            Way(case.implementation, axes["dtype"])
            for case in measurable(benchmark, cases, 1, emulates)
            for axes in [case.axes]
            if (size_words(axes["size"]), axes["context_length"], axes["batch"]) in cells
        }
        return sorted(ways - APART - {*self.steps["way"]}, key=effort)

    @property
    def narrow_vectors(self) -> pd.Series:
        """The fastest step whose compiled code uses narrower vectors than PyTorch's default.

        over_eager: how many times as fast as eager in its dtype; NaN if it is not faster.
        """
        rows = self.valid[self.valid["vector_bits"].notna()]
        best = required(rows, "all compiled code uses default vectors").sort_values("ms").iloc[0]
        gains = compared(self.evidence, best["way"], Way(EAGER, best["dtype"]))
        faster = gains.loc[gains["verdict"] == FASTER, "ratio"]
        return best.to_frame().T.assign(over_eager=faster.get(best.name, np.nan)).iloc[0]

    @property
    def has_bf16(self) -> bool | None:
        """Whether this machine multiplies bf16 matrices; None if that was not looked at."""
        rows = having(self.rows("ceilings").frame, operation="matmul", dtype="bfloat16")
        return None if rows.empty else bool((rows["state"] != "unsupported").any())

    @property
    def bf16_slowdown(self) -> float:
        """How many times as long as in float32 a matmul takes in bf16."""
        return self.evidence.peak("float32") / self.evidence.peak("bfloat16")

    # The first table.

    @cached_property
    def shown(self) -> pd.DataFrame:
        """The steps with a result that have a column of times."""
        return self.wide[self.wide["way"].isin(COLUMNS)] if self.evidence.is_cuda else self.wide

    @cached_property
    def fastest(self) -> pd.DataFrame:
        """The fastest step of each line: of its columns, else of all with float32 weights."""
        rest = self.wide[~self.wide["size"].isin(self.shown["size"])]
        rows = self.wide.loc[[*self.shown.index, *rest.index]]
        return fastest_steps(rows)

    @property
    def elsewhere(self) -> pd.DataFrame:
        """Those of `fastest` that are in no column of the table."""
        return self.fastest.drop(self.shown.index, errors="ignore")

    @cached_property
    def lines(self) -> Rows:
        """The steps with float32 weights; `fastest`, `held`, `busy` are those of a line.

        `held` is the step whose peak is shown, which does not depend on the CPU; `busy` is SDPA,
        compiled, whose device_ms is known if it waits. `shown` is the way in words.
        """
        shown, failed = self.shown, self.steps[self.steps["state"].notna()]
        parts = [
            shown.assign(shown=shown["way"].map(lambda way: way.words)),
            self.fastest.assign(implementation="fastest"),
            self.held.assign(implementation="held", waits=False),
        ]
        if self.evidence.is_cuda:
            parts.append(failed[failed["way"].isin(COLUMNS)])
            busy = having(shown, way=[SDPA])
            device_ms = busy["device_ms"].where(busy["waits"])
            busy = busy.assign(implementation="busy", device_ms=device_ms, waits=False)
            parts.append(busy)
        return self.rows("", in_reading_order(parts))

    @cached_property
    def held(self) -> pd.DataFrame:
        """The step of each line whose peak is shown; on a CPU the fastest with a known one."""
        if self.evidence.is_cuda:
            return self.fastest
        return fastest_steps(self.wide[self.wide["peak_gib"].notna()])

    def pairs(self, ours: Way, base: Way, larger: bool = False) -> pd.DataFrame:
        """The steps of a way beside those of another one, if neither waits; see `steps.compared`.

        larger: of larger batches than the table's.
        """
        rows = self.larger if larger else self.valid
        pairs = compared(self.evidence, ours, base)
        pairs = pairs[pairs.index.isin(rows.index) & ~pairs["waits"]]
        return required(pairs, f"{ours.words} was not measured beside {base.words}, or waits")

    def over(self, base: str, ours: str = "graph", larger: bool = False) -> pd.DataFrame:
        """`pairs` of two implementations that have float32 weights under autocast."""
        return self.pairs(Way(ours, AUTOCAST), Way(base, AUTOCAST), larger)

    def costs(self, rung: str) -> pd.DataFrame:
        """The graph that does more, such as to clip its gradients, beside the one that does not."""
        return required(compared(self.evidence, WAYS[rung], GRAPH), f"{rung} was not measured")

    @property
    def chunks(self) -> pd.DataFrame:
        """The graph with its loss in chunks beside that with stored logits; see `steps.compared`.

        saved_gib: how much lower its peak is. With a vocabulary larger than that of the tables.
        """
        pairs = compared(self.evidence, GRAPH, STORED_LOGITS, "vocabulary")
        pairs = required(pairs, "no larger vocabulary was measured with both losses")
        return pairs.assign(saved_gib=pairs["peak_gib_base"] - pairs["peak_gib"])

    @property
    def without_graph(self) -> Rows:
        """The compiled steps without a graph of the smallest size that has two, if all wait."""
        rows = having(self.valid, way=[*WITHOUT_GRAPH], holds=True)
        rows = rows[rows.groupby("size")["way"].transform("nunique") > 1]
        rows = having(rows, size=in_order("size", rows["size"])[:1])
        if rows.empty or not rows["waits"].all():
            raise NotMeasured("compiled steps without a graph do not wait")
        return self.rows(STEM, rows)

    @cached_property
    def larger(self) -> pd.DataFrame:
        """The steps with a result of a larger batch than that of the table."""
        rows = self._at_larger(steps(self.evidence))
        return rows[rows["state"].isna()]

    def _at_larger(self, rows: pd.DataFrame) -> pd.DataFrame:
        here = matching(rows, self.valid, ["size", "context_length"])["batch"]
        return rows[rows["batch"] > here]

    @property
    def at_larger(self) -> Rows:
        """The steps of larger batches in the columns of their table, under their `steps.NAMES`."""
        rows = all_steps(self.evidence)
        ways = {*COLUMNS, SDPA_NARROW, GRAPH_NARROW, *(WAYS[rung.name] for rung in IN_FLOAT8)}
        rows = rows[rows["way"].isin(ways)]
        rows = required(self._at_larger(rows), "no larger batch was measured")
        return self.rows("", rows.assign(implementation=rows["way"].map(NAMES.get)))


def in_reading_order(frames: list[pd.DataFrame]) -> pd.DataFrame:
    """The rows of all frames by size."""
    rows = pd.concat([frame for frame in frames if len(frame)] or frames)
    return sorted_for_reading(rows, ["size"]).reset_index(drop=True)


def effort(way: Way) -> tuple[int, int]:
    """The place of a way among all, the simplest first."""
    dtypes = list(dict.fromkeys(rung.dtype for rung in RUNGS))
    return dtypes.index(way.dtype), SIMPLEST.index(way.implementation)
