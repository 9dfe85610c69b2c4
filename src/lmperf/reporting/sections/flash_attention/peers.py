"""Geometric means of the speed-ups over each peer, by kind of work."""

from __future__ import annotations

import numpy as np
import pandas as pd

from lmperf.names import implementation_words, in_order, phase_words
from lmperf.reporting.evidence import MachineEvidence, having
from lmperf.reporting.numbers import EMPTY, ratio
from lmperf.reporting.sections.flash_attention import kinds
from lmperf.reporting.tables import Lines

# Below it, launches and the part of a device that one head leaves idle set the time of one head.
LONG = 2048
NOTE = (
    "Geometric mean over cells (the least to the most) of the speed-ups, each the median of the"
    " ratios of rounds; below one the other is faster."
)


def geometric_mean(ratios: pd.Series) -> float:
    """The mean that does not depend on which of the two is the base."""
    return float(np.exp(np.log(ratios).mean()))


def summary_tables(evidence: MachineEvidence, frame: pd.DataFrame) -> list[Lines]:
    """A table a dtype: a line for each kind of work and phase, a column for each peer."""
    return [
        table for dtype in in_order("dtype", frame["dtype"]) if (table := _table(evidence, dtype))
    ]


def _table(evidence: MachineEvidence, dtype: str) -> Lines | None:
    frame = having(evidence.frame(kinds.STEM), dtype=dtype)
    peers = kinds.peers_of(frame)
    found = {peer: having(kinds.over(evidence, peer), dtype=dtype) for peer in peers}
    backends = [rows for peer, rows in found.items() if peer.startswith("sdpa_")]
    columns = {f"over {implementation_words(peer)}": rows for peer, rows in found.items()}
    if len(backends) > 1:
        # Over the fastest of a cell our kernel has its least speed-up.
        every = pd.concat(backends).sort_values("ratio", kind="stable")
        columns["over the fastest SDPA backend"] = every[~every.index.duplicated()]
    lines = []
    for work, rows in _works(frame).items():
        for phase in kinds.PHASES:
            own = having(rows, phase=phase).index
            chosen = {name: r["ratio"][r.index.isin(own)] for name, r in columns.items()}
            cells = {name: _mean(ratios) for name, ratios in chosen.items() if len(ratios)}
            if cells:
                n = max(map(len, chosen.values()))
                lines.append({"work": work, "phase": phase_words(phase), "cells": n, **cells})
    kernel = kinds.kernel_of(evidence.frame(kinds.STEM))
    words = f"{implementation_words(kernel)} over each, {kinds.numerics_words(dtype, kernel)}"
    table = pd.DataFrame(lines).fillna(EMPTY)
    return Lines(kinds.sentence_case(words), table, NOTE) if lines else None


def _works(frame: pd.DataFrame) -> dict[str, pd.DataFrame]:
    """Kind of work -> its rows: the grid whole and by width, one head short, long and graphed."""
    grid, head = frame[kinds.filled(frame)], frame[kinds.single(frame)]
    widths = in_order("d_head", grid["d_head"])
    return {
        "filled grid": grid,
        **{f"filled grid, d_head {d}": having(grid, d_head=d) for d in widths if len(widths) > 1},
        f"one head, from length {LONG} on": head[head["seq_len"] >= LONG],
        f"one head, below length {LONG}": head[head["seq_len"] < LONG],
        "one head, as a CUDA graph": frame[kinds.graphed(frame)],
    }


def _mean(ratios: pd.Series) -> str:
    low, high = (ratio(value).removesuffix("x") for value in (ratios.min(), ratios.max()))
    return f"{ratio(geometric_mean(ratios))} ({low}-{high})"
