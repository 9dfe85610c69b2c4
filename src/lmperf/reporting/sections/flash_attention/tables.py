"""The table of the write-up; F1: one head; F2: backends; F3: a filled device; F4: errors."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pandas as pd

from lmperf.names import dtype_words, implementation_words, in_order, phase_words
from lmperf.reporting import gates
from lmperf.reporting.ceilings import achieved_tflops, matmul_ceiling, matmul_share
from lmperf.reporting.evidence import MachineEvidence, having
from lmperf.reporting.numbers import absent, percent, ratio, significant
from lmperf.reporting.sections.flash_attention import kinds
from lmperf.reporting.sections.flash_attention.errors import check_tables, error_tables
from lmperf.reporting.sections.flash_attention.peers import summary_tables
from lmperf.reporting.side_by_side import Beside, each, side_by_side
from lmperf.reporting.speedup import SAME, UNRESOLVED, Series, speedup_cells
from lmperf.reporting.tables import (
    KERNELS,
    Lines,
    Owed,
    Table,
    kernel_times,
    medians,
    status_words,
    value_cells,
)

SPEEDUPS = "Speed-ups: median of the ratios of rounds; above one, ours is faster."


def head(evidence: MachineEvidence) -> Lines | None:
    """At most twelve lines: rates of our kernel, or its times, and speed-ups over its peers."""
    frame = evidence.frame(kinds.STEM)
    if frame is None:
        return None
    rows = kinds.with_mask(having(frame, implementation=kinds.kernel_of(frame)))
    grid = having(rows[kinds.filled(rows)], dtype=kinds.HALF)
    on_grid, rows = not grid.empty, rows[kinds.single(rows)] if grid.empty else grid
    if rows.empty:
        return None
    dtype = kinds.HALF if on_grid else in_order("dtype", rows["dtype"])[0]
    rows = rows if on_grid else kinds.usual_width(having(rows, dtype=dtype))
    peers = kinds.peers_of(having(frame, dtype=dtype))
    bases = [p for p in peers if p != kinds.GENERAL] if on_grid else [kinds.PLAIN, *peers]
    columns = []
    for phase in kinds.PHASES:
        own = having(rows, phase=phase)
        times = [Beside(f"{phase} (ms)", medians(own))]
        columns += _rate_columns(evidence, own, phase) if on_grid else times
        columns += [_ratio(evidence, base, own, phase) for base in bases]
    kernel = kinds.kernel_of(frame)
    where = "a grid that fills the device" if on_grid else "one head"
    caption = f"{implementation_words(kernel)}, {kinds.numerics_words(dtype, kernel)}, {where}"
    cell = ["d_head", "mask" if on_grid else "causal", "seq_len"]
    note = f"{_ceiling_words(evidence, dtype) if on_grid else 'Times: median.'} {SPEEDUPS}"
    return side_by_side(kinds.sentence_case(caption), rows, cell, columns, note)


def _rate_columns(evidence: MachineEvidence, own: pd.DataFrame, phase: str) -> list[Beside]:
    share = 100 * matmul_share(evidence, own)
    return [
        Beside(f"{phase} (TFLOP/s)", value_cells(own, achieved_tflops(own))),
        Beside(f"{phase}, % of ceiling", value_cells(own, share, "{:.1f}".format)),
    ]


def _ratio(evidence: MachineEvidence, base: str, own: pd.DataFrame, phase: str) -> Beside:
    found = kinds.over(evidence, base)
    found = found[found.index.isin(own.index)]
    said = found["verdict"].where(found["verdict"].isin([SAME, UNRESOLVED]), "")
    cells = (found["ratio"].map(ratio) + " " + said).str.strip()
    return Beside(f"{phase}, over {implementation_words(base)}", cells)


def _ceiling_words(evidence: MachineEvidence, dtype: str) -> str:
    ceiling = matmul_ceiling(evidence, dtype)
    of = f", the ceiling is a matmul at {significant(ceiling)} TFLOP/s" if ceiling else ""
    return f"TFLOP/s and % from the median time{of}."


def plain_tables(evidence: MachineEvidence, frame: pd.DataFrame) -> list[Lines]:
    """F1, a table a dtype: plain attention and our kernel, one head, in each phase."""
    rows = kinds.parts(frame[kinds.single(frame)], "dtype")
    return each(*(_beside(evidence, part, [kinds.PLAIN]) for part in rows))


def peer_tables(evidence: MachineEvidence, frame: pd.DataFrame) -> list[Lines]:
    """F2: means by kind of work; then a table a dtype and phase, one head and as CUDA graphs."""
    launched = (frame[kinds.single(frame)], frame[kinds.graphed(frame)])
    rows = [part for way in launched for part in kinds.parts(way, "dtype", "phase")]
    tables = [_beside(evidence, part, bases) for part in rows if (bases := kinds.peers_of(part))]
    return [*summary_tables(evidence, frame), *each(*tables)]


def _beside(evidence: MachineEvidence, frame: pd.DataFrame, bases: Sequence[str]) -> Lines | None:
    """Times of our kernel and of each base, and its speed-up over it, in each phase."""
    ours = Series.of(implementation=kinds.kernel_of(evidence.frame(kinds.STEM)))
    phases = in_order("phase", frame["phase"])
    columns = []
    for phase in phases:
        rows = having(frame, phase=phase)
        before = f"{phase_words(phase)}, " if len(phases) > 1 else ""
        columns.append(Beside(f"{before}{ours.words} (ms)", kernel_times(ours.rows(rows))))
        for base in (Series.of(implementation=name) for name in bases):
            columns += [
                Beside(f"{before}{base.words} (ms)", kernel_times(base.rows(rows))),
                _speedup(evidence, rows, ours, base, before),
            ]
    graph = ["cuda_graph"] if kinds.graphed(frame).any() else []
    cell = ["seq_len", "d_head", "causal", "batch", "heads", *graph]
    return side_by_side(_caption(evidence, frame), frame, cell, columns, KERNELS)


def _speedup(
    evidence: MachineEvidence, frame: pd.DataFrame, ours: Series, base: Series, before: str = ""
) -> Beside:
    cells = speedup_cells(evidence, kinds.STEM, ours, base)
    return Beside(f"{before}over {base.words}", cells[cells.index.isin(frame.index)])


def _caption(evidence: MachineEvidence, frame: pd.DataFrame) -> str:
    phases, kernel = frame["phase"].unique(), kinds.kernel_of(evidence.frame(kinds.STEM))
    numerics = kinds.numerics_words(frame["dtype"].iloc[0], kernel)
    what = phase_words(phases[0]) if len(phases) == 1 else "one head"
    return kinds.sentence_case(f"{what}, {numerics}")


def filled_tables(evidence: MachineEvidence, frame: pd.DataFrame) -> list[Lines]:
    """F3, a table a dtype and phase: rates, shares of the ceiling, and speed-ups."""
    rows = kinds.parts(kinds.with_mask(frame[kinds.filled(frame)]), "dtype", "phase")
    return each(*(_rates(evidence, part) for part in rows))


def _rates(evidence: MachineEvidence, frame: pd.DataFrame) -> Lines | None:
    ours = Series.of(implementation=kinds.kernel_of(evidence.frame(kinds.STEM)))
    names = in_order("implementation", frame["implementation"])
    series = [Series.of(implementation=name) for name in names]
    cells = _rate_cells(evidence, frame)
    rates = [Beside(f"{s.words} (TFLOP/s)", cells[s.rows(frame).index]) for s in series]
    speed = [_speedup(evidence, frame, ours, base) for base in series if base != ours]
    dtype = frame["dtype"].iloc[0]
    ceiling = significant(matmul_ceiling(evidence, dtype))
    note = f"From the median time (% of the {dtype_words(dtype)} matmul ceiling, {ceiling})."
    cell = ["d_head", "mask", "seq_len", "batch", "heads"]
    return side_by_side(_caption(evidence, frame), frame, cell, [*rates, *speed], note)


def _rate_cells(evidence: MachineEvidence, frame: pd.DataFrame) -> pd.Series:
    """``563 (78.3 %)``: TFLOP/s and the share of the matmul ceiling; else the status in words."""
    words = status_words(frame)
    rates, shares = achieved_tflops(frame), matmul_share(evidence, frame)
    for row in frame.index[gates.shown(frame)]:
        share = "" if absent(shares[row]) else f" ({percent(shares[row])})"
        words[row] = significant(rates[row]) + share
    return words


def _of_rows(make: Callable) -> Callable[[MachineEvidence], Sequence[Lines]]:
    """A table that is made of the timed rows, empty where there are only kernel tests."""

    def made(evidence: MachineEvidence) -> Sequence[Lines]:
        frame = evidence.frame(kinds.STEM)
        return [] if frame is None else make(evidence, frame)

    return made


def _one_head(frame: pd.DataFrame) -> pd.Series:
    return kinds.single(frame) & frame["implementation"].isin([kinds.PLAIN, *kinds.OURS])


def _beside_peers(frame: pd.DataFrame) -> pd.Series:
    return ~kinds.filled(frame) & (frame["implementation"] != kinds.PLAIN)


TABLES = (
    Table("F1", "One head against plain PyTorch", _of_rows(plain_tables), Owed(_one_head)),
    Table("F2", "Against the backends of PyTorch", _of_rows(peer_tables), Owed(_beside_peers)),
    Table("F3", "On a grid that fills the device", _of_rows(filled_tables), Owed(kinds.filled)),
    Table("F4", "Errors against float64", _of_rows(error_tables)),
    Table("", "Kernel tests", check_tables, Owed(stem=kinds.CHECK)),
)
