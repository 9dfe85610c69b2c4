"""Tables of ``lmperf run`` for a terminal: every row with its speed-up over a baseline."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pandas as pd

from lmperf.benchmark import Timed
from lmperf.benchmarks import load
from lmperf.names import implementation_words, in_order, phase_words
from lmperf.reporting import custom
from lmperf.reporting.evidence import MachineEvidence, axes, having
from lmperf.reporting.numbers import error
from lmperf.reporting.sections.flash_attention.errors import TENSORS, tensors
from lmperf.reporting.sections.generic import measurements
from lmperf.reporting.side_by_side import Beside, each, side_by_side, speedup, text, time
from lmperf.reporting.speedup import Series, speedup_cells, speedups
from lmperf.reporting.tables import (
    kernel_note,
    kernel_times,
    number_cells,
    step_note,
    step_times,
    value_cells,
)
from lmperf.results import DERIVED, HIGHER, LOWER, Cell, Table


def verdict_tables(evidence: MachineEvidence, stem: str, over: str | None) -> list[Table]:
    """A table for each phase: times, rates, and the speed-up over a baseline with its verdict.

    over: the baseline; None: the first implementation in reading order that is neither a peer nor
    custom.
    """
    frame = evidence.frame(stem)
    if frame is None:
        return []
    if not isinstance(load(stem), Timed):
        return each(measurements(evidence, stem))
    base = over or _baseline(evidence, stem, frame)
    return each(
        *(
            _of_phase(evidence, stem, having(frame, phase=phase), base)
            for phase in in_order("phase", frame["phase"])
        )
    )


def _baseline(evidence: MachineEvidence, stem: str, frame: pd.DataFrame) -> str:
    known = in_order("implementation", frame["implementation"])
    external = custom.names(evidence, stem)
    return next((name for name in known if name not in external), known[0])


def _of_phase(evidence: MachineEvidence, stem: str, rows: pd.DataFrame, base: str) -> Table | None:
    steps = load(stem).clock == "step"
    times, note = (
        (step_times, step_note(stem, rows)) if steps else (kernel_times, kernel_note(rows))
    )
    peers = [name for name in rows["implementation"].unique() if name != base]
    words = implementation_words(base, axes(rows))
    phase, median = rows["phase"].iloc[0], "median" if steps else ""
    speedups = _joined([_speed(evidence, stem, name, base) for name in peers])
    verdicts = _joined([_verdicts(evidence, stem, name, base) for name in peers])
    columns = [
        time("time", times(rows), phase, second=median),
        time("host", value_cells(rows, rows["host_ms"]), f"{phase}.host"),
        _rate("TFLOP/s", rows, "tflops", phase),
        _rate("GB/s", rows, "bandwidth_gbps", phase),
        speedup(f"over {words}", speedups, f"{phase}.over.{base}"),
        text("verdict", verdicts, f"{phase}.verdict"),
        custom.error_column(rows, f"{phase}.error"),
        *_errors(rows, phase),
    ]
    cell = [*axes(rows), "implementation"]
    return side_by_side(phase_words(phase), rows, cell, columns, note)


def _rate(unit: str, rows: pd.DataFrame, column: str, phase: str) -> Beside:
    cells = value_cells(rows, rows[column])
    return Beside(unit, cells, f"{phase}.{column}", unit, "significant", HIGHER, DERIVED)


def _errors(rows: pd.DataFrame, phase: str) -> list[Beside]:
    """A column for the error of each tensor, if several tensors were checked."""
    names = tensors(rows)
    if len(names) < 2:
        return []
    return [
        Beside(
            f"error of {TENSORS[name]}",
            number_cells(rows[name], error),
            f"{phase}.{name}",
            format="error",
            better=LOWER,
        )
        for name in names
    ]


def _joined(parts: Sequence[pd.Series]) -> pd.Series:
    return pd.concat(parts) if parts else pd.Series(dtype=object)


def _speed(evidence: MachineEvidence, stem: str, name: str, base: str) -> pd.Series:
    pair = (Series.of(implementation=one) for one in (name, base))
    cells = speedup_cells(evidence, stem, *pair)
    return cells.map(_without_verdict)  # the verdict is in the next column


def _without_verdict(cell: Cell) -> Cell:
    return replace(cell, words=cell.words.removesuffix(f" {cell.verdict}"))


def _verdicts(evidence: MachineEvidence, stem: str, name: str, base: str) -> pd.Series:
    pair = (Series.of(implementation=one) for one in (name, base))
    return speedups(evidence, stem, *pair)["verdict"]
