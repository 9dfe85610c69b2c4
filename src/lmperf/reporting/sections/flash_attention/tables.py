"""Tables of the FlashAttention-2 section: the head table (the one in the write-up), F1 to F5.

F1: one head against plain attention. F2: against SDPA backends. F3: the filled grid, whose cells
fill a GPU. F4 (errors) is in ``errors``. F5: other shapes.
"""

from __future__ import annotations

import operator
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

import pandas as pd

from lmperf.names import dtype_words, implementation_words, in_order, phase_words
from lmperf.reporting import gates, host_time
from lmperf.reporting.ceilings import achieved_tflops, matmul_share, peak_words
from lmperf.reporting.evidence import MachineEvidence, having
from lmperf.reporting.numbers import Spread, finite, percent, ranged, ratio
from lmperf.reporting.sections.flash_attention import kinds
from lmperf.reporting.sections.flash_attention.errors import check_tables, error_tables
from lmperf.reporting.sections.flash_attention.sustained import sustained_tables
from lmperf.reporting.side_by_side import Beside, each, rate, side_by_side, speedup, time
from lmperf.reporting.speedup import (
    PRECISE,
    Series,
    averaged,
    every,
    geometric_mean,
    speedup_cells,
    verdict_of_mean,
)
from lmperf.reporting.tables import (
    Owed,
    TableGroup,
    from_frame,
    kernel_note,
    kernel_times,
    medians,
    number_cells,
    shared_axes,
    status_cells,
    with_shares,
)
from lmperf.results import AXIS, DERIVED, HIGHER, OBSERVED, STALE, Cell, Table
from lmperf.statistics import SAME, UNRESOLVED

# The size of the table that a write-up may show.
MOST_COLUMNS, MOST_LINES = 7, 12
# One head of a shorter sequence is launch-bound or leaves most SMs idle.
LONG = 2048
GRID_CELL = ["d_head", "mask", "seq_len", "batch", "heads"]
FLOPS = (
    "FLOPs: 4 · batch · heads · length² · d_head forward, with length (length + 1) / 2 for length²"
    " where causal; 2.5 times that backward."
)
TIMES, RATES = "Times: median.", "Rates: from the median time (% of the peak matmul: F3)."
SPEEDUPS = "Speed-ups: median of the ratios of rounds; above one, ours is faster (intervals: {})."
MEANS = (
    "Geometric mean over cells of the speed-ups (smallest to largest), each the median of the"
    " ratios of rounds; below one the other is faster. *Same*: the cells are, or the mean is within"
    " the mean of their noise floors. Cells with a marked time are left out, and unresolved ones"
    f" whose interval reaches further than {percent(PRECISE, 0)} from the speed-up."
)


def head(evidence: MachineEvidence) -> Table | None:
    """The head table: rates or times of our kernel, and its speed-ups over the first peer.

    Without a filled grid it also has the speed-ups over plain attention, if they fit.
    """
    frame = evidence.frame(kinds.STEM)
    if frame is None:
        return None
    work, rows = kinds.main(kinds.with_mask(having(frame, phase=kinds.PHASES)))
    what, bases = f"{kinds.kernel_words(frame)}, {work}", kinds.rivals(rows)[:1]
    on_grid, cell, notes = kinds.filled(rows).any(), GRID_CELL[:3], [FLOPS, SPEEDUPS.format("F3")]
    if on_grid:
        what += _products(rows)
    else:
        rows, cell = kinds.usual_width(rows), kinds.CELL[:3]
        room = (MOST_COLUMNS - len(shared_axes(rows, cell)[1])) // len(kinds.PHASES) - 1
        bases, notes = [kinds.PLAIN, *bases][-room:], [SPEEDUPS.format("F1, F2")]
    ours = having(rows, implementation=kinds.kernel_of(frame))
    table = _table(evidence, ours, what, bases, cell, rates=on_grid, brief=True)
    return table and replace(table.last(MOST_LINES), notes=" ".join([table.notes, *notes]))


