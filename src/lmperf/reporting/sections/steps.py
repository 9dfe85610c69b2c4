"""Train steps of the benchmark `end_to_end`: which there are, and how one compares with another."""

from __future__ import annotations

import pandas as pd

from lmperf.benchmarks import load
from lmperf.reporting.evidence import Evidence, having, once
from lmperf.reporting.gains import pairs
from lmperf.reporting.sections.ways import AUTOCAST, CELL, STEM, STEP, Way
from lmperf.statistics import FASTER, SLOWER, UNRESOLVED
from lmperf.transformer.rungs import FLOAT8, RUNGS

NARROW = "bfloat16"
# Two GPUs of one kind differ by less than this at the power limit (R1: 6.1 %).
BETWEEN_GPUS = 0.08
GRAPH, GRAPH_NARROW = Way("graph", AUTOCAST), Way("graph", NARROW)
FUSED, FUSED_NARROW = Way("fused_blocks", AUTOCAST), Way("fused_blocks", NARROW)
SDPA, SDPA_GRAPH = Way("sdpa_compiled_blocks", AUTOCAST), Way("sdpa_graph", AUTOCAST)
WAYS = {rung.name: Way(rung.implementation, rung.dtype) for rung in (*RUNGS, *FLOAT8)}
_RUNGS = {way: name for name, way in WAYS.items()}


@once
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


@once
def steps(evidence: Evidence) -> pd.DataFrame:
    """The train steps of this project's ways to run a model; see `all_steps`."""
    rows = all_steps(evidence)
    ours = [one.name for one in load(STEM).implementations if one.origin == "project"]
    rows = having(rows, implementation=ours)
    return rows.assign(words=rows["words"].mask(rows["state"] == "oom", "OOM"))


@once
def usual(evidence: Evidence) -> pd.DataFrame:
    """The steps of one context and batch for each size: of those with most results, the smallest.

    On a GPU it is the cell of the ladder.
    """
    rows = steps(evidence)
    counts = rows["state"].isna().groupby([rows[name] for name in CELL]).sum()
    most = counts.sort_values(ascending=False, kind="stable").groupby("size").head(1)
    return rows[pd.MultiIndex.from_frame(rows[CELL]).isin(most.index)]


def compared(evidence: Evidence, ours: Way, base: Way) -> pd.DataFrame:
    """The steps of a way that have a result, beside those of another one in the same cell.

    Columns as of `gains.pairs`. Steps of two GPUs of one kind are compared, too: they are resolved
    if their ratio exceeds how far such GPUs differ.
    """
    both = pairs(evidence, STEM, ours.axes, base.axes)
    both = both[both.index.isin(steps(evidence).index)]
    both = both[both["state"].isna() & both["state_base"].isna()]
    ratio = both["ms_base"] / both["ms"]
    apart = pd.Series(UNRESOLVED, both.index, dtype=object)
    apart[ratio > 1 + BETWEEN_GPUS] = FASTER
    apart[ratio < 1 / (1 + BETWEEN_GPUS)] = SLOWER
    apart[both["waits"] | ~both["holds"]] = UNRESOLVED
    one_gpu = both["ratio"].notna()
    return both.assign(
        ratio=both["ratio"].where(one_gpu, ratio), verdict=both["verdict"].where(one_gpu, apart)
    )
