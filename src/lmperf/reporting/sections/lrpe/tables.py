"""L1: times, rates and the share of a copy's bandwidth; L2: peak memory beside its prediction."""

from __future__ import annotations

from collections.abc import Iterable

import pandas as pd

from lmperf.reporting.evidence import MachineEvidence, in_order
from lmperf.reporting.numbers import (
    EMPTY,
    dtype_words,
    implementation_words,
    percent,
    phase_words,
    signed_percent,
    significant,
)
from lmperf.reporting.sections.lrpe.gate import check_table, gate_table
from lmperf.reporting.sections.lrpe.shapes import COPY, KERNELS, STEM, by_shape
from lmperf.reporting.speedup import Speedups, compared, comparison_name, interval_words
from lmperf.reporting.tables import (
    joined,
    markdown,
    reasons,
    shared_axes,
    status_words,
    timing_cells,
    value_cells,
)

CELL = ["shape", "batch", "heads", "d_head"]
PEERS = ("compiled", "eager")


def tables(evidence: MachineEvidence) -> dict[str, str]:
    """``l1`` and ``l2`` per phase, dtype and extra tokens, ``gates``, ``check``, ``reasons``."""
    check = {"check": check_table(evidence)}
    frame = evidence.frame(STEM)
    if frame is None:
        return {"l1": "", "l2": "", "gates": "", "reasons": "", **check}
    frame = by_shape(frame)
    groups = _groups(frame)
    return {
        "l1": _each(_speed(evidence, rows, words) for rows, words in groups),
        "l2": _each(_memory(rows, words) for rows, words in groups),
        "gates": gate_table(frame, "Table L1, gates: the largest errors over all cells"),
        "reasons": reasons(frame),
        **check,
    }


def _groups(frame: pd.DataFrame) -> list[tuple[pd.DataFrame, str]]:
    """Rows by phase, dtype and extra tokens, each with its words."""
    keys = ["phase", "dtype", "extra_tokens"]
    found = []
    for phase in in_order("phase", frame["phase"]):
        for dtype in in_order("dtype", frame["dtype"]):
            for extra in in_order("extra_tokens", frame["extra_tokens"]):
                rows = frame[(frame[keys] == [phase, dtype, extra]).all(axis=1)]
                words = f"{phase_words(phase)}, {dtype_words(dtype)}, {extra:g} extra tokens"
                found.append((rows, words))
    return [(rows, words) for rows, words in found if len(rows)]


def _each(texts: Iterable[str]) -> str:
    return "\n\n".join(text for text in texts if text)


def _speed(evidence: MachineEvidence, frame: pd.DataFrame, words: str) -> str:
    """One line a shape: ms and rate of the copy, then ms and share of it of each implementation."""
    constant, rows = shared_axes(frame, CELL)
    against = compared(evidence, STEM, "implementation", COPY)
    times, rates = timing_cells(frame), frame["bytes"] / frame["median_ms"] / 1e6
    gbps = value_cells(frame, rates)
    table = frame[rows].drop_duplicates()
    names = in_order("implementation", frame["implementation"])
    for name in sorted(names, key=lambda name: (name != COPY, name not in KERNELS)):
        own, label = frame[frame["implementation"] == name], implementation_words(name)
        table = joined(table, _column(own, rows, f"{label} (ms)", times), rows)
        if name in (COPY, KERNELS[0]):
            table = joined(table, _column(own, rows, f"{label} (GB/s)", gbps), rows)
        if name != COPY:
            shares = _shares(against, own)
            table = joined(table, _column(own, rows, f"{label} (% of copy)", shares), rows)
    table = _with_speedups(evidence, table, frame, rows)
    interval = interval_words(against.within(frame))
    brackets = f" In brackets: {interval}." if interval else ""
    return markdown(table, f"Table L1: {words}{constant}. Mean ± std.{brackets}")


def _column(frame: pd.DataFrame, rows: list[str], header: str, cells: pd.Series) -> pd.DataFrame:
    table = frame[rows].assign(**{header: cells.loc[frame.index]})
    return table.drop_duplicates(rows, keep="last")


def _shares(against: Speedups, frame: pd.DataFrame) -> pd.Series:
    """Bandwidth as a share of the copy's, by the ratios of the rounds, with their interval."""
    cells = pd.Series(EMPTY, index=frame.index, dtype=object)
    ratios = against.within(frame)[["ratio", "low", "high"]]
    for row, ratio, low, high in ratios.itertuples():
        cells[row] = f"{percent(ratio)} ({100 * low:.1f}–{100 * high:.1f})"
    return cells


def _with_speedups(
    evidence: MachineEvidence, table: pd.DataFrame, frame: pd.DataFrame, rows: list[str]
) -> pd.DataFrame:
    """The speed-ups of our kernel over PyTorch's versions."""
    kernel, present = KERNELS[0], set(frame["implementation"])
    own = frame[frame["implementation"] == kernel]
    for peer in PEERS if kernel in present else ():
        if peer in present:
            speed = compared(evidence, STEM, "implementation", peer).words
            header = comparison_name("implementation", kernel, peer)
            table = joined(table, _column(own, rows, header, speed), rows)
    return table


def predicted(frame: pd.DataFrame) -> pd.Series:
    """The predicted peak of each row, in MiB: that of its phase."""
    forward = frame["phase"] == "forward"
    return frame["predicted_forward_mib"].where(forward, frame["predicted_backward_mib"])


def _memory(frame: pd.DataFrame, words: str) -> str:
    frame = frame[predicted(frame).notna()]
    if frame["peak_mib"].isna().all():
        return ""
    constant, rows = shared_axes(frame, CELL)
    table = frame[rows].drop_duplicates()
    names = in_order("implementation", frame["implementation"])
    for name in sorted(names, key=lambda name: name not in KERNELS):
        own = frame[frame["implementation"] == name]
        table = joined(table, _peaks(own, rows, implementation_words(name)), rows)
    return markdown(table, f"Table L2: peak memory, {words}{constant}")


def _peaks(frame: pd.DataFrame, rows: list[str], label: str) -> pd.DataFrame:
    expected, states = predicted(frame), status_words(frame)
    measured = value_cells(frame, frame["peak_mib"])
    measured = measured.where(measured != EMPTY, states.where(states != "ok", EMPTY))
    table = frame[rows].assign(
        **{
            f"{label}, measured (MiB)": measured,
            f"{label}, predicted (MiB)": [significant(v) for v in expected],
            f"{label}, difference": value_cells(
                frame, frame["peak_mib"] / expected - 1, signed_percent
            ),
        }
    )
    return table.drop_duplicates(rows, keep="last")
