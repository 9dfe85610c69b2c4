"""Rows of profiles, and the share of the time that each class of kernels takes."""

from __future__ import annotations

import pandas as pd

from lmperf.names import dtype_words, implementation_words, in_order
from lmperf.reporting import gates
from lmperf.reporting.evidence import MachineEvidence, having
from lmperf.reporting.findings import frame_of
from lmperf.reporting.kernel_classes import CLASSES, class_of
from lmperf.reporting.machine import newest

STEM = "profiles"
CELL = ["size", "context_length", "batch", "dtype", "implementation"]
CASE = [*CELL, "phase"]
SIZE = "large"
REST = "rest"
KERNELS, OPERATORS = "kernels", "operators"


def kernels(evidence: MachineEvidence) -> pd.DataFrame:
    """Every kernel that was recorded, with its ``kernel_class`` and ``share`` of its phase."""

    def make() -> pd.DataFrame:
        frame = frame_of(evidence, STEM)
        rows = having(frame[gates.shown(frame)], table="kernel")
        whole = rows.groupby(CASE)["total_ms"].transform("sum")
        found = {name: class_of(name) for name in set(rows["name"]) - {REST}}
        recorded = rows.get("kernel_class", pd.Series(None, rows.index, object))
        rows = rows.assign(share=rows["total_ms"] / whole, recorded=recorded)
        return rows.assign(kernel_class=rows["name"].map(found))

    return evidence.once((STEM, "kernels"), make)


def by_class(evidence: MachineEvidence) -> pd.DataFrame:
    """Time of kernels by class, in ms: one row a case (its ``CASE``, ``wall_ms``, ``total_ms``).

    Cases are in reading order.
    """

    def make() -> pd.DataFrame:
        rows = kernels(evidence)
        times = _rest_by_class(rows, having(frame_of(evidence, STEM), table="class"))
        wide = times.pivot_table(
            index=CASE, columns="kernel_class", values="total_ms", aggfunc="sum"
        )
        wide = wide.reindex(columns=list(CLASSES)).fillna(0.0)
        cases = rows.drop_duplicates(CASE)[[*CASE, "wall_ms"]]
        wide = cases.merge(wide.reset_index(), on=CASE)
        return wide.assign(total_ms=wide[list(CLASSES)].sum(axis=1))

    return evidence.once((STEM, "by class"), make)


def _rest_by_class(rows: pd.DataFrame, classes: pd.DataFrame) -> pd.DataFrame:
    """The kernels, with the row ``rest`` of older evidence divided among the classes.

    Such evidence names the twelve longest kernels of a phase, has one row for the rest, and a row
    for each class by the rule of its day. What a class holds beyond its named kernels is the rest.
    """
    named = rows[rows["name"] != REST]
    if classes.empty:
        return named
    index = [*CASE, "kernel_class"]
    then = named.assign(kernel_class=named["recorded"]).groupby(index)["total_ms"].sum()
    whole = classes.assign(kernel_class=classes["name"]).set_index(index)["total_ms"]
    left = whole.sub(then.reindex(whole.index).fillna(0.0)).clip(lower=0.0)
    return pd.concat([named, left.reset_index()], ignore_index=True)


def usual_size(frame: pd.DataFrame) -> str:
    """The size that stands for all: the usual one, or the middle one of those measured."""
    sizes = in_order("size", frame["size"])
    return SIZE if SIZE in sizes else sizes[len(sizes) // 2]


def kind_of(evidence: MachineEvidence) -> str:
    """What was timed: kernels of a device, or operators on a CPU."""
    return KERNELS if newest(evidence).get("kind") == "cuda" else OPERATORS


def where_words(row: pd.Series) -> str:
    """A case in words, without its phase: ``small, bf16 autocast, PyTorch``."""
    return (
        f"{row['size']}, {dtype_words(row['dtype'])}, {implementation_words(row['implementation'])}"
    )
