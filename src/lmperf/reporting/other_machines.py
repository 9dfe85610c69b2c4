"""Machines side by side: their ceilings, and the cells that more than one of them measured (E5).

Times of two machines were never taken in turn, so they stand beside each other and no ratio is
made.
"""

from __future__ import annotations

from collections.abc import Sequence

import pandas as pd

from lmperf.benchmark import Timed, load
from lmperf.names import axis_words, dtype_words, implementation_words, phase_words
from lmperf.reporting import machine
from lmperf.reporting.ceilings import ceilings
from lmperf.reporting.evidence import MachineEvidence, axes, having, in_reading_order
from lmperf.reporting.numbers import EMPTY, significant
from lmperf.reporting.tables import Lines, kernel_times, step_times

STEPS = 6


def machines_lines(machines: Sequence[MachineEvidence]) -> Lines | None:
    """Every machine with evidence: device, software, when, and a link to its write-up."""
    if not machines:
        return None
    return Lines("Machines with evidence", pd.DataFrame([_line(e) for e in machines]))


def _line(evidence: MachineEvidence) -> dict:
    facts = machine.newest(evidence)
    return {
        "machine": f"[{evidence.machine}]({evidence.machine}/report.md)",
        "device": machine.device_words(evidence),
        "torch": facts.get("torch") or EMPTY,
        "Triton": facts.get("triton") or EMPTY,
        "measured": str(facts.get("measured_at") or EMPTY)[:10],
        "rows": machine.rows(evidence),
        "gates failed": sum(map(len, machine.red_gates(evidence).values())),
    }


def side_by_side_steps(machines: Sequence[MachineEvidence]) -> Lines | None:
    """The train steps that most machines share, a few of them; None where there is none."""
    table = _beside(machines, "end_to_end", "train_step")
    if table is None:
        return None
    return Lines(table.caption, table.frame.head(STEPS), table.note)


def machines_tables(machines: Sequence[MachineEvidence]) -> list[Lines]:
    """E5: ceilings by machine, then per benchmark and phase the cells of at least two machines."""
    stems = dict.fromkeys(stem for e in machines for stem in e.present() if stem != "ceilings")
    timed = [stem for stem in stems if isinstance(load(stem), Timed)]
    found = [ceilings_by_machine(machines)]
    found += [_beside(machines, stem, phase) for stem in timed for phase in load(stem).phases]
    return [table for table in found if table is not None]


def ceilings_by_machine(machines: Sequence[MachineEvidence]) -> Lines | None:
    """One line per operation and dtype, one column a machine; None for fewer than two machines."""
    found = {evidence.machine: ceilings(evidence) for evidence in machines}
    found = {name: rates for name, rates in found.items() if rates}
    if len(found) < 2:
        return None
    keys = sorted({key for rates in found.values() for key in rates})
    lines = [
        {
            "operation": operation,
            "numerics": dtype_words(dtype),
            "unit": "TFLOP/s" if operation == "matmul" else "GB/s",
            **{name: significant(rates.get((operation, dtype))) for name, rates in found.items()},
        }
        for operation, dtype in keys
    ]
    return Lines("Ceilings by machine", pd.DataFrame(lines))


def _beside(machines: Sequence[MachineEvidence], stem: str, phase: str) -> Lines | None:
    """One line a cell that at least two machines have, one column of times a machine."""
    frames = {e.machine: frame for e in machines if (frame := e.frame(stem)) is not None}
    if len(frames) < 2:
        return None
    times = step_times if getattr(load(stem), "clock", "") == "step" else kernel_times
    first = next(iter(frames.values()))
    keys = [*(n for n in axes(first) if all(n in f for f in frames.values())), "implementation"]
    columns = [
        _column(having(frame, phase=phase), keys, name, times) for name, frame in frames.items()
    ]
    table = pd.concat([column for column in columns if not column.empty], axis=1)
    table = table[table.notna().sum(axis=1) >= 2]
    if table.empty:
        return None
    table = in_reading_order(table.reset_index().assign(phase=phase)[[*keys, "phase", *frames]])
    table = table.drop(columns="phase").astype(object)
    table = table.where(table.notna(), EMPTY)
    table["implementation"] = table["implementation"].map(implementation_words)
    if "dtype" in table:
        table["dtype"] = table["dtype"].map(dtype_words)
    return Lines(f"{load(stem).title}, {phase_words(phase)} (ms)", table.rename(columns=axis_words))


def _column(frame: pd.DataFrame, keys: list[str], name: str, times) -> pd.Series:
    cells = times(frame)
    index = pd.MultiIndex.from_frame(frame[keys])
    return pd.Series(cells.to_numpy(), index, name=name)[~index.duplicated(keep="last")]
