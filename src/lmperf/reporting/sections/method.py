"""How it was measured: the machine, what it can do at most, rows, noise floors, commits, cost."""

from __future__ import annotations

import pandas as pd

from lmperf.benchmarks import stems
from lmperf.names import dtype_words, in_order
from lmperf.reporting import gates, machine, marks
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
from lmperf.reporting.findings import PAGE, Finding, NotMeasured, always
from lmperf.reporting.numbers import percent, significant
from lmperf.reporting.sections import Section
from lmperf.reporting.side_by_side import Beside, each, side_by_side
from lmperf.reporting.tables import Lines, Table, kernel_times, status_words, value_cells

CEILINGS = (
    "Single calls: median (interval over rounds; repetitions). Sustained: back to back. A copy is"
    " named by the bytes that it reads to those that it writes."
)
INSIDE = {
    "timing_s": "warm-up and repetitions",
    "first_calls_s": "first calls, compilation",
    "observing_s": "observations",
}
OUTSIDE = {
    "preparing_s": "preparing",
    "checking_s": "gates",
    "memory_s": "memory",
    "start_s": "start, imports",
    "other_s": "other",
}


def ceilings_table(evidence: MachineEvidence) -> Lines | None:
    """One line per operation, dtype and shape: time and rate of single calls, and sustained."""
    frame = rows(evidence)
    if frame is None:
        return None
    burst, sustained = (frame[(frame["load"] == SUSTAINED) == kept] for kept in (False, True))
    shown = gates.shown(sustained)
    lasting = value_cells(sustained, sustained["tflops"]) + marks.signs(sustained)
    columns = [
        Beside("time (ms)", kernel_times(burst)),
        Beside("TFLOP/s", value_cells(burst, burst["tflops"])),
        Beside("read + write (GB/s)", value_cells(burst, burst["rate"].where(~_matmuls(burst)))),
        Beside("clock (MHz)", value_cells(burst, burst["clock_mhz"], "{:.0f}".format)),
        Beside("sustained TFLOP/s", lasting.where(shown, status_words(sustained))),
        Beside("its clock (MHz)", value_cells(sustained, sustained["clock_mhz"], "{:.0f}".format)),
    ]
    cell = [name for name in ("operation", "dtype", "shape") if name in frame]
    caption = "Ceilings: what this machine reaches with nothing else to do"
    return side_by_side(caption, frame, cell, columns, CEILINGS)


def _matmuls(frame: pd.DataFrame) -> pd.Series:
    return frame["operation"] == MATMUL


def sheet_table(evidence: MachineEvidence) -> Lines | None:
    """What the data sheet promises of each numerics and of memory; None without a sheet."""
    sheet = data_sheet(evidence)
    if sheet is None:
        return None
    rates = {f"{dtype_words(d)} (TFLOP/s)": f"{rate:g}" for d, rate in sheet.tflops.items()}
    bandwidth = f"{sheet.bandwidth_gbps:,.0f}"
    line = {**rates, "memory (GB/s)": bandwidth, "clock (MHz)": f"{sheet.clock_mhz:g}"}
    frame = pd.DataFrame([{**line, "source": sheet.source}])
    note = "Dense rates, at the boost clock of the matrix units; float32 without them."
    return Lines("The data sheet of this device", frame, note)


def cost_table(evidence: MachineEvidence) -> Lines | None:
    """One line a benchmark and their sum; None where no job was recorded."""
    jobs = jobs_of(evidence)
    if jobs.empty:
        return None
    columns = ["wall_s", *INSIDE, *OUTSIDE]
    sums = jobs.groupby("stem")[columns].sum()
    counts = jobs.groupby("stem").size()
    lines = [_cost_line(str(stem), int(counts[stem]), row) for stem, row in sums.iterrows()]
    lines.append(_cost_line("all", len(jobs), sums.sum()))
    total, known = machine.rows(evidence), int(_rows_by_job(evidence).sum())
    note = (
        ""
        if known == total
        else f"Of {known:,} of {total:,} rows; what the others cost was not recorded."
    )
    return Lines("Seconds of measuring, by benchmark", pd.DataFrame(lines), note)


