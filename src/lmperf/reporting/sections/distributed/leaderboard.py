"""Table D16 and its finding: the train step of a public leaderboard on several GPUs, beside E8."""

from __future__ import annotations

import pandas as pd

from lmperf.names import implementation_words
from lmperf.reporting import gates
from lmperf.reporting.ceilings import achieved_tflops, sheet_share
from lmperf.reporting.evidence import MachineEvidence, having
from lmperf.reporting.findings import PAGE, Finding, NotMeasured, measured, sound
from lmperf.reporting.numbers import ratio
from lmperf.reporting.sections.end_to_end import leaderboard as alone
from lmperf.reporting.sections.end_to_end.leaderboard import BASELINE_S, BEST_S, MIB_PER_GIB
from lmperf.reporting.side_by_side import each, memory, rate, side_by_side, speedup, step_time, text
from lmperf.reporting.tables import (
    Owed,
    TableGroup,
    number_cells,
    step_note,
    step_times,
    value_cells,
)
from lmperf.results import Table

STEM = "distributed_leaderboard"
CELL = [*alone.CELL, "ranks"]


def tables(evidence: MachineEvidence) -> list[Table]:
    """Table D16: time, rate and peak memory of a step, by strategy."""
    frame = evidence.frame(STEM)
    if frame is None:
        return []
    share, tflops = sheet_share(evidence, frame), achieved_tflops(frame)
    one = _one_gpu(evidence)
    over = frame["median_ms"].rdiv(float("nan") if one is None else one["median_ms"])
    columns = [
        text(
            "blocks that keep matmuls",
            number_cells(frame["matmul_blocks"], "{:g}".format),
            "matmul_blocks",
        ),
        step_time("step", step_times(frame), "train_step"),
        speedup("one GPU / this", value_cells(frame, over, ratio), "one_gpu.over.this"),
        rate("rate of all GPUs", value_cells(frame, tflops), "train_step.rate", "TFLOP/s"),
        rate("MFU", value_cells(frame, _mfu(frame, share)), "train_step.mfu", "%"),
        memory("peak memory of a GPU", value_cells(frame, _peak(frame)), "peak", "GiB"),
    ]
    beside = "" if one is None else f" One GPU: the fastest step of E8, {one['median_ms']:,.0f} ms."
    note = (
        f"{step_note(STEM, frame)}{alone.held_clock(frame)} Blocks that do not keep the results of"
        " their matmuls compute them again in the backward. FLOPs: those of the model, without"
        f" recomputation{alone.mfu_of(evidence, frame)}."
        f"{beside} {alone.PUBLISHED}"
    )
    return each(side_by_side("One train step", frame, [*CELL, "implementation"], columns, note))


def _mfu(frame: pd.DataFrame, share: pd.Series) -> pd.Series:
    """Model FLOPs of a GPU over those of its data sheet, in percent."""
    return 100 * share / frame["ranks"]


def _peak(frame: pd.DataFrame) -> pd.Series:
    return frame["peak_mib"] / MIB_PER_GIB


def _one_gpu(evidence: MachineEvidence) -> pd.Series | None:
    """The fastest valid step of one GPU (E8); None if there is none."""
    frame = evidence.frame(alone.STEM)
    frame = None if frame is None else frame[gates.shown(frame) & frame["median_ms"].notna()]
    return None if frame is None or frame.empty else frame.loc[frame["median_ms"].idxmin()]


def _step(evidence: MachineEvidence) -> dict:
    """The fastest step, and by how much it is faster than that of one GPU."""
    rows = sound(evidence, STEM)
    best = rows.loc[measured(rows["median_ms"].dropna()).idxmin()]
    try:
        one = having(sound(evidence, alone.STEM), **{name: best[name] for name in alone.CELL})
        least = measured(one["median_ms"].dropna()).min()
    except NotMeasured:
        least = None
    return {
        "size": best["size"],
        "context": f"{best['context_length']:,.0f}",
        "batch": f"{best['batch']:g}",
        "ranks": int(best["ranks"]),
        "name": implementation_words(best["implementation"]),
        "seconds": best["mean_ms"] / alone.MS_PER_S,
        "over": least / best["median_ms"] if least else None,
        "peak": best["peak_mib"] / MIB_PER_GIB,
    }


_WORDS = (
    "A train step of {{ size }} parameters at context {{ context }}, batch {{ batch }}, takes"
    " {{ seconds | sig }} s on {{ ranks | count('GPU') }}{% if over %}, {{ over | ratio }} as fast"
    " as on one{% endif %} ({{ name }}, {{ peak | sig }} GiB each)"
)
FINDING = Finding(
    name="distributed_leaderboard",
    question="How long does the leaderboard's step take on several GPUs?",
    values=_step,
    answer=lambda v: "beats" if v["seconds"] < BASELINE_S else "behind",
    answers={
        "beats": f"{_WORDS}; the leaderboard's baseline on {alone.PUBLISHED_ON} is {BASELINE_S:g} s"
        f" (best there: {BEST_S:g} s).",
        "behind": f"{_WORDS}, more than the {BASELINE_S:g} s of the leaderboard's baseline on"
        f" {alone.PUBLISHED_ON} (best there: {BEST_S:g} s).",
    },
    place=PAGE,
)
FINDINGS = (FINDING,)
TABLES = (
    TableGroup(
        "D16",
        "A public leaderboard's train step on several GPUs",
        tables,
        Owed(stem=STEM, cell=[*CELL, "implementation"]),
    ),
)
