"""The method page of a report: machine, ceilings, model sizes, noise floors, rows, cost.

A ceiling is a rate that the machine reaches in a matmul or copy alone. A noise floor is how far
apart two processes of the same code are.
"""

from __future__ import annotations

from dataclasses import replace

import pandas as pd

from lmperf.benchmarks import stems
from lmperf.names import dtype_words, in_order, size_words
from lmperf.reporting import gates, machine, marks, repeatability
from lmperf.reporting.ceilings import (
    COPY,
    MATMUL,
    SUSTAINED,
    ceilings,
    data_sheet,
    matmul_ceiling,
    rows,
)
from lmperf.reporting.evidence import MachineEvidence
from lmperf.reporting.findings import PAGE, TRUST, Finding, NotMeasured, always
from lmperf.reporting.jobs import jobs_of, rows_by_job
from lmperf.reporting.numbers import counted, significant
from lmperf.reporting.sections import Section
from lmperf.reporting.side_by_side import Beside, each, rate, side_by_side, time
from lmperf.reporting.tables import (
    Owed,
    TableGroup,
    from_frame,
    kernel_times,
    number_cell,
    status_cells,
    value_cells,
)
from lmperf.results import DERIVED, HIGHER, Table
from lmperf.transformer.sizes import COURSES

CEILINGS = (
    "Single calls: median (interval over rounds; repetitions). Sustained: calls back to back. A"
    " copy is named by the ratio of the bytes that it reads to those that it writes."
)
INSIDE = {
    "timing_s": "warm-up and repetitions",
    "sustained_s": "steps back to back",
    "first_calls_s": "first calls, compilation",
    "observing_s": "observations",
}
OUTSIDE = {
    "preparing_s": "preparing",
    "checking_s": "gates",
    "memory_s": "memory",
    "references_s": "references",
    "start_s": "start, imports",
    "other_s": "other",
}


def ceilings_table(evidence: MachineEvidence) -> Table | None:
    """The table of ceilings: times and rates of matmuls and copies, single calls and sustained."""
    frame = rows(evidence)
    if frame is None:
        return None
    burst, sustained = (frame[(frame["load"] == SUSTAINED) == kept] for kept in (False, True))
    shown, names = gates.shown(sustained), marks.names_of(sustained)
    lasting = value_cells(sustained, sustained["tflops"])
    lasting = [replace(cell, marks=of) for cell, of in zip(lasting, names, strict=True)]
    lasting = pd.Series(lasting, sustained.index, dtype=object)
    moved = value_cells(burst, burst["rate"].where(~_matmuls(burst)))
    columns = [
        time("time", kernel_times(burst), "burst"),
        _tflops("TFLOP/s", value_cells(burst, burst["tflops"]), "burst.tflops"),
        rate("read + write", moved, "burst.bandwidth", "GB/s"),
        _clock("clock", burst, "burst.clock"),
        _tflops(
            "sustained TFLOP/s",
            lasting.where(shown, status_cells(sustained)),
            "sustained.tflops",
        ),
        _clock("its clock", sustained, "sustained.clock"),
    ]
    cell = [name for name in ("operation", "dtype", "shape") if name in frame]
    caption = "Ceilings: what this machine reaches with nothing else to do"
    return side_by_side(caption, frame, cell, columns, CEILINGS)


def _tflops(header: str, cells: pd.Series, name: str) -> Beside:
    return Beside(header, cells, name, "TFLOP/s", "significant", HIGHER, DERIVED)


def _clock(what: str, frame: pd.DataFrame, name: str) -> Beside:
    cells = value_cells(frame, frame["clock_mhz"], "{:.0f}".format)
    return Beside(f"{what} (MHz)", cells, name, "MHz", "whole")


def _matmuls(frame: pd.DataFrame) -> pd.Series:
    return frame["operation"] == MATMUL


