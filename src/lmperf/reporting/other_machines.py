"""What several machines have in common: their ceilings, a step of each size, and shared cells."""

from __future__ import annotations

from collections.abc import Sequence

import pandas as pd

from lmperf.benchmark import Timed
from lmperf.benchmarks import load, stems
from lmperf.names import phase_words, value_words
from lmperf.reporting import machine
from lmperf.reporting.ceilings import BURST, MATMUL, STEM, SUSTAINED, ceilings
from lmperf.reporting.coverage import State
from lmperf.reporting.evidence import MachineEvidence, groups, having
from lmperf.reporting.numbers import EMPTY
from lmperf.reporting.side_by_side import side_by_side, time
from lmperf.reporting.tables import TableGroup, from_frame, medians, number_cells
from lmperf.results import Table

# No section makes this table, since it needs several machines; its page is next to their folders.
TABLE = TableGroup("E5", "The same cells on several machines", lambda evidence: [])
PAGE = "machines.md"
NOTE = "Medians. Their intervals are on the pages of each machine."


def machines_lines(machines: Sequence[MachineEvidence]) -> Table | None:
    """A table of all machines: device, software, date and a link to the write-up; None for none."""
    if not machines:
        return None
    headers = {"triton": "Triton", "gates_failed": "gates failed"}
    frame = pd.DataFrame([_line(evidence) for evidence in machines])
    return from_frame("Machines with evidence", frame, headers=headers)


def _line(evidence: MachineEvidence) -> dict:
    facts = machine.newest(evidence)
    return {
        "machine": f"[{evidence.name}]({evidence.link}/report.md)",
        "device": machine.device_words(evidence),
        "torch": facts.get("torch") or EMPTY,
        "triton": facts.get("triton") or EMPTY,
        "measured": str(facts.get("measured_at") or EMPTY)[:10],
        "rows": f"{machine.rows(evidence):,}",
        "gates_failed": sum(map(len, machine.red_gates(evidence).values())),
    }


def side_by_side_steps(machines: Sequence[MachineEvidence]) -> Table | None:
    """A table by size: eager float32 train step at the longest context that machines share."""
    plain = {"phase": "train_step", "implementation": "eager", "dtype": "float32"}
    rows = _shared(having(_rows(machines, "end_to_end"), **plain))
    if rows.empty:
        return None
    longest = rows.groupby("size")["context_length"].transform("max")
    return _beside("end_to_end", rows[rows["context_length"] == longest])


def state(machines: Sequence[MachineEvidence]) -> State:
    """The state of table E5: how many of all cells were measured on at least two machines."""
    found = [(_cell(stem), rows) for stem, rows in _timed(machines).items()]
    owed = sum(len(rows[cell].drop_duplicates()) for cell, rows in found)
    shared = sum(len(_shared(rows)[cell].drop_duplicates()) for cell, rows in found)
    words = "measured on at least two machines" if shared else "no shared cell"
    return State(TABLE, f"../{PAGE}", shared, owed, words, False)


def indexed(states: Sequence[State], machines: Sequence[MachineEvidence]) -> list[State]:
    """The states of a machine's tables, with the state of table E5 inserted in numerical order.

    Without two machines, as on the pages of each machine, the table is left out.
    """
    if len(machines) < 2:
        return list(states)
    letter = TABLE.id[0]
    before = [i for i, s in enumerate(states) if letter <= s.table.id < TABLE.id]
    place = before[-1] + 1 if before else len(states)
    return [*states[:place], state(machines), *states[place:]]


def ceilings_by_machine(machines: Sequence[MachineEvidence]) -> Table | None:
    """A table of ceilings: a line for each operation, dtype and load, a column for each machine.

    None if fewer than two machines have ceilings.
    """
    found = {e.name: pd.Series(rates) for e in machines if (rates := _best(e))}
    if len(found) < 2:
        return None
    keys = ["operation", "dtype", "load"]
    rates = pd.DataFrame(found).apply(number_cells).rename_axis(keys).reset_index()
    rates = pd.concat([rows for *_, rows in groups(rates, *keys)])
    rates.insert(3, "unit", rates["operation"].map({MATMUL: "TFLOP/s"}).fillna("GB/s"))
    words = {name: [value_words(name, value) for value in rates[name]] for name in keys}
    headers = {"dtype": "numerics"}
    return from_frame("Ceilings by machine", rates.assign(**words), "", [*found], headers=headers)


def _best(evidence: MachineEvidence) -> dict[tuple[str, str, str], float]:
    """(operation, dtype, load) -> best rate; rows measured before ``load`` existed are bursts."""
    burst, sustained = (ceilings(evidence, load) for load in (BURST, SUSTAINED))
    has_loads = evidence.frame(STEM) is not None and "load" in evidence.frame(STEM)
    loads = {BURST: burst, **({SUSTAINED: sustained} if has_loads else {})}
    return {(*key, load): rate for load, found in loads.items() for key, rate in found.items()}


def _timed(machines: Sequence[MachineEvidence]) -> dict[str, pd.DataFrame]:
    """Benchmark -> rows of all machines, for the benchmarks that measure times, except ceilings."""
    timed = [stem for stem in stems() if stem != STEM and isinstance(load(stem), Timed)]
    return {stem: _rows(machines, stem) for stem in timed}


def _cell(stem: str) -> list[str]:
    return [*(axis.name for axis in load(stem).axes), "implementation"]


def _rows(machines: Sequence[MachineEvidence], stem: str) -> pd.DataFrame:
    """All rows of a benchmark: cell, phase, machine and ``time`` (a cell: median or status).

    Evidence that lacks an axis of today's benchmark is left out: its cells are different ones.
    """
    columns = [*_cell(stem), "phase"]
    parts = [
        frame[columns].assign(machine=evidence.name, time=medians(frame))
        for evidence in machines
        if (frame := evidence.frame(stem)) is not None and set(columns) <= set(frame.columns)
    ]
    empty = pd.DataFrame(columns=[*columns, "machine", "time"])
    return pd.concat(parts, ignore_index=True) if parts else empty


def _shared(rows: pd.DataFrame) -> pd.DataFrame:
    """The rows whose cell and phase were measured on at least two machines."""
    keys = list(rows.columns.drop(["machine", "time"]))
    return rows[rows.groupby(keys, dropna=False)["machine"].transform("nunique") >= 2]


def _beside(stem: str, rows: pd.DataFrame) -> Table | None:
    """A line for each cell, a column for each phase and machine."""
    columns = [
        time(f"{phase_words(phase)}, {name}", having(part, machine=name)["time"], f"{phase}.{name}")
        for phase, part in groups(rows, "phase")
        for name in rows["machine"].unique()
    ]
    return side_by_side(load(stem).title, rows, _cell(stem), columns, NOTE)
