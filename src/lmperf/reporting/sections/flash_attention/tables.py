"""F1: our kernel against plain attention; F2: against PyTorch's own; F3: filled; F4: gates."""

from __future__ import annotations

from collections.abc import Iterable

import pandas as pd

from lmperf.reporting.evidence import MachineEvidence, in_order
from lmperf.reporting.numbers import implementation_words, phase_words
from lmperf.reporting.sections.flash_attention.filled import filled_tables
from lmperf.reporting.sections.flash_attention.gate import check_table, gate_table
from lmperf.reporting.sections.flash_attention.kinds import graphed, numerics_words, single
from lmperf.reporting.sections.flash_attention.peers import peers_table
from lmperf.reporting.speedup import (
    Speedups,
    compared,
    comparison_name,
    interval_words,
)
from lmperf.reporting.tables import joined, markdown, reasons, shared_axes, timing_cells

CELL = ["seq_len", "d_head", "batch", "heads", "causal"]
HEADERS = {"seq_len": "sequence length"}
KERNELS = ("triton", "tiled")
REFERENCE = "eager"


def kernel_of(frame: pd.DataFrame) -> str:
    """The implementation of this project: ``triton``, or ``tiled`` on a machine without a GPU."""
    names = set(frame["implementation"])
    return next((name for name in KERNELS if name in names), KERNELS[0])


def tables(evidence: MachineEvidence) -> dict[str, str]:
    """``f1`` to ``f4``, ``graphs`` (F2 as CUDA graphs), ``peers``, ``check``, ``reasons``."""
    frame = evidence.frame("flash_attention")
    check = {"check": check_table(evidence)}
    if frame is None:
        return {
            "f1": "",
            "f2": "",
            "graphs": "",
            "f3": "",
            "peers": "",
            "f4": "",
            "reasons": "",
            "kernel": "",
            **check,
        }
    kernel = kernel_of(frame)
    speed = {
        name: compared(evidence, "flash_attention", "implementation", name)
        for name in {REFERENCE, *frame["implementation"]}
    }
    groups = _groups(frame[single(frame)], kernel)
    graphs = _groups(frame[graphed(frame)], kernel)
    graphs = [(rows, f"{words}, replayed as a CUDA graph") for rows, words in graphs]
    return {
        "kernel": implementation_words(kernel),
        "f1": _each(
            _against_plain(rows, kernel, words, speed[REFERENCE]) for rows, words in groups
        ),
        "f2": _each(_against_peers(rows, kernel, words, speed) for rows, words in groups),
        "graphs": _each(_against_peers(rows, kernel, words, speed) for rows, words in graphs),
        "f3": filled_tables(evidence, frame),
        "peers": peers_table(evidence),
        "f4": _each(gate_table(rows, kernel, words) for rows, words in _groups(frame, kernel)),
        "reasons": reasons(frame),
        **check,
    }


def _groups(frame: pd.DataFrame, kernel: str) -> list[tuple[pd.DataFrame, str]]:
    """Rows by dtype and mask, each with its words."""
    pairs = frame[["dtype", "causal"]].drop_duplicates()
    return [
        (
            frame[(frame["dtype"] == dtype) & (frame["causal"] == causal)],
            f"{numerics_words(dtype, kernel)}, {'causal' if causal else 'full'}",
        )
        for dtype in in_order("dtype", pairs["dtype"])
        for causal in sorted(pairs.loc[pairs["dtype"] == dtype, "causal"].unique(), reverse=True)
    ]


def _each(texts: Iterable[str]) -> str:
    return "\n\n".join(text for text in texts if text)


def _against_plain(frame: pd.DataFrame, kernel: str, words: str, speed: Speedups) -> str:
    constant, rows = shared_axes(frame, [name for name in CELL if name != "causal"])
    times = timing_cells(frame)
    frame = frame[frame["implementation"].isin([REFERENCE, kernel])]
    table = frame[rows].drop_duplicates()
    for phase in in_order("phase", frame["phase"]):
        for name in (REFERENCE, kernel):
            chosen = (frame["phase"] == phase) & (frame["implementation"] == name)
            header = f"{phase_words(phase)}, {implementation_words(name)} (ms)"
            table = joined(table, _column(frame[chosen], rows, times, header), rows)
        header = f"speed-up, {phase_words(phase)}"
        table = joined(table, _column(frame[chosen], rows, speed.words, header), rows)
    name = comparison_name("implementation", kernel, REFERENCE)
    interval = interval_words(speed.within(frame))
    brackets = f" In brackets: {interval}." if interval else ""
    caption = f"Table F1: {name}, {words}{constant}. Mean ± std.{brackets}"
    return markdown(table.rename(columns=HEADERS), caption)


def _column(frame: pd.DataFrame, rows: list[str], cells: pd.Series, header: str) -> pd.DataFrame:
    table = frame[rows].assign(**{header: cells.loc[frame.index]})
    return table.drop_duplicates(rows, keep="last")


def _against_peers(frame: pd.DataFrame, kernel: str, words: str, speed: dict[str, Speedups]) -> str:
    frame = frame[frame["implementation"] != REFERENCE]
    there = frame[frame["status"] != "unsupported"]
    peers = [n for n in in_order("implementation", there["implementation"]) if n != kernel]
    if not peers:
        return ""
    phases = in_order("phase", frame["phase"])
    return _each(
        _peer_table(frame[frame["phase"] == p], kernel, peers, f"{phase_words(p)}, {words}", speed)
        for p in phases
    )


def _peer_table(
    frame: pd.DataFrame, kernel: str, peers: list[str], words: str, speed: dict[str, Speedups]
) -> str:
    constant, rows = shared_axes(frame, [name for name in CELL if name != "causal"])
    times, ours = timing_cells(frame), frame["implementation"] == kernel
    header = f"{implementation_words(kernel)} (ms)"
    table = frame[rows].drop_duplicates()
    table = joined(table, _column(frame[ours], rows, times, header), rows)
    for peer in peers:
        theirs = frame["implementation"] == peer
        header = f"{implementation_words(peer)} (ms)"
        table = joined(table, _column(frame[theirs], rows, times, header), rows)
        header = comparison_name("implementation", kernel, peer)
        table = joined(table, _column(frame[ours], rows, speed[peer].words, header), rows)
    caption = f"Table F2: {words}{constant}. Mean ± std and speed-ups"
    return markdown(table.rename(columns=HEADERS), caption)
