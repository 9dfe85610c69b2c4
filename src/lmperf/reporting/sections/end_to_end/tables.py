"""E1 by dtype, and the speed-ups of compiling (E3) and of the numerics (E4) in every phase."""

from __future__ import annotations

import pandas as pd

from lmperf.reporting.ceilings import SAME_NUMERICS, matmul_ceiling, matmul_share
from lmperf.reporting.evidence import MachineEvidence, in_order
from lmperf.reporting.numbers import dtype_words, phase_words, rounded, significant
from lmperf.reporting.sections.comparisons import Comparison
from lmperf.reporting.sections.end_to_end.beside import compiling_tables, numerics_tables
from lmperf.reporting.sections.generic import with_words
from lmperf.reporting.tables import (
    joined,
    markdown,
    reasons,
    shared_axes,
    timing_cells,
    value_cells,
    wide,
)

CELL = ["size", "context_length", "batch"]
HEADERS = {"context_length": "context (tokens)"}


def tables(evidence: MachineEvidence) -> dict[str, str]:
    """``sizes``, ``e1`` per dtype, ``e3`` and ``e4`` with their speed-ups by phase, ``reasons``."""
    frame = evidence.frame("end_to_end")
    dtypes = in_order("dtype", frame["dtype"])
    each = [_dtype_table(evidence, frame[frame["dtype"] == dtype], dtype) for dtype in dtypes]
    return {
        "sizes": _sizes(frame),
        "e1": "\n\n".join(each),
        "e3": compiling_tables(evidence),
        "compiling": _speedups(evidence, "implementation", "eager", "Speed-ups by phase"),
        "e4": numerics_tables(evidence),
        "numerics": _speedups(evidence, "dtype", "float32", "Ratios of the numerics by phase"),
        "reasons": reasons(frame),
    }


def _sizes(frame: pd.DataFrame) -> str:
    counts = frame.groupby("size")["parameters"].max()
    if counts.isna().all():
        return ""
    sizes = in_order("size", frame["size"])
    table = pd.DataFrame(
        {"size": sizes, "parameters (M)": [significant(counts[s] / 1e6, 4) for s in sizes]}
    )
    return markdown(table, "The models, with their parameters counted")


def _speedups(evidence: MachineEvidence, column: str, reference: str, name: str) -> str:
    return Comparison(evidence, "end_to_end", column, reference, CELL, name, HEADERS).tables()


def _dtype_table(evidence: MachineEvidence, frame: pd.DataFrame, dtype: str) -> str:
    constant, varying = shared_axes(frame, CELL)
    rows = [*varying, "implementation"]
    phases = in_order("phase", frame["phase"])
    table = wide(frame, timing_cells(frame), rows, "phase")
    last = frame[frame["phase"] == phases[-1]]
    table = joined(table, _throughput(evidence, last, rows), rows)
    headers = {phase: f"{phase_words(phase)} (ms)" for phase in phases}
    caption = (
        f"Table E1: {dtype_words(dtype)}{constant}. Mean ± standard deviation;"
        f" tokens/s, MFU and peak of the {phase_words(phases[-1])};"
        f" {_ceiling_words(evidence, dtype)}"
    )
    return markdown(with_words(table).rename(columns={**headers, **HEADERS}), caption)


def _throughput(evidence: MachineEvidence, frame: pd.DataFrame, rows: list[str]) -> pd.DataFrame:
    tokens = frame["tokens"] / frame["median_ms"] * 1e3
    table = frame[rows].assign(
        **{
            "tokens/s": value_cells(frame, tokens, rounded),
            "MFU (%)": value_cells(frame, 100 * matmul_share(evidence, frame)),
            "peak memory (MiB)": value_cells(frame, frame["peak_mib"]),
        }
    )
    if frame["compile_s"].notna().any():
        table["first calls (s)"] = value_cells(frame, frame["compile_s"])
    return table.drop_duplicates(rows, keep="last")


def _ceiling_words(evidence: MachineEvidence, dtype: str) -> str:
    ceiling = matmul_ceiling(evidence, dtype)
    numerics = dtype_words(SAME_NUMERICS.get(dtype, dtype))
    if ceiling is None:
        return f"no MFU, because the matmul ceiling in {numerics} was not measured here."
    return (
        f"MFU against this machine's own matmul ceiling in {numerics},"
        f" {significant(ceiling)} TFLOP/s."
    )