def sheet_table(evidence: MachineEvidence) -> Table | None:
    """The table of the data sheet's rates for each dtype and for memory; None without a sheet."""
    sheet = data_sheet(evidence)
    if sheet is None:
        return None
    line = {
        **{name: number_cell(rate, "{:g}".format) for name, rate in sheet.tflops.items()},
        "memory": number_cell(sheet.bandwidth_gbps, "{:,.0f}".format),
        "clock": number_cell(sheet.clock_mhz, "{:g}".format),
        "source": sheet.source,
    }
    headers = {
        **{dtype: f"{dtype_words(dtype)} (TFLOP/s)" for dtype in sheet.tflops},
        "memory": "memory (GB/s)",
        "clock": "clock (MHz)",
    }
    frame = pd.DataFrame([line])
    note = "Dense rates, at the boost clock of the matrix units; float32 without them."
    return from_frame("The data sheet of this device", frame, note, headers=headers)


def sizes_table(evidence: MachineEvidence) -> Table | None:
    """The table of model sizes and their names in each course; None if no model was measured."""
    if not any("size" in frame for frame in evidence.present().values()):
        return None
    named = dict.fromkeys(size for names in COURSES.values() for size in names.values())
    lines = [{"parameters": size, "here": size_words(size), **_in_courses(size)} for size in named]
    headers = {"here": "this report", **{f"course.{year}": f"course of {year}" for year in COURSES}}
    note = "Courses call different sizes by the same name."
    return from_frame("Names of the model sizes", pd.DataFrame(lines), note, headers=headers)


def _in_courses(size: str) -> dict[str, str]:
    """Column of each course -> the course's name for a model size; a dash if it has none."""
    return {
        f"course.{year}": next((name for name in names if names[name] == size), "–")
        for year, names in COURSES.items()
    }


def cost_table(evidence: MachineEvidence) -> Table | None:
    """The table of seconds spent per benchmark and in total; None if no job was recorded."""
    jobs = jobs_of(evidence)
    if jobs.empty:
        return None
    columns = ["wall_s", *INSIDE, *OUTSIDE]
    # Jobs recorded before a kind of work was counted lack its column.
    known = jobs.reindex(columns=["stem", *columns], fill_value=0.0)
    sums = known.groupby("stem")[columns].sum()
    counts = jobs.groupby("stem").size()
    lines = [_cost_line(str(stem), int(counts[stem]), row) for stem, row in sums.iterrows()]
    lines.append(_cost_line("all", len(jobs), sums.sum()))
    by_job = rows_by_job(evidence)
    known = int(by_job[evidence.cost["stem"] != repeatability.STEM].sum())
    total = machine.rows(evidence)
    replaced = evidence.cost.drop(jobs.index)
    notes = [
        ""
        if known == total
        else f"The cost of {known:,} of {total:,} rows; that of the others was not recorded.",
        f"Left out: {counted(len(replaced), 'job')} ({significant(replaced['wall_s'].sum())} s) of"
        " which no row is left, since all were measured again or dropped."
        if len(replaced)
        else "",
    ]
    note = " ".join(filter(None, notes))
    headers = {**INSIDE, **OUTSIDE}
    caption = "Seconds of measuring, by benchmark"
    return from_frame(caption, pd.DataFrame(lines), note, headers=headers)


def _cost_line(stem: str, jobs: int, row: pd.Series) -> dict:
    seconds = {name: number_cell(row[name]) for name in (*INSIDE, *OUTSIDE)}
    wall = number_cell(row["wall_s"])
    return {"benchmark": stem, "jobs": jobs, "wall": wall, **seconds}


def _limits(evidence: MachineEvidence) -> dict:
    if not evidence.present():
        raise NotMeasured
    red = machine.red_gates(evidence)
    return {
        "red": sum(map(len, red.values())),
        "stale": sum(map(len, evidence.stale.values())),
        "missing": sum(map(len, evidence.missing.values())),
        "gated": machine.gated(evidence),
        "loaded": machine.marked(evidence).get("loaded", 0),
        "marks": marks.counted_words(machine.marked(evidence)),
    }


# The limits of a report, the strongest first.
LIMITS = ("stale", "missing", "red", "loaded", "marks")


def _strongest(values: dict) -> str:
    return next((kind for kind in LIMITS if values[kind]), "none")


