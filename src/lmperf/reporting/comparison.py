"""Machines side by side: their ceilings, and the cells that more than one of them measured (E5).

Times of two machines were never taken in turn, so they stand beside each other and no ratio is
made.
"""

from __future__ import annotations

import pandas as pd

from lmperf.reporting import gates
from lmperf.reporting.ceilings import ceilings
from lmperf.reporting.claims import Claim, NotMeasured
from lmperf.reporting.evidence import MachineEvidence, axes, in_reading_order
from lmperf.reporting.machine import device_words, environments, failed_gates
from lmperf.reporting.numbers import (
    EMPTY,
    dtype_words,
    implementation_words,
    phase_words,
    significant,
)
from lmperf.reporting.tables import markdown, timing_cells


def machines_table(machines: list[MachineEvidence]) -> str:
    """Every machine with evidence: device, software, when, and a link to its report."""
    if not machines:
        return ""
    table = pd.DataFrame([_machine_line(evidence) for evidence in machines])
    return markdown(table, "Machines with evidence", left=list(table.columns)[:-2])


def _machine_line(evidence: MachineEvidence) -> dict:
    newest = (list(environments(evidence).values()) or [{}])[-1]
    rows = sum(len(f) for stem in evidence.frames if (f := evidence.frame(stem)) is not None)
    return {
        "machine": f"[{evidence.machine}]({evidence.machine}/report.md)",
        "device": device_words(evidence),
        "kind": newest.get("kind") or EMPTY,
        "torch": newest.get("torch") or EMPTY,
        "triton": newest.get("triton") or EMPTY,
        "measured at": newest.get("measured_at") or EMPTY,
        "rows": rows,
        "gates failed": len(failed_gates(evidence)),
    }


def ceilings_table(machines: list[MachineEvidence]) -> str:
    """One line per operation and dtype, one column a machine; empty for fewer than two machines."""
    found = {evidence.machine: ceilings(evidence) for evidence in machines}
    found = {name: rates for name, rates in found.items() if rates}
    if len(found) < 2:
        return ""
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
    return markdown(pd.DataFrame(lines), "Ceilings by machine", left=["numerics", "unit"])


def cells_tables(machines: list[MachineEvidence]) -> str:
    """Per benchmark and phase: the cells that at least two machines have rows of (Table E5)."""
    stems = sorted({stem for evidence in machines for stem in evidence.frames} - {"ceilings"})
    made = [text for stem in stems for text in _benchmark_tables(machines, stem)]
    return "\n\n".join(made)


def _fastest(machines: list[MachineEvidence]) -> dict:
    frames = {evidence.machine: evidence.frame("end_to_end") for evidence in machines}
    frames = {name: frame for name, frame in frames.items() if frame is not None}
    if len(frames) < 2:
        raise NotMeasured("fewer than two machines have evidence of `end_to_end`")
    keys = _shared_keys(list(frames.values()))
    shown = {name: frame[gates.shown(frame)] for name, frame in frames.items()}
    times = [frame[[*keys, "median_ms"]].assign(machine=name) for name, frame in shown.items()]
    table = pd.concat(times).pivot_table("median_ms", keys, "machine", aggfunc="last")
    table = table[table.notna().sum(axis=1) >= 2]
    if table.empty:
        raise NotMeasured("no cell of `end_to_end` was measured on more than one machine")
    first = table.idxmin(axis=1).value_counts()
    return {
        "cells": len(table),
        "machines": list(table.columns),
        "first": first.index[0],
        "won": int(first.iloc[0]),
        "others": list(first.index[1:]),
    }


CLAIMS = (
    Claim(
        name="fastest",
        text="Of the {{ cells }} rows of the models that at least two machines have"
        " ({{ machines | listed }}), `{{ first }}` has the shortest time in all.",
        values=_fastest,
        holds=lambda v: v["won"] == v["cells"],
        about="which machine is the fastest",
        instead="It has it in {{ won }}; the others are those of {{ others | listed }}.",
    ),
)


def _benchmark_tables(machines: list[MachineEvidence], stem: str) -> list[str]:
    frames = {evidence.machine: evidence.frame(stem) for evidence in machines}
    frames = {n: f for n, f in frames.items() if f is not None and f["mean_ms"].notna().any()}
    if len(frames) < 2:
        return []
    keys = _shared_keys(list(frames.values()))
    rows = pd.concat([_cells(frame, keys, name) for name, frame in frames.items()])
    table = rows.drop_duplicates([*keys, "machine"], keep="last")
    table = table.set_index([*keys, "machine"])["cell"].unstack("machine")
    table = table.reindex(columns=list(frames))
    table = table[table.notna().sum(axis=1) >= 2]
    if table.empty:
        return []
    table = in_reading_order(table.reset_index()[[*keys, *frames]])
    return [_phase_table(rows, stem, phase) for phase, rows in table.groupby("phase", sort=False)]


def _shared_keys(frames: list[pd.DataFrame]) -> list[str]:
    common = [name for name in axes(frames[0]) if all(name in f.columns for f in frames)]
    return [*common, "implementation", "phase"]


def _cells(frame: pd.DataFrame, keys: list[str], name: str) -> pd.DataFrame:
    timed = frame["median_ms"].notna() | (frame["status"] != "ok")
    return frame[keys].assign(machine=name, cell=timing_cells(frame))[timed]


def _phase_table(rows: pd.DataFrame, stem: str, phase: str) -> str:
    table = rows.drop(columns="phase").astype(object)
    table = table.where(table.notna(), EMPTY)
    table["implementation"] = table["implementation"].map(implementation_words)
    if "dtype" in table.columns:
        table["dtype"] = table["dtype"].map(dtype_words)
    name = "Table E5" if stem == "end_to_end" else "Side by side"
    caption = f"{name}: {stem.replace('_', ' ')}, {phase_words(phase)} (ms, mean ± std)"
    return markdown(table, caption)
