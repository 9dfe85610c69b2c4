"""The head; E1: the phases by numerics; E3: compiled; E4: other numerics; E7: other attention."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence

import pandas as pd

from lmperf.names import dtype_words, in_order, phase_words
from lmperf.reporting.evidence import MachineEvidence, having
from lmperf.reporting.findings import NotMeasured
from lmperf.reporting.numbers import percent, rounded, significant
from lmperf.reporting.sections.end_to_end import ways
from lmperf.reporting.sections.end_to_end.ways import BASE, CELL, EAGER, FLOAT32, STEM, STEP, Way
from lmperf.reporting.side_by_side import Beside, each, side_by_side
from lmperf.reporting.speedup import speedup_cells, speedup_text
from lmperf.reporting.tables import STEPS, Lines, Owed, Table, medians, step_times, value_cells

NOTE = "Times: median; the speed-up: median of the ratios of the rounds, with its interval."
FIRST_CALLS = "first calls, compilation and execution (s)"
COMPILED = (ways.WHOLE, ways.BLOCKS)
# Way to run -> the same with another attention.
ATTENTIONS = {
    EAGER: ("sdpa", "triton"),
    ways.WHOLE: ("sdpa_compiled", "triton_compiled"),
    ways.BLOCKS: ("sdpa_compiled_blocks", "triton_compiled_blocks"),
}
MIB_PER_GIB = 1024


def head(evidence: MachineEvidence) -> Lines | None:
    """One line a size at the usual context: the time of each way, and what the fastest reaches."""
    try:
        steps = ways.usual_steps(evidence)
    except NotMeasured:
        return None
    best = ways.fastest(evidence)
    one, ratios = best["way"].nunique() == 1, best.dropna(subset=["ratio"])
    speedups = [speedup_text(row) for row in ratios.itertuples()]
    parameters = (steps["parameters"].dropna() / 1e6).map(lambda value: significant(value, 4))
    columns = [
        Beside("parameters (M)", parameters),
        *(
            Beside(f"{way.words} (ms)", medians(way.rows(steps)))
            for way in sorted(ways.of(steps), key=lambda way: way != BASE)
        ),
        *([] if one else [Beside("best", best["way"])]),
        Beside("best over eager float32", pd.Series(speedups, ratios.index, dtype=object)),
        Beside("tokens/s", value_cells(best, best["rate"], rounded)),
        *_mfu(best),
        Beside("peak (GiB)", value_cells(best, best["peak_mib"] / MIB_PER_GIB)),
    ]
    which = f" Best: {best['way'].iloc[0]}." if one else ""
    note = f"{NOTE}{which} Rate, MFU and peak memory: of the best."
    return side_by_side(phase_words(STEP).capitalize(), steps, CELL, columns, note)


def step_tables(evidence: MachineEvidence) -> list[Lines]:
    """E1, a table a dtype: every phase, and rate, share and peak of the train step."""
    frame = evidence.frame(STEM)
    dtypes = in_order("dtype", frame["dtype"]) if frame is not None else []
    return each(*(_steps(evidence, dtype) for dtype in dtypes))


def _steps(evidence: MachineEvidence, dtype: str) -> Lines | None:
    frame = having(evidence.frame(STEM), dtype=dtype)
    step = ways.with_rates(evidence, having(frame, phase=STEP))
    columns = [
        Beside(f"{phase_words(phase)} (ms)", step_times(having(frame, phase=phase)))
        for phase in in_order("phase", frame["phase"])
    ]
    columns += [
        Beside("tokens/s", value_cells(step, step["rate"], rounded)),
        *_mfu(step),
        Beside("peak memory (MiB)", value_cells(step, step["peak_mib"])),
        Beside("queued (% of the step)", value_cells(step, 100 * ways.queued(step))),
        Beside(FIRST_CALLS, value_cells(step, step["compile_s"])),
    ]
    note = (
        f"{STEPS} Rate, MFU and peak memory: of the train step{ways.denominators(evidence, dtype)}."
    )
    note += _queued(step)
    return side_by_side(dtype_words(dtype), frame, [*CELL, "implementation"], columns, note)


def _mfu(steps: pd.DataFrame) -> list[Beside]:
    return [
        Beside("MFU (%)", value_cells(steps, 100 * steps["share"])),
        Beside("MFU of the data sheet (%)", value_cells(steps, 100 * steps["sheet"])),
    ]


def _queued(step: pd.DataFrame) -> str:
    if ways.queued(step).isna().all():
        return ""
    late = percent(ways.HOST_BOUND, 0)
    return (
        f" Queued: when the host had queued the last work of the step; from {late} on it is the"
        " host that bounds the step, unless a full queue of the device held the host back."
    )


def _compiled(base: Way, other: Way) -> bool:
    """E3: eager beside compiled in the same numerics; beside float32 also compiled TF32."""
    numerics = other.dtype == base.dtype or (base.dtype, other.dtype) == (FLOAT32, ways.TF32)
    return base.implementation == EAGER and other.implementation in COMPILED and numerics


def _numerics(base: Way, other: Way) -> bool:
    """E4: each implementation in float32 beside the other numerics."""
    numerics = base.dtype == FLOAT32 != other.dtype
    return numerics and other.implementation == base.implementation


def _further(base: Way, other: Way) -> bool:
    """E7: plain attention beside others, run in the same way and numerics."""
    others = ATTENTIONS.get(base.implementation, ())
    return other.implementation in others and other.dtype == base.dtype


def _tables(pairs: Callable[[Way, Way], bool]):
    """Evidence -> a table a phase for each base, beside all ways that pair with it."""

    def make(evidence: MachineEvidence) -> list[Lines]:
        frame = evidence.frame(STEM)
        if frame is None:
            return []
        phases = sorted(in_order("phase", frame["phase"]), key=lambda phase: phase != STEP)
        by_phase = [having(frame, phase=phase) for phase in phases]
        bases = [
            way for way in ways.of(frame) if any(pairs(way, other) for other in ways.of(frame))
        ]
        parts = itertools.product(by_phase, bases)
        return each(*(_against(evidence, rows, base, pairs) for rows, base in parts))

    return make


def _against(
    evidence: MachineEvidence, frame: pd.DataFrame, base: Way, pairs: Callable[[Way, Way], bool]
) -> Lines | None:
    """The cells of a phase that both the base and another way were timed at: the times of all, and
    the speed-ups."""
    own, others = base.rows(frame), [way for way in ways.of(frame) if pairs(base, way)]
    if own.empty or not others:
        return None
    timed = _at(pd.concat([other.rows(frame) for other in others]), own)
    own = _at(own, timed)
    columns = [
        Beside(f"{base.words} (ms)", step_times(own)),
        *(column for other in others for column in _columns(evidence, frame, other, base)),
    ]
    caption = f"{phase_words(frame['phase'].iloc[0]).capitalize()}, over {base.words}"
    note = STEPS + _left_out(evidence, pd.concat([own, timed]), others)
    return side_by_side(caption, pd.concat([own, timed]), CELL, columns, note)


def _at(rows: pd.DataFrame, others: pd.DataFrame) -> pd.DataFrame:
    """The rows at a cell of the others."""
    return rows[pd.MultiIndex.from_frame(rows[CELL]).isin(pd.MultiIndex.from_frame(others[CELL]))]


def _left_out(evidence: MachineEvidence, rows: pd.DataFrame, beside: Sequence[Way]) -> str:
    """Which ways have dashes, since no more is configured; not while any cell is missing."""
    lines = len(rows[CELL].drop_duplicates())
    lack = {way.words: lines - len(way.rows(rows)) for way in beside}
    fewer = [f"{words}: {n} of {lines} lines" for words, n in lack.items() if n]
    if not fewer or evidence.missing.get(STEM):
        return ""
    return f" A dash: not configured ({'; '.join(fewer)})."


def _columns(evidence: MachineEvidence, frame: pd.DataFrame, way: Way, base: Way) -> list[Beside]:
    rows, cells = way.rows(frame), speedup_cells(evidence, STEM, way.series, base.series)
    columns = [
        Beside(f"{way.words} (ms)", step_times(rows)),
        Beside(f"{way.words} over {base.words}", cells[cells.index.isin(rows.index)]),
    ]
    # First calls are those of all phases together, and stand once, beside the train step.
    if way.implementation != base.implementation and (rows["phase"] == STEP).all():
        columns.append(Beside(f"{way.words}: {FIRST_CALLS}", value_cells(rows, rows["compile_s"])))
    return columns


def _of(*which: Way) -> Callable[[pd.DataFrame], pd.Series]:
    return lambda frame: frame.index.isin(pd.concat([way.rows(frame) for way in which]).index)


PHASES = Table("E1", "Forward, backward, both and the train step", step_tables)
COMPARED = (
    Table(
        "E3",
        "Eager against compiled",
        _tables(_compiled),
        Owed(lambda frame: frame["implementation"].isin(COMPILED)),
    ),
    Table(
        "E4",
        "Float32 against TF32 and mixed precision",
        _tables(_numerics),
        Owed(_of(Way(EAGER, ways.BF16)), cell=CELL, of=_of(BASE)),
    ),
)
FURTHER = Table(
    "E7",
    "Other attention inside the model",
    _tables(_further),
    Owed(lambda frame: frame["implementation"].isin([*itertools.chain(*ATTENTIONS.values())])),
)