def _cost_line(stem: str, jobs: int, row: pd.Series) -> dict:
    seconds = {words: significant(row[name]) for name, words in {**INSIDE, **OUTSIDE}.items()}
    inside = percent(row[list(INSIDE)].sum() / row["wall_s"])
    wall = significant(row["wall_s"])
    return {"benchmark": stem, "jobs": jobs, "wall": wall, **seconds, "inside measurement": inside}


def jobs_of(evidence: MachineEvidence) -> pd.DataFrame:
    """The jobs from which a row of the evidence stems."""
    if evidence.cost is None:
        return pd.DataFrame(columns=["stem", "wall_s"])
    return evidence.cost[_rows_by_job(evidence) > 0]


def _rows_by_job(evidence: MachineEvidence) -> pd.Series:
    """How many rows of the evidence were measured while each job ran."""
    jobs = evidence.cost
    begin, end = _at(jobs["started_at"]).dt.floor("s"), _at(jobs["finished_at"]).dt.ceil("s")
    counts = pd.Series(0, jobs.index)
    for stem, own in jobs.groupby("stem"):
        frame = evidence.frame(str(stem))
        if frame is not None:
            at = _at(frame["measured_at"])
            for job in own.index:
                counts[job] = int(((at >= begin[job]) & (at <= end[job])).sum())
    return counts


def _at(times: pd.Series) -> pd.Series:
    """Points in time; of none what is no such point."""
    return pd.to_datetime(times, format="ISO8601", errors="coerce", utc=True)


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


# Strongest first.
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


SECTION = Section(
    title="Method",
    order=80,
    in_write_up=False,
    also=stems(),
    findings=(
        Finding(
            name="limits",
            question="What is the strongest limit of this report?",
            values=_limits,
            answer=_strongest,
            answers={
                "stale": "{{ stale | count('measurement') }} stale: code or environment has"
                " changed since they were taken.",
                "missing": "{{ missing | count('measurement') }} of the grid are not there yet.",
                "red": "{{ red }} of {{ gated | count('checked row') }} failed.",
                "loaded": "Other processes used this machine while {{ loaded | count('row') }}"
                " {{ 'was' if loaded == 1 else 'were' }} taken.",
                "marks": "{{ marks }}; all {{ gated | count('checked row') }} are right.",
                "none": "All {{ gated | count('checked row') }} are right; nothing is stale or"
                " missing.",
            },
            place=PAGE,
        ),
        Finding(
            name="balance",
            question="From how many FLOPs a byte on is work bound by arithmetic?",
            values=_balance,
            answer=always,
            answers={
                "is": "A copy moves {{ bandwidth | rounded }} GB/s; a large matrix product runs at"
                " {% for words, rate, flops in rates %}{{ rate | sig }} TFLOP/s in {{ words }}"
                "{{ ', ' if not loop.last }}{% endfor %}"
                "{% if sustained %} in single calls, and back to back at"
                " {% for words, rate in sustained %}{{ rate | sig }} in {{ words }}"
                "{{ ', ' if not loop.last }}{% endfor %}{% endif %}. Work with fewer than"
                " {% for words, rate, flops in rates %}{{ flops | sig }} ({{ words }})"
                "{{ ', ' if not loop.last }}{% endfor %} FLOPs a byte is bound by memory.",
            },
        ),
    ),
    tables=(
        Table("", "The machine", lambda e: each(machine.facts_table(e))),
        Table("", "Ceilings", lambda e: each(ceilings_table(e), sheet_table(e))),
        Table("", "Noise floors", lambda e: each(machine.floors_table(e))),
        Table(
            "", "Rows and commits", lambda e: [machine.counts_table(e), machine.commits_table(e)]
        ),
        Table("", "Cost", lambda e: each(cost_table(e))),
    ),
)
