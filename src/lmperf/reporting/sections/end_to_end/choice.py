"""Choose the recipe to run: the fastest way of a train step for each model size.

A recipe is a way (implementation and dtype) to run the step. The recipes of a size are compared
in one cell: that of the ladder if the size has one. One recipe beats another if its time is shorter
and the speed-up has the verdict "faster". Chosen is the fastest recipe, or a simpler one that it
does not beat and that is as fast within ``CLOSE``. Rows on which no finding may rest take no part.
If such a row is the fastest of its size, the size is left out: any other recipe would be slower.
Recipes are compared on one GPU only (`_of_one_device`); those of another GPU take no part.
"""

from __future__ import annotations

from typing import Any

import pandas as pd

from lmperf.dtypes import dtype_of
from lmperf.names import in_order
from lmperf.reporting import gates
from lmperf.reporting.comparable import devices, on_other_devices
from lmperf.reporting.custom import another_model
from lmperf.reporting.evidence import MachineEvidence, having
from lmperf.reporting.findings import measured, sound
from lmperf.reporting.sections.end_to_end import ladder, ways
from lmperf.reporting.sections.end_to_end.ways import BASE, STEM, STEP, Way
from lmperf.reporting.speedup import speedups
from lmperf.statistics import FASTER
from lmperf.transformer.rungs import RUNGS

# Implementations from the simplest to run to the most elaborate one; others follow.
SIMPLEST = (
    *("eager", "compiled", "compiled_blocks"),
    *("sdpa", "sdpa_compiled", "sdpa_compiled_blocks"),
    *("triton", "triton_compiled", "triton_compiled_blocks"),
    *("fused_loss", "fused_blocks", "graph"),
)
# A simpler recipe is preferred if its time is longer by at most this fraction.
CLOSE = 0.02


def steps(evidence: MachineEvidence) -> pd.DataFrame:
    """The train steps that the tables on recipes compare: one context and batch for each size.

    They are those of the ladder (its smallest batch), else ``ways.usual_steps``. Columns of
    ``ways.with_rates`` are added. Raises NotMeasured without evidence.
    """
    return evidence.once((STEM, "recipes"), lambda: _steps(evidence))


def _steps(evidence: MachineEvidence) -> pd.DataFrame:
    usual = ways.usual_steps(evidence)
    frame = having(evidence.frame(STEM), phase=STEP)
    frame = frame[~another_model(frame)]
    of_ladder = ladder.rungs(frame)
    parts = []
    for size in in_order("size", frame["size"]):
        rungs = having(of_ladder, size=size)
        if rungs.empty:
            parts.append(having(usual, size=size))
        else:
            context, batch = min(zip(rungs["context_length"], rungs["batch"], strict=True))
            parts.append(having(frame, size=size, context_length=context, batch=batch))
    return ways.with_rates(evidence, measured(pd.concat(parts)))


def fastest(evidence: MachineEvidence, any_weights: bool = False) -> pd.DataFrame:
    """The row of the recipe to run for each size, from ``steps``; sizes without one are left out.

    So are sizes at which a marked step is faster. Column ``tied``: whether a simpler recipe is
    slower by more than ``CLOSE``, yet not beaten.

    any_weights: whether recipes with bf16 weights take part.
    """
    every = steps(evidence)
    if not any_weights:
        every = every[has_float32_weights(every)]
    frame = every[is_sound(evidence, every)]
    parts = [having(frame, size=size) for size in in_order("size", frame["size"])]
    found = dict(_choose(evidence, rows) for rows in parts)
    best = frame.loc[list(found)].assign(tied=list(found.values()))
    return best[[_faster_marked(evidence, every, row).empty for _, row in best.iterrows()]]


def is_sound(evidence: MachineEvidence, rows: pd.DataFrame) -> pd.Series:
    """Whether a finding may rest on each row."""
    return rows.index.to_series().isin(sound(evidence, STEM).index)


