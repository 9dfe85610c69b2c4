"""Train steps of the benchmark `end_to_end`: which there are, and how one compares with another.

A way to run the model is an implementation in a dtype.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import NamedTuple

import pandas as pd

from lmperf.benchmarks import load
from lmperf.names import dtype_words, implementation_words
from lmperf.reporting.cells import EMPTY, NOT_RECORDED, Cell
from lmperf.reporting.columns import Quantity
from lmperf.reporting.evidence import Evidence, cached_by_evidence
from lmperf.reporting.frames import are_within, having, sorted_for_reading
from lmperf.reporting.gains import rows_over
from lmperf.transformer.rungs import FLOAT8_GRAPH, IN_FLOAT8, NEEDED, RUNGS

STEM, STEP = "end_to_end", "train_step"
CELL = ["size", "context_length", "batch"]
EAGER, WHOLE, BLOCKS = "eager", "compiled", "compiled_blocks"
FLOAT32, TF32, AUTOCAST, NARROW = "float32", "tf32", "autocast_bfloat16", "bfloat16"


class Way(NamedTuple):
    """One way to run the model."""

    implementation: str
    dtype: str

    @property
    def words(self) -> str:
        """The way for a reader: ``eager TF32``; ``bf16 autocast, compiled by block``."""
        if self.dtype == NARROW and self in _RUNGS:  # they need no bf16 copies
            return implementation_words(_RUNGS[self])
        numerics = dtype_words(self.dtype, CELL)
        if self.implementation == EAGER:
            return f"{EAGER} {numerics}"
        return f"{numerics}, {implementation_words(self.implementation)}"


GRAPH, GRAPH_NARROW = Way("graph", AUTOCAST), Way("graph", NARROW)
FUSED, FUSED_NARROW = Way("fused_blocks", AUTOCAST), Way("fused_blocks", NARROW)
SDPA, SDPA_GRAPH = Way("sdpa_compiled_blocks", AUTOCAST), Way("sdpa_graph", AUTOCAST)
SDPA_NARROW = Way("sdpa_graph", NARROW)
# The graphs that differ from another one in kernels, in bf16 copies, or in the loss alone.
FUSED_GRAPH, SDPA_COPIES = Way("fused_graph", AUTOCAST), Way("sdpa_copies_graph", AUTOCAST)
STORED_LOGITS = Way("stored_logits_graph", AUTOCAST)
WAYS = {rung.name: Way(rung.implementation, rung.dtype) for rung in (*RUNGS, *IN_FLOAT8, *NEEDED)}
_RUNGS = {way: name for name, way in WAYS.items()}
# Way -> its name in tables of techniques: a rung, or a step with SDPA.
NAMES = _RUNGS | {way: way.implementation for way in (SDPA, SDPA_GRAPH, SDPA_COPIES)}
NAMES |= {SDPA_NARROW: "sdpa_bf16_graph"}
# Steps that do more than others, such as clipping, or round more.
APART = {WAYS[rung.name] for rung in (*NEEDED, FLOAT8_GRAPH)}


@cached_by_evidence
def all_steps(evidence: Evidence) -> pd.DataFrame:
    """All train steps, with or without a result.

    Adds `way` and `rung`: the name of the rung that a step is, or None.
    """
    rows = having(evidence.rows(STEM), phase=STEP)
    ways = [Way(*both) for both in zip(rows["implementation"], rows["dtype"], strict=True)]
    return rows.assign(
        way=pd.Series(ways, rows.index, dtype=object),
        rung=pd.Series([_RUNGS.get(way) for way in ways], rows.index, dtype=object),
    )


def named(rows: pd.DataFrame) -> pd.DataFrame:
    """The rows; the graph with bf16 weights, which needs no copies, by its name as a rung."""
    is_graph = (rows["dtype"] == NARROW) & (rows["implementation"] == GRAPH.implementation)
    return rows.assign(implementation=rows["implementation"].mask(is_graph, "bf16_graph"))


@cached_by_evidence
def steps(evidence: Evidence) -> pd.DataFrame:
    """The train steps of this project's ways to run a model; see `all_steps`.

    Without those that do more than others, see `WhatToRun.costs`, or round more, as in float8.
    """
    rows = all_steps(evidence)
    ours = {
        implementation.name
        for implementation in load(STEM).implementations
        if implementation.origin == "project"
    }
    rows = having(rows, implementation=[*(ours - {way.implementation for way in APART})])
    return rows.assign(words=rows["words"].mask(rows["state"] == "oom", "OOM"))


@cached_by_evidence
def usual(evidence: Evidence) -> pd.DataFrame:
    """The steps of one context and batch for each size: of those with most results, the smallest.

    On a GPU it is the cell of the ladder.
    """
    rows = steps(evidence)
    return rows[are_within(rows, usual_cells(rows), CELL)]


def usual_cells(rows: pd.DataFrame) -> pd.DataFrame:
    """Of each size the context and batch of most rows with a result; of equals the smallest."""
    counts = rows["state"].isna().groupby([rows[name] for name in CELL]).sum()
    most = counts.sort_values(ascending=False, kind="stable").groupby("size").head(1)
    return most.index.to_frame(index=False)


def fastest_steps(rows: pd.DataFrame) -> pd.DataFrame:
    """The fastest step of each size, the smallest size first."""
    return sorted_for_reading(rows.sort_values("ms").drop_duplicates("size"), ["size"])


def compared(evidence: Evidence, ours: Way, base: Way, stem: str = STEM) -> pd.DataFrame:
    """The steps of a way with their speed-ups over another one in the same cell, where both hold.

    Columns as of `gains.rows_over`, in reading order. Steps that cannot be compared are left out.
    """
    both = rows_over(evidence, stem, ours._asdict(), base._asdict())
    return both[both["holds"] & both["ratio"].notna()]


def beside(evidence: Evidence, ours: Way, base: Way) -> pd.DataFrame:
    """`compared` in the cells of `usual`."""
    pairs = compared(evidence, ours, base)
    return pairs[pairs.index.isin(usual(evidence).index)]


def of_steps(columns: Iterable[Quantity], italic: bool = False) -> list[Quantity]:
    """Columns of train steps, which leave it to the time to say why a step has no result.

    italic: whether they depend on the time, and are in italic where it is.
    """

    def in_step(cell: Cell) -> Cell:
        if cell.value is None:
            return Cell(EMPTY, state=NOT_RECORDED)
        return cell if italic else replace(cell, waits=False)

    return [
        replace(column.mapped(in_step), where={**column.where, "phase": STEP}) for column in columns
    ]
