"""E3, eager against compiled, and E4, float32 against mixed precision: times side by side."""

from __future__ import annotations

import pandas as pd

from lmperf.reporting.evidence import MachineEvidence, in_order
from lmperf.reporting.numbers import EMPTY, absent, dtype_words, phase_words, rounded, significant
from lmperf.reporting.sections.end_to_end.variants import BASE, CELL, STEM, Variant, against
from lmperf.reporting.speedup import interval_words
from lmperf.reporting.tables import joined, markdown, shared_axes, timing_cells, value_cells

COMPILED = tuple(
    Variant(name, dtype)
    for dtype in ("float32", "tf32")
    for name in ("compiled", "compiled_blocks")
)
LOWER = ("tf32", "autocast_bfloat16")
PHASES = ("train_step", "forward")
HEADERS = {"context_length": "context (tokens)"}
PAID_BACK = "paid back after (steps)"


def compiling_tables(evidence: MachineEvidence) -> str:
    """E3, a table a phase: eager, then each way of compiling with speed-up and first calls."""
    made = [_table(evidence, phase, BASE, COMPILED, "Table E3") for phase in PHASES]
    return "\n\n".join(text for text in made if text)


def numerics_tables(evidence: MachineEvidence) -> str:
    """E4, a table a phase and implementation: float32, then each lower precision."""
    names = in_order("implementation", evidence.frame(STEM)["implementation"])
    made = [
        _table(
            evidence, phase, Variant(name, "float32"), [Variant(name, d) for d in LOWER], "Table E4"
        )
        for phase in PHASES
        for name in names
    ]
    return "\n\n".join(text for text in made if text)


def _table(evidence: MachineEvidence, phase: str, base: Variant, others, name: str) -> str:
    frame = evidence.frame(STEM)
    frame = frame[frame["phase"] == phase]
    present = [other for other in others if not other.of(frame).empty]
    if base.of(frame).empty or not present:
        return ""
    frame = pd.concat([base.of(frame), *(other.of(frame) for other in present)])
    constant, rows = shared_axes(frame, CELL)
    table = _times(frame, rows, base)
    ratios = []
    for other in present:
        speed = against(evidence, other, base)
        table = joined(table, _columns(frame, rows, other, base, speed.words), rows)
        ratios.append(speed.within(other.of(frame)))
    interval = interval_words(pd.concat(ratios))
    brackets = f" In brackets: {interval}." if interval else ""
    caption = f"{name}: {phase_words(phase)}, against {base.words}{constant}. Mean ± std.{brackets}"
    return markdown(table.rename(columns=HEADERS), caption)


def _times(frame: pd.DataFrame, rows: list[str], base: Variant) -> pd.DataFrame:
    own = base.of(frame)
    times = own[rows].assign(**{f"{base.words} (ms)": timing_cells(own)})
    work = own["flops"] / 1e12
    times["work (TFLOP)"] = [EMPTY if absent(flops) else rounded(flops) for flops in work]
    return times.drop_duplicates(rows, keep="last")


def _columns(
    frame: pd.DataFrame, rows: list[str], variant: Variant, base: Variant, words: pd.Series
) -> pd.DataFrame:
    own = variant.of(frame)
    table = own[rows].assign(**{f"{variant.words} (ms)": timing_cells(own)})
    table[_versus(variant, base)] = words.loc[own.index]
    if variant.implementation != base.implementation:
        table[f"first calls, {variant.words} (s)"] = value_cells(own, own["compile_s"])
        if (own["phase"] == "train_step").all():
            table[f"{PAID_BACK}, {variant.words}"] = _paid_back(frame, own, base)
    return table.drop_duplicates(rows, keep="last")


def _versus(variant: Variant, base: Variant) -> str:
    """What a ratio compares: never bare where the numerics differ."""
    if variant.dtype == base.dtype:
        return f"speed-up, {variant.words}"
    if variant.implementation == base.implementation:
        return f"{dtype_words(variant.dtype)} vs {dtype_words(base.dtype)}"
    return f"{variant.words} vs {base.words}"


def _paid_back(frame: pd.DataFrame, own: pd.DataFrame, base: Variant) -> pd.Series:
    """Steps after which the seconds of the first calls are saved; a dash where nothing is."""
    theirs = base.of(frame).drop_duplicates(CELL, keep="last").set_index(CELL)["median_ms"]
    saved = theirs.reindex(pd.MultiIndex.from_frame(own[CELL])).to_numpy() - own["median_ms"]
    steps = 1e3 * own["compile_s"] / saved.where(saved > 0)
    return value_cells(own, steps, lambda value: significant(value, 2))