def _products(rows: pd.DataFrame) -> str:
    """For a caption: the tokens of a batch and the channels of all heads, as products."""
    pairs = {"batch x length": ("batch", "seq_len"), "heads x d_head": ("heads", "d_head")}
    spreads = {words: Spread.of(rows[a] * rows[b]) for words, (a, b) in pairs.items()}
    return "".join(f", {w} {ranged(spread, '{:,.0f}'.format)}" for w, spread in spreads.items())


def _of_ceiling(evidence: MachineEvidence, rows: pd.DataFrame) -> str:
    dtype = rows["dtype"].iloc[0]
    peak = peak_words(evidence, dtype)
    return f"Rates: from the median time{f'; % of {peak}' if peak else ''}."


def _rates(evidence: MachineEvidence, frame: pd.DataFrame, shares: bool) -> pd.Series:
    """TFLOP/s, with ``shares`` also the share of the matmul ceiling, ``563 (78.3 %)``.

    A row without a valid time has its status.
    """
    shown = gates.shown(frame)
    rates = number_cells(achieved_tflops(frame)).where(shown, status_cells(frame))
    known = matmul_share(evidence, frame).where(shown & shares)
    return with_shares(rates, known, frame)


def _table(
    evidence: MachineEvidence,
    frame: pd.DataFrame,
    what: str,
    bases: Sequence[str],
    cell: Sequence[str],
    rates: bool = False,
    brief: bool = False,
) -> Table | None:
    """A table with, for each phase, our kernel, each base, and our speed-up over the base.

    what: begins the caption, which names our kernel if ``brief``. bases: implementations to compare
    with. rates: TFLOP/s instead of times. brief: leave out the times or rates of the bases, the
    confidence intervals and the shares of the ceiling.
    """
    ours = Series.of(implementation=kinds.kernel_of(evidence.frame(kinds.STEM)))
    times = medians if brief else kernel_times
    columns, phases = [], in_order("phase", frame["phase"])
    for phase in phases:
        rows = having(frame, phase=phase)
        before = f"{phase_words(phase)}, " if len(phases) > 1 else ""

        def measured(series: Series, phase=phase, rows=rows, before=before) -> Beside:
            words = phase_words(phase) if brief else f"{before}{series.words}"
            timed = series.rows(rows)
            if not rates:
                return time(words, times(timed), f"{phase}.{series.name}")
            named, second = f"{phase}.{series.name}.tflops", "" if brief else "share of matmul"
            return rate(words, _rates(evidence, timed, not brief), named, "TFLOP/s", second=second)

        columns.append(measured(ours))
        for base in (Series.of(implementation=name) for name in bases):
            if not brief:
                columns.append(measured(base))
            cells = speedup_cells(evidence, kinds.STEM, ours, base, brackets=not brief)
            cells = cells[cells.index.isin(rows.index)]
            named = f"{phase}.{ours.name}.over.{base.name}"
            columns.append(speedup(f"{before}over {base.words}", cells, named))
    note = TIMES if brief else kernel_note(frame)
    if rates:
        note = RATES if brief else _of_ceiling(evidence, frame)
    return side_by_side(f"{what}, {kinds.numerics(frame)}", frame, cell, columns, note)


def plain_tables(evidence: MachineEvidence) -> list[Table]:
    """Tables F1, one per dtype: times of one head by phase, plain attention and our kernel."""
    frame = kinds.rows(evidence)
    parts = kinds.parts(frame[kinds.single(frame)], "dtype")
    how = ("One head", [kinds.PLAIN], kinds.CELL[:-1])
    return each(*(_table(evidence, part, *how) for part in parts))


def peer_tables(evidence: MachineEvidence) -> list[Table]:
    """Tables F2: geometric-mean speed-ups over the peers, then every cell of one head.

    The means have one table per dtype; the cells have one per dtype and phase, launched call by
    call and as CUDA graphs.
    """
    frame = kinds.rows(evidence)
    means = (_means(evidence, part) for part in kinds.parts(frame, "dtype"))
    one = _by_phase(evidence, frame[kinds.single(frame)], kinds.CELL[:-1])
    graphs = having(frame[kinds.graphed(frame)], phase=kinds.PHASES)
    return each(*means, *one, *_by_phase(evidence, graphs, kinds.CELL))


