"""Data frames of the profiles: kernels with their classes, and time per class in every case."""

from __future__ import annotations

import pandas as pd

from lmperf.names import dtype_words, in_order
from lmperf.reporting import gates
from lmperf.reporting.evidence import MachineEvidence, having
from lmperf.reporting.findings import all_rows
from lmperf.reporting.foreign import plain
from lmperf.reporting.machine import newest
from lmperf.reporting.numbers import Spread, percent, ranged
from lmperf.reporting.sections.profiles.kernel_classes import CLASSES, MATMUL, class_of

STEM, TIMED = "profiles", "end_to_end"
CELL = ["size", "context_length", "batch", "dtype", "implementation"]
CASE = [*CELL, "phase"]
SIZE, PHASES = "large", ("forward", "backward", "train_step")
LEAST_SHARE = 0.0005
# The wall time of a profile and the single calls of `end_to_end` may differ by this much. A device
# that is idle for no more than this does not wait for the host.
APART = 0.1
KERNEL, OPERATOR = "kernel", "operator"


def of_table(evidence: MachineEvidence, table: str) -> pd.DataFrame:
    """The valid profile rows (``gates.shown``) of one table, as ``kernel`` or ``attention``."""
    frame = all_rows(evidence, STEM)
    return having(frame[gates.shown(frame)], table=table)


def kernels(evidence: MachineEvidence) -> pd.DataFrame:
    """A row per kernel and case: ``kernel_class``, and ``share`` of the case's kernel time."""

    def make() -> pd.DataFrame:
        rows = of_table(evidence, "kernel")
        whole = rows.groupby(CASE)["total_ms"].transform("sum")
        classes = {name: class_of(plain(name)) for name in rows["name"].unique()}
        return rows.assign(share=rows["total_ms"] / whole, kernel_class=rows["name"].map(classes))

    return evidence.once((STEM, "kernels"), make)


def by_class(evidence: MachineEvidence) -> pd.DataFrame:
    """A row per case: kernel time of each class in ms, with totals.

    Further columns: ``total_ms``, ``wall_ms``, ``launches`` (kernels that ran) and ``idle``, the
    fraction of the wall time in which no kernel ran. Where ``withheld``, ``wall_ms`` and ``idle``
    are NaN, since they may be those of a slow host (see ``_confirmed``). A case is ``stale`` if one
    of its rows is.
    """

    def make() -> pd.DataFrame:
        rows = kernels(evidence)
        times = {name: rows["total_ms"].where(rows["kernel_class"] == name, 0) for name in CLASSES}
        rows = rows[[*CASE, "wall_ms", "total_ms"]].assign(
            launches=rows["instances"], stale=rows.get("stale", False), **times
        )
        rows = rows.groupby([*CASE, "wall_ms"], sort=False, as_index=False, dropna=False).sum()
        rows = rows.assign(idle=(1 - rows["total_ms"] / rows["wall_ms"]).clip(lower=0))
        withheld = ~_confirmed(evidence, rows)
        shown = {name: rows[name].mask(withheld) for name in ("wall_ms", "idle")}
        return rows.assign(withheld=withheld, stale=rows["stale"] > 0, **shown)

    return evidence.once((STEM, "by class"), make)


def _confirmed(evidence: MachineEvidence, cases: pd.DataFrame) -> pd.Series:
    """Whether the wall time of each case is within ``APART`` of the case in `end_to_end`.

    A case that `end_to_end` did not time counts as confirmed only if its kernels fill the wall
    time: the speed of the host does not matter then.
    """
    filled, timed = cases["idle"] <= APART, evidence.frame(TIMED)
    if timed is None:
        return filled
    timed = timed[gates.shown(timed)].drop_duplicates(CASE).set_index(CASE)["median_ms"]
    single = timed.reindex(pd.MultiIndex.from_frame(cases[CASE])).set_axis(cases.index)
    near = (cases["wall_ms"] / single - 1).abs() <= APART
    return near.where(single.notna(), filled)


def usual(evidence: MachineEvidence) -> pd.DataFrame:
    """The rows of ``by_class`` that the head table and the figure show.

    One size, its longest context and largest batch; phases forward, backward and train step.
    """
    cases = by_class(evidence)
    cases = having(cases, size=usual_size(cases), phase=PHASES)
    for name in ("context_length", "batch"):
        cases = having(cases, **{name: cases[name].max()})
    return cases


def usual_size(frame: pd.DataFrame) -> str | None:
    """The model size that the write-up shows: ``SIZE`` if measured, else the middle one."""
    sizes = in_order("size", frame["size"])
    return SIZE if SIZE in sizes or not sizes else sizes[len(sizes) // 2]


def classes_of(cases: pd.DataFrame) -> list[str]:
    """The kernel classes that take more than ``LEAST_SHARE`` of the time of at least one case."""
    return [name for name in CLASSES if (cases[name] > LEAST_SHARE * cases["total_ms"]).any()]


def matmul_shares(cases: pd.DataFrame) -> list[str]:
    """Share of matmuls in the kernel time for each dtype, in words: ``83.6 % in float32``."""
    shares = cases[MATMUL] / cases["total_ms"]
    by_dtype = shares.groupby(cases["dtype"])
    found = [(Spread.of(values), dtype_words(name)) for name, values in by_dtype]
    ascending = sorted(found, key=lambda pair: pair[0].low)
    return [f"{ranged(share, percent)} in {words}" for share, words in ascending]


def kind_of(evidence: MachineEvidence) -> str:
    """What the profiler timed: ``kernel`` on a GPU, ``operator`` on a CPU."""
    return KERNEL if newest(evidence).get("kind") == "cuda" else OPERATOR


def cell_words(row: pd.Series) -> str:
    """The size, dtype and context of a row in words."""
    return f"{row['size']}, {dtype_words(row['dtype'])}, context {row['context_length']}"
