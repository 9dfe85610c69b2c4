"""Table E8 and its finding: the train step of a public leaderboard, on one device."""

from __future__ import annotations

import pandas as pd

from lmperf.dtypes import dtype_of
from lmperf.names import dtype_words, in_order
from lmperf.reporting import gates, marks
from lmperf.reporting.ceilings import achieved_tflops, sheet_share
from lmperf.reporting.evidence import MachineEvidence, having
from lmperf.reporting.findings import PAGE, Finding, measured, rows_of
from lmperf.reporting.machine import newest
from lmperf.reporting.numbers import Spread, ranged
from lmperf.reporting.sections.end_to_end import ways
from lmperf.reporting.side_by_side import each, memory, rate, side_by_side, speedup, step_time, text
from lmperf.reporting.speedup import Series, resolved, speedup_cells
from lmperf.reporting.tables import (
    Owed,
    TableGroup,
    number_cells,
    step_note,
    step_times,
    value_cells,
)
from lmperf.results import Table
from lmperf.statistics import FASTER

STEM = "leaderboard"
CELL = ["size", "context_length", "batch", "dtype"]
# The step whose blocks keep nothing but their inputs.
BASE = "recompute_all"
# Seconds of a step on the leaderboard of a course of 2026, on `PUBLISHED_ON`.
BASELINE_S, BEST_S, PUBLISHED_ON = 10.0, 3.84, "two B200s"
PUBLISHED = (
    f"On {PUBLISHED_ON} a public leaderboard (course of 2026) lists {BASELINE_S:g} s as the"
    f" baseline and {BEST_S:g} s as the best time of this step."
)
MIB_PER_GIB, MS_PER_S = 1024, 1000


def tables(evidence: MachineEvidence) -> list[Table]:
    """Table E8: time, rate and peak memory of a step, by what its blocks keep."""
    frame = evidence.frame(STEM)
    if frame is None:
        return []
    base, names = Series.of(implementation=BASE), set(frame["implementation"]) - {BASE}
    over = [
        speedup_cells(evidence, STEM, Series.of(implementation=name), base)
        for name in in_order("implementation", names)
    ]
    share, tflops = sheet_share(evidence, frame), achieved_tflops(frame)
    columns = [
        text(
            "blocks that keep matmuls",
            number_cells(frame["matmul_blocks"], "{:g}".format),
            "matmul_blocks",
        ),
        step_time("step", step_times(frame), "train_step"),
        speedup(
            "over recomputing all", pd.concat([pd.Series(dtype=object), *over]), "over.recompute"
        ),
        rate("rate", value_cells(frame, tflops), "train_step.rate", "TFLOP/s"),
        rate("MFU", value_cells(frame, 100 * share), "train_step.mfu", "%"),
        memory("peak memory", value_cells(frame, frame["peak_mib"] / MIB_PER_GIB), "peak", "GiB"),
    ]
    note = (
        f"{step_note(STEM, frame)}{held_clock(frame)} FLOPs: those of the model, without"
        f" recomputation{mfu_of(evidence, frame)}. {PUBLISHED}"
    )
    return each(side_by_side("One train step", frame, [*CELL, "implementation"], columns, note))


def held_clock(frame: pd.DataFrame) -> str:
    """For a note: the clock of the steps, if power or heat held the device back in all of them."""
    timed = frame[gates.shown(frame) & frame["clock_mhz"].notna()]
    if timed.empty or not marks.throttled(timed).all():
        return ""
    words = ranged(Spread.of(timed["clock_mhz"]), "{:,.0f}".format)
    return f" The limit of power or heat held the clock at {words} MHz."


def mfu_of(evidence: MachineEvidence, frame: pd.DataFrame) -> str:
    """For a note: the rate in TFLOP/s that MFU is over, if known, as below the tables of steps."""
    return "".join(
        f"; {words}, in {dtype_words(dtype_of(dtype).matmul)}"
        for dtype in in_order("dtype", frame["dtype"])
        if (words := ways.mfu_words(evidence, dtype))
    )


def _step(evidence: MachineEvidence) -> dict:
    """The fastest step, and by how much it is faster than with everything recomputed."""
    rows = rows_of(evidence, STEM)
    best = rows.loc[measured(rows["median_ms"].dropna()).idxmin()]
    base = Series.of(implementation=BASE)
    found = resolved(evidence, STEM, Series.of(implementation=best["implementation"]), base)
    faster = having(found, verdict=FASTER)
    return {
        "size": best["size"],
        "context": f"{best['context_length']:,.0f}",
        "batch": f"{best['batch']:g}",
        "seconds": best["median_ms"] / MS_PER_S,
        "device": newest(evidence).get("device"),
        "tflops": best["flops"] / best["median_ms"] / 1e9,
        "peak": best["peak_mib"] / MIB_PER_GIB,
        "over": faster["ratio"].iloc[0] if len(faster) else None,
    }


FINDING = Finding(
    name="leaderboard",
    question="How long does a public leaderboard's train step take here?",
    values=_step,
    answer=lambda v: "beats" if v["seconds"] < BASELINE_S else "behind",
    answers={
        answer: "A train step of {{ size }} parameters at context {{ context }}, batch {{ batch }},"
        " takes {{ seconds | sig }} s{{ ' on one %s' % device if device }} ({{ tflops | sig }}"
        " TFLOP/s, {{ peak | sig }} GiB)" + words + ".{% if over %} Keeping what takes long to"
        " recompute makes it {{ over | ratio }} as fast as recomputing every block.{% endif %}"
        for answer, words in {
            "beats": f", less than the {BASELINE_S:g} s of a public leaderboard's baseline on"
            f" {PUBLISHED_ON} (best there: {BEST_S:g} s)",
            "behind": f"; a public leaderboard's baseline on {PUBLISHED_ON} takes {BASELINE_S:g} s"
            f" (best there: {BEST_S:g} s)",
        }.items()
    },
    place=PAGE,
)
TABLE = TableGroup(
    "E8",
    "A public leaderboard's train step",
    tables,
    Owed(stem=STEM, cell=[*CELL, "implementation"]),
)