def _balance(evidence: MachineEvidence) -> dict:
    found = ceilings(evidence)
    rates = {dtype: rate for (operation, dtype), rate in found.items() if operation == MATMUL}
    copies = [rate for (operation, _), rate in found.items() if operation == COPY]
    if not copies or not rates:
        raise NotMeasured
    bandwidth = max(copies)
    order = in_order("dtype", rates)
    lasting = {dtype: matmul_ceiling(evidence, dtype, SUSTAINED) for dtype in order}
    return {
        "bandwidth": bandwidth,
        "rates": [(dtype_words(d), rates[d], 1e3 * rates[d] / bandwidth) for d in order],
        "sustained": [(dtype_words(d), r) for d, r in lasting.items() if r and r != rates[d]],
    }


# "Kernels repeat within 1 %, host-bound steps within 11 %"
_REPEAT = (
    "{% for words, far in kinds %}{{ words | capitalize if loop.first else words }}"
    "{{ ' repeat' if loop.first }} within {{ far }} %{{ ', ' if not loop.last }}{% endfor %}"
)

SECTION = Section(
    title="Method",
    order=80,
    in_write_up=False,
    also=stems(),
    findings=(
        Finding(
            name="repeatability",
            question="How far do the times of this report repeat in another process?",
            values=repeatability.values,
            answer=repeatability.answer,
            answers={
                "all": _REPEAT + " (R1).",
                "some_marked": _REPEAT + " (R1, without {{ left_out }}).",
                "unknown": "How far times repeat is unknown: {{ marked | count('row') }} measured"
                " twice {{ 'was' if marked == 1 else 'were' }} disturbed by other work or drift.",
            },
            place=TRUST,
        ),
        Finding(
            name="limits",
            question="What is the strongest limit of this report?",
            values=_limits,
            answer=_strongest,
            answers={
                "stale": "{{ stale | count('measurement') }} stale: the code or the environment"
                " has changed since.",
                "missing": "{{ missing | count('measurement') }} of the grid missing.",
                "red": "{{ red }} of {{ gated | count('checked row') }} failed.",
                "loaded": "Other processes used this machine while {{ loaded | count('row') }}"
                " {{ 'was' if loaded == 1 else 'were' }} measured.",
                "marks": "{{ marks }}; all {{ gated | count('checked row') }} passed.",
                "none": "All {{ gated | count('checked row') }} passed; nothing is stale or"
                " missing.",
            },
            place=PAGE,
        ),
        Finding(
            name="balance",
            question="From how many FLOPs per byte on is work compute-bound?",
            values=_balance,
            answer=always,
            answers={
                "is": "A copy moves {{ bandwidth | sig }} GB/s; a large matrix product runs at"
                " {% for words, rate, flops in rates %}{{ rate | sig }} TFLOP/s in {{ words }}"
                "{{ ', ' if not loop.last }}{% endfor %}"
                "{% if sustained %} in single calls, and back to back at"
                " {% for words, rate in sustained %}{{ rate | sig }} in {{ words }}"
                "{{ ', ' if not loop.last }}{% endfor %}{% endif %}. Work with fewer than"
                " {% for words, rate, flops in rates %}{{ flops | sig }} ({{ words }})"
                "{{ ', ' if not loop.last }}{% endfor %} FLOPs per byte is memory-bound.",
            },
        ),
    ),
    tables=(
        TableGroup(
            "R1", repeatability.TITLE, repeatability.tables, Owed(counted=repeatability.counts)
        ),
        TableGroup("", "The machine", lambda e: each(machine.facts_table(e))),
        TableGroup("", "Ceilings", lambda e: each(ceilings_table(e), sheet_table(e))),
        TableGroup("", "Model sizes", lambda e: each(sizes_table(e))),
        TableGroup("", "Noise floors", lambda e: each(machine.floors_table(e))),
        TableGroup(
            "", "Rows and commits", lambda e: [machine.counts_table(e), machine.commits_table(e)]
        ),
        TableGroup("", "Cost", lambda e: each(cost_table(e))),
    ),
)
