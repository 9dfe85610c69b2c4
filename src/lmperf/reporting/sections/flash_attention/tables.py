"""The table of the write-up; F1: one head; F2: backends; F3: a filled device."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

import pandas as pd

from lmperf.names import dtype_words, implementation_words, in_order, phase_words
from lmperf.reporting import gates
from lmperf.reporting.ceilings import achieved_tflops, matmul_ceiling, matmul_share
from lmperf.reporting.evidence import MachineEvidence, having
from lmperf.reporting.numbers import EMPTY, Spread, absent, percent, ranged, ratio, significant
from lmperf.reporting.sections.flash_attention import kinds
from lmperf.reporting.sections.flash_attention.errors import check_tables, error_tables
from lmperf.reporting.side_by_side import Beside, each, side_by_side
from lmperf.reporting.speedup import Series, speedup_cells
from lmperf.reporting.tables import (
    KERNELS,
    Lines,
    Owed,
    Table,
    kernel_times,
    medians,
    status_words,
)

# Below it, launches and the part of a device that one head leaves idle set the time of one head.
LONG = 2048
GRID_CELL = ["d_head", "mask", "seq_len", "batch", "heads"]
FLOPS = (
    "FLOPs: 4 · batch · heads · length² · d_head forward, half of it where causal; 2.5 times that"
    " backward."
)
SPEEDUPS = "Speed-ups: median of the ratios of rounds; above one, ours is faster"
HALVES = (
    "float32*: Triton forms float32 products from float16 halves, PyTorch computes IEEE float32."
)
MEANS = (
    "Geometric mean over cells (the least to the most) of the speed-ups, each the median of the"
    " ratios of rounds; below one the other is faster."
)


def head(evidence: MachineEvidence) -> Lines | None:
    """At most twelve lines: rates of our kernel, or its times, and speed-ups over its peers."""
    frame = evidence.frame(kinds.STEM)
    if frame is None:
        return None
    work, rows = kinds.main(kinds.with_mask(having(frame, phase=kinds.PHASES)))
    on_grid = kinds.filled(rows).any()
    rows = rows if on_grid else kinds.usual_width(rows)
    bases = kinds.rivals(rows) if on_grid else [kinds.PLAIN, *kinds.rivals(rows)]
    caption = f"{kinds.kernel_words(frame)}, {kinds.numerics(rows)}, {work}"
    if on_grid:
        caption, cell = caption + _products(rows), GRID_CELL[:3]
        note = f"{_of_ceiling(evidence, rows)} {FLOPS} {SPEEDUPS} (intervals: F3)."
        columns = _columns(evidence, rows, bases, "TFLOP/s", partial(_rates, evidence), brief=True)
    else:
        cell, note = kinds.CELL[:3], f"Times: median. {SPEEDUPS} (intervals: F1, F2)."
        columns = _columns(evidence, rows, bases, cells=medians, brief=True)
    if "*" in kinds.numerics(frame):
        note += f" {HALVES}"
    rows = having(rows, implementation=kinds.kernel_of(frame))
    return side_by_side(caption, rows, cell, columns, note)


def _products(rows: pd.DataFrame) -> str:
    """What fills the device: tokens in a batch, and channels of all heads."""
    pairs = {"batch x length": ("batch", "seq_len"), "heads x d_head": ("heads", "d_head")}
    spreads = {words: Spread.of(rows[a] * rows[b]) for words, (a, b) in pairs.items()}
    return "".join(f", {w} {ranged(spread, '{:,.0f}'.format)}" for w, spread in spreads.items())


def _of_ceiling(evidence: MachineEvidence, rows: pd.DataFrame) -> str:
    dtype = rows["dtype"].iloc[0]
    ceiling = matmul_ceiling(evidence, dtype)
    of = f" (% of a {dtype_words(dtype)} matmul at {significant(ceiling)} TFLOP/s)"
    return f"Rates: from the median time{of if ceiling else ''}."


def _rates(evidence: MachineEvidence, frame: pd.DataFrame) -> pd.Series:
    """``563 (78.3 %)``: TFLOP/s and the share of the matmul ceiling; else the status in words."""
    words = status_words(frame)
    rates, shares = achieved_tflops(frame), matmul_share(evidence, frame)
    for row in frame.index[gates.shown(frame)]:
        share = "" if absent(shares[row]) else f" ({percent(shares[row])})"
        words[row] = significant(rates[row]) + share
    return words


def _columns(
    evidence: MachineEvidence,
    frame: pd.DataFrame,
    bases: Sequence[str],
    unit: str = "ms",
    cells: Callable[[pd.DataFrame], pd.Series] = kernel_times,
    brief: bool = False,
) -> list[Beside]:
    """In each phase our kernel, each base, and the speed-up over it; brief: without the bases."""
    ours = Series.of(implementation=kinds.kernel_of(evidence.frame(kinds.STEM)))
    columns, phases = [], in_order("phase", frame["phase"])
    for phase in phases:
        rows = having(frame, phase=phase)
        before = f"{phase_words(phase)}, " if len(phases) > 1 else ""
        columns.append(Beside(f"{before}{ours.words} ({unit})", cells(ours.rows(rows))))
        for base in (Series.of(implementation=name) for name in bases):
            if not brief:
                columns.append(Beside(f"{before}{base.words} ({unit})", cells(base.rows(rows))))
            speed = speedup_cells(evidence, kinds.STEM, ours, base, brackets=not brief)
            speed = speed[speed.index.isin(rows.index)]
            columns.append(Beside(f"{before}over {base.words}", speed))
    return columns


def plain_tables(evidence: MachineEvidence) -> list[Lines]:
    """F1, a table a dtype: plain attention and our kernel, one head, in each phase."""
    frame = kinds.rows(evidence)
    parts = kinds.parts(frame[kinds.single(frame)], "dtype")
    return each(*(_times(evidence, part, "One head", [kinds.PLAIN]) for part in parts))


def peer_tables(evidence: MachineEvidence) -> list[Lines]:
    """F2: means by kind of work; then a table a dtype and phase, one head and as CUDA graphs."""
    frame = kinds.rows(evidence)
    means = (_means(evidence, part) for part in kinds.parts(frame, "dtype"))
    launched = (frame[kinds.single(frame)], frame[kinds.graphed(frame)])
    parts = [part for way in launched for part in kinds.parts(way, "dtype", "phase")]
    times = (_times(evidence, p, _phase(p), bases) for p in parts if (bases := kinds.peers_of(p)))
    return each(*means, *times)


def _times(
    evidence: MachineEvidence, part: pd.DataFrame, what: str, bases: Sequence[str]
) -> Lines | None:
    cell = kinds.CELL if kinds.graphed(part).any() else kinds.CELL[:-1]
    columns = _columns(evidence, part, bases)
    return side_by_side(f"{what}, {kinds.numerics(part)}", part, cell, columns, KERNELS)


def _phase(part: pd.DataFrame) -> str:
    return phase_words(part["phase"].iloc[0]).capitalize()


def filled_tables(evidence: MachineEvidence) -> list[Lines]:
    """F3, a table a dtype and phase: rates, shares of the ceiling, and speed-ups."""
    frame, rates, tables = kinds.rows(evidence), partial(_rates, evidence), []
    for part in kinds.parts(frame[kinds.filled(frame)], "dtype", "phase"):
        columns = _columns(evidence, part, kinds.peers_of(part), "TFLOP/s", rates)
        caption, note = f"{_phase(part)}, {kinds.numerics(part)}", _of_ceiling(evidence, part)
        tables.append(side_by_side(caption, part, GRID_CELL, columns, note))
    return each(*tables)


def _means(evidence: MachineEvidence, frame: pd.DataFrame) -> Lines | None:
    """A line for each kind of work and phase, a column for each peer."""
    over = {peer: kinds.over(evidence, peer, frame) for peer in kinds.peers_of(frame)}
    columns = {f"over {implementation_words(peer)}": rows for peer, rows in over.items()}
    backends = [rows for peer, rows in over.items() if peer.startswith("sdpa_")]
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
            n = max(map(len, chosen.values()), default=0)
            if cells:
                lines.append({"work": work, "phase": phase_words(phase), "cells": n, **cells})
    caption = f"{kinds.kernel_words(frame)} over each, {kinds.numerics(frame)}"
    return Lines(caption, pd.DataFrame(lines).fillna(EMPTY), MEANS) if lines else None


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
    return f"{ratio(kinds.geometric_mean(ratios))} ({low}-{high})"


def _one_head(frame: pd.DataFrame) -> pd.Series:
    return kinds.single(frame) & frame["implementation"].isin([kinds.PLAIN, *kinds.OURS])


def _beside_peers(frame: pd.DataFrame) -> pd.Series:
    return ~kinds.filled(frame) & (frame["implementation"] != kinds.PLAIN)


TABLES = (
    Table("F1", "One head against plain PyTorch", plain_tables, Owed(_one_head)),
    Table("F2", "Against the backends of PyTorch", peer_tables, Owed(_beside_peers)),
    Table("F3", "On a grid that fills the device", filled_tables, Owed(kinds.filled)),
    Table("F4", "Errors against float64", error_tables),
    Table("", "Kernel tests", check_tables, Owed(stem=kinds.CHECK)),
)