def filled_tables(evidence: MachineEvidence) -> list[Table]:
    """Tables F3, one per dtype and phase: rates on the filled grid, and speed-ups over peers."""
    frame = kinds.rows(evidence)
    return each(*_by_phase(evidence, frame[kinds.filled(frame)], GRID_CELL, rates=True))


def other_tables(evidence: MachineEvidence) -> list[Table]:
    """Tables F5, one per dtype and phase: other head widths, and a public leaderboard's cell."""
    frame = kinds.rows(evidence)
    return each(*_by_phase(evidence, frame[kinds.other(frame)], GRID_CELL))


def host_tables(evidence: MachineEvidence) -> list[Table]:
    """The tables of device, host and loop times: of one head by length, then on the filled grid.

    One head is shown also as CUDA graphs. On the filled grid host times are medians over cells.
    """
    frame = evidence.frame(kinds.STEM)
    if frame is None:
        return []
    rows = kinds.short_work(kinds.with_mask(frame))
    cell = ["seq_len", "cuda_graph", *kinds.CELL[1:-1]]
    return [*host_time.tables(rows, "One head", cell), *each(_host_on_grid(frame))]


def _host_on_grid(frame: pd.DataFrame) -> Table | None:
    """Median host time of a call on the filled grid in bf16, a line for each implementation."""
    rows = having(host_time.known(frame[kinds.filled(frame)]), dtype=kinds.HALF)
    if rows.empty:
        return None
    wide = rows.pivot_table("host_ms", "implementation", "phase", aggfunc="median")
    wide = wide.loc[in_order("implementation", wide.index), in_order("phase", wide.columns)]
    words = {"implementation": [implementation_words(name) for name in wide.index]}
    cells = {f"{phase}.host": number_cells(wide[phase]).tolist() for phase in wide}
    headers = {f"{phase}.host": f"{phase_words(phase)} (ms)" for phase in wide}
    caption = f"Host time of a call, filled grid, {dtype_words(kinds.HALF)}, median over cells"
    return from_frame(caption, pd.DataFrame(words | cells), headers=headers)


def _by_phase(
    evidence: MachineEvidence, frame: pd.DataFrame, cell: Sequence[str], rates: bool = False
) -> Iterator[Table | None]:
    for part in kinds.parts(frame, "dtype", "phase"):
        what = phase_words(part["phase"].iloc[0]).capitalize()
        yield _table(evidence, part, what, kinds.peers_of(part), cell, rates)


def _means(evidence: MachineEvidence, frame: pd.DataFrame) -> Table | None:
    """A table F2 of geometric means: a line per kind of work and phase, a column per peer."""
    over = {peer: kinds.over(evidence, peer, frame, averaged) for peer in kinds.peers_of(frame)}
    ours = kinds.kernel_of(frame)
    columns = {f"{ours}.over.{peer}": rows for peer, rows in over.items()}
    headers = {f"{ours}.over.{peer}": f"over {implementation_words(peer)}" for peer in over}
    backends = [peer for peer in over if peer.startswith("sdpa_")]
    if len(backends) > 1:
        fastest = f"{ours}.over.fastest_sdpa"
        columns[fastest] = _over_fastest(evidence, frame, backends)
        headers[fastest] = "over the fastest SDPA backend"
    lines = []
    for work, rows in _works(frame).items():
        for phase in in_order("phase", rows["phase"]):
            in_phase = having(rows, phase=phase).index
            chosen = {name: r[r.index.isin(in_phase)] for name, r in columns.items()}
            cells = {name: _mean(part) for name, part in chosen.items() if len(part)}
            if cells:
                least, most = min(cell.n for cell in cells.values()), max(map(len, chosen.values()))
                n = most if least == most else f"{least}-{most}"
                lines.append({"work": work, "phase": phase_words(phase), "cells": n, **cells})
    caption = f"{kinds.kernel_words(frame)} over each, {kinds.numerics(frame)}"
    return _speedup_table(caption, lines, headers) if lines else None