def _faster_marked(evidence: MachineEvidence, every: pd.DataFrame, row: pd.Series) -> pd.DataFrame:
    """The steps of a row's size that are marked, and faster than the row by more than ``CLOSE``."""
    rows = having(every, size=row["size"])
    rows = rows[gates.shown(rows) & ~is_sound(evidence, rows)]
    return rows[rows["step_ms"] < (1 - CLOSE) * row["step_ms"]]


def elsewhere(evidence: MachineEvidence, rows: pd.DataFrame, chosen: pd.DataFrame) -> pd.Series:
    """Whether each row was measured on another GPU than the row of ``chosen`` for its size.

    False where ``chosen`` has no row of the size.
    """
    both = [frame.assign(device=devices(evidence, STEM)) for frame in (rows, chosen)]
    ours, theirs = both[0][both[0]["size"].isin(chosen["size"])], both[1].set_index("size")
    apart = on_other_devices(ours, theirs.loc[ours["size"]])
    return pd.Series(apart, ours.index).reindex(rows.index, fill_value=False)


def has_float32_weights(frame: pd.DataFrame) -> pd.Series:
    """Whether the step of each row stores its weights in float32."""
    return frame["dtype"].map(lambda dtype: dtype_of(dtype).storage == "float32").astype(bool)


def _choose(evidence: MachineEvidence, rows: pd.DataFrame) -> tuple[Any, bool]:
    """The label of the recipe to run, and whether a simpler one that is slower is not beaten.

    Sustained times are compared if a row has one, else medians of burst times. Where eager float32
    was timed, only recipes that beat it are compared with it.
    """
    if not rows["burst"].all():
        rows = _of_one_device(evidence, rows[~rows["burst"]])
    base = BASE.rows(rows)
    if len(base):
        row = base.iloc[0]
        rows = rows[[i == row.name or beats(evidence, rows.loc[i], row) for i in rows.index]]
    ms = rows["step_ms"]
    best = ms.idxmin()
    simpler = sorted(
        (i for i in rows.index if _effort(rows.loc[i]) < _effort(rows.loc[best])),
        key=lambda i: _effort(rows.loc[i]),
    )
    open_ = [i for i in simpler if not beats(evidence, rows.loc[best], rows.loc[i])]
    close = [i for i in open_ if ms[i] <= (1 + CLOSE) * ms[best]]
    return (close[0], False) if close else (best, bool(open_))


def _of_one_device(evidence: MachineEvidence, rows: pd.DataFrame) -> pd.DataFrame:
    """The rows of the GPU that timed eager float32, else of that with the shortest step.

    A GPU that timed eager float32 alone does not count.
    """
    device = devices(evidence, STEM)[rows.index]
    base, fastest_row = BASE.rows(rows).index, rows["step_ms"].idxmin()
    if len(base) and (device == device[base[0]]).sum() > 1:
        return rows[device == device[base[0]]]
    return rows[device == device[fastest_row]]


def _effort(row: pd.Series) -> tuple[int, int]:
    """The place of a recipe among all recipes, the simplest first; unknown ones last."""
    dtype, name = row["dtype"], row["implementation"]
    places = (_numerics(), dtype), (SIMPLEST, name)
    first, second = (known.index(one) if one in known else len(known) for known, one in places)
    return first, second


def _numerics() -> list[str]:
    return list(dict.fromkeys(rung.dtype for rung in RUNGS))


def beats(evidence: MachineEvidence, other: pd.Series, row: pd.Series) -> bool:
    """Whether the recipe of the row ``other`` is faster than that of ``row``."""
    found = speedups(evidence, STEM, way_of(other).series, way_of(row).series)
    if other.name not in found.index:
        return False
    return found.at[other.name, "holds"] and found.at[other.name, "verdict"] == FASTER


def way_of(row: pd.Series) -> Way:
    """The way (implementation and dtype) of a row."""
    return Way(row["implementation"], row["dtype"])