def _over_fastest(
    evidence: MachineEvidence, frame: pd.DataFrame, backends: Sequence[str]
) -> pd.DataFrame:
    """Rows of our kernel with their speed-up over the fastest backend: the smallest of their own.

    A row counts if all of its speed-ups over backends are ``averaged``, and a gate withholds none:
    a backend without a valid time may be the fastest.
    """
    timed = pd.concat(kinds.over(evidence, peer, frame, every) for peer in backends)
    known = pd.concat(kinds.over(evidence, peer, frame, averaged) for peer in backends)
    counts = (rows.groupby(level=0).size() for rows in (known, timed))
    lacking = operator.sub(*counts).ne(0)  # NaN, where none is averaged, is not 0
    known = known.drop(lacking.index[lacking], errors="ignore")
    for peer in backends:
        known = known.drop(kinds.withheld(evidence, peer), errors="ignore")
    known = known.sort_values("ratio", kind="stable")
    return known[~known.index.duplicated()]


def _speedup_table(caption: str, lines: Sequence[dict], headers: Mapping[str, str]) -> Table:
    """A table of geometric means from its lines; ``headers``: column name -> header."""
    table = from_frame(caption, pd.DataFrame(lines), MEANS, headers=headers)
    columns = (
        replace(c, format="ratio", better=HIGHER, role=DERIVED)
        if c.name in headers
        else replace(c, role=AXIS if c.name in ("work", "phase") else OBSERVED)
        for c in table.columns
    )
    return replace(table, columns=tuple(columns))


def _works(frame: pd.DataFrame) -> dict[str, pd.DataFrame]:
    """Kind of work in words -> its rows: the filled grid by head width, one head by length."""
    grid, head = frame[kinds.filled(frame)], frame[kinds.single(frame)]
    widths = in_order("d_head", grid["d_head"])
    return {
        "filled grid": grid,
        **{f"filled grid, d_head {d}": having(grid, d_head=d) for d in widths if len(widths) > 1},
        f"one head, from length {LONG} on": head[head["seq_len"] >= LONG],
        f"one head, below length {LONG}": head[head["seq_len"] < LONG],
        "one head, as a CUDA graph": frame[kinds.graphed(frame)],
    }


def _mean(rows: pd.DataFrame) -> Cell:
    """A cell with the geometric mean of speed-ups, and the smallest and the largest of several.

    Its verdict follows if that is ``same`` or ``unresolved``.
    """
    ratios, said = rows["ratio"], verdict_of_mean(rows)
    mean, ends = geometric_mean(ratios), (ratios.min(), ratios.max())
    low, high = (ratio(value).removesuffix("x") for value in ends)
    words = [ratio(mean), f"({low}-{high})" * (len(rows) > 1), said * (said in (SAME, UNRESOLVED))]
    stale = (STALE,) if "stale" in rows and rows["stale"].any() else ()
    text = " ".join(filter(None, words))
    return Cell(text, finite(mean), *map(finite, ends), n=len(rows), marks=stale)


def _one_head(frame: pd.DataFrame) -> pd.Series:
    return kinds.single(frame) & frame["implementation"].isin([kinds.PLAIN, *kinds.OURS])


def _of_ours(frame: pd.DataFrame) -> pd.Series:
    return frame["implementation"].isin(kinds.OURS)


def _beside_peers(frame: pd.DataFrame) -> pd.Series:
    return ~kinds.filled(frame) & ~kinds.other(frame) & (frame["implementation"] != kinds.PLAIN)


TABLES = (
    TableGroup("F1", "One head against plain PyTorch", plain_tables, Owed(_one_head)),
    TableGroup("F2", "Against the backends of PyTorch", peer_tables, Owed(_beside_peers)),
    TableGroup("F3", "On a grid that fills the device", filled_tables, Owed(kinds.filled)),
    TableGroup("", "Sustained rates of that grid", sustained_tables),
    TableGroup("", host_time.TITLE, host_tables),
    TableGroup("F4", "Errors against float64", error_tables, Owed(_of_ours)),
    TableGroup(
        "F5", "Other widths, and a public leaderboard's cell", other_tables, Owed(kinds.other)
    ),
    TableGroup("", "Kernel tests", check_tables, Owed(stem=kinds.CHECK)),
)
