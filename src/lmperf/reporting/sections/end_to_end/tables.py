"""The head; E1: the phases by numerics; E3: compiled; E4: other numerics; E6: other attention."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pandas as pd

from lmperf.names import dtype_words, in_order, phase_words
from lmperf.reporting.ceilings import SAME_NUMERICS, matmul_ceiling
from lmperf.reporting.evidence import MachineEvidence, having
from lmperf.reporting.findings import NotMeasured
from lmperf.reporting.numbers import rounded, significant
from lmperf.reporting.sections.end_to_end import ways
from lmperf.reporting.sections.end_to_end.ways import CELL, EAGER, FLOAT32, STEM, STEP, TF32, way
from lmperf.reporting.side_by_side import Beside, each, side_by_side
from lmperf.reporting.speedup import Series, speedup_cells, speedup_text
from lmperf.reporting.tables import STEPS, Lines, Owed, Table, medians, step_times, value_cells

NOTE = "Times: median; the speed-up: median of the ratios of the rounds, with its interval."
FIRST_CALLS = "first calls, compilation and execution (s)"
COMPILED = (ways.WHOLE, ways.BLOCKS)
MIB_PER_GIB = 1024
Pairs = list[tuple[Series, list[Series]]]


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
            Beside(f"{ways.words(each)} (ms)", medians(each.rows(steps)))
            for each in sorted(ways.of(steps), key=lambda each: each != ways.BASE)
        ),
        *([] if one else [Beside("best", best["way"])]),
        Beside("best over eager float32", pd.Series(speedups, ratios.index, dtype=object)),
        Beside("tokens/s", value_cells(best, best["rate"], rounded)),
        Beside("MFU (%)", value_cells(best, 100 * best["share"])),
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
        Beside("MFU (%)", value_cells(step, 100 * step["share"])),
        Beside("peak memory (MiB)", value_cells(step, step["peak_mib"])),
        Beside(FIRST_CALLS, value_cells(step, step["compile_s"])),
    ]
    rate, numerics = matmul_ceiling(evidence, dtype), SAME_NUMERICS.get(dtype, dtype)
    ceiling = f"{significant(rate)} TFLOP/s, the matmul ceiling in {dtype_words(numerics)}"
    of = f"; MFU of {ceiling}" if rate else ""
    note = f"{STEPS} Rate, MFU and peak memory: of the train step{of}."
    return side_by_side(dtype_words(dtype), frame, [*CELL, "implementation"], columns, note)


def _compiled(dtypes: list[str], _: list[str]) -> Pairs:
    """E3: eager beside compiled in the same numerics; beside float32 also compiled TF32."""
    also = {FLOAT32: (FLOAT32, TF32)}
    return [
        (way(EAGER, dtype), [way(name, d) for d in also.get(dtype, (dtype,)) for name in COMPILED])
        for dtype in dtypes
    ]


def _numerics(dtypes: list[str], names: list[str]) -> Pairs:
    """E4: each implementation in float32 beside the other numerics."""
    others = [dtype for dtype in dtypes if dtype != FLOAT32]
    return [(way(name, FLOAT32), [way(name, dtype) for dtype in others]) for name in names]


def _further(dtypes: list[str], names: list[str]) -> Pairs:
    """E6: eager beside all that is neither it nor the same model compiled."""
    others = [name for name in names if name not in (EAGER, *COMPILED)]
    return [(way(EAGER, dtype), [way(name, dtype) for name in others]) for dtype in dtypes]


def _tables(pairs: Callable[[list[str], list[str]], Pairs]):
    """Evidence -> a table a phase for each base and its others, of (dtypes, implementations)."""

    def make(evidence: MachineEvidence) -> list[Lines]:
        frame = evidence.frame(STEM)
        if frame is None:
            return []
        found = pairs(*(in_order(name, frame[name]) for name in ("dtype", "implementation")))
        phases = sorted(in_order("phase", frame["phase"]), key=lambda phase: phase != STEP)
        return each(*(_against(evidence, phase, *pair) for phase in phases for pair in found))

    return make


def _against(
    evidence: MachineEvidence, phase: str, base: Series, others: Sequence[Series]
) -> Lines | None:
    """The cells that one of the others was timed at: the times of all, and the speed-ups."""
    frame = having(evidence.frame(STEM), phase=phase)
    own, others = base.rows(frame), [other for other in others if len(other.rows(frame))]
    if own.empty or not others:
        return None
    columns = [
        Beside(f"{ways.words(base)} (ms)", step_times(own)),
        Beside("work (TFLOP)", value_cells(own, own["flops"] / 1e12, rounded)),
        *(column for other in others for column in _columns(evidence, frame, other, base)),
    ]
    timed = pd.concat([other.rows(frame) for other in others])
    own = own[pd.MultiIndex.from_frame(own[CELL]).isin(pd.MultiIndex.from_frame(timed[CELL]))]
    caption = f"{phase_words(phase).capitalize()}, over {ways.words(base)}"
    note = STEPS + _left_out(evidence, frame, others, len(timed[CELL].drop_duplicates()))
    return side_by_side(caption, pd.concat([own, timed]), CELL, columns, note)


def _left_out(
    evidence: MachineEvidence, frame: pd.DataFrame, others: Sequence[Series], lines: int
) -> str:
    """What has dashes where the configuration asks for no more; nothing while cells are missing."""
    has = {other: len(other.rows(frame)[CELL].drop_duplicates()) for other in others}
    fewer = [f"{ways.words(way)} {n} of {lines}" for way, n in has.items() if n < lines]
    if not fewer or evidence.missing.get(STEM):
        return ""
    return f" A dash: not configured, which has {'; '.join(fewer)}."


def _columns(
    evidence: MachineEvidence, frame: pd.DataFrame, series: Series, base: Series
) -> list[Beside]:
    rows, name = series.rows(frame), ways.words(series)
    cells = speedup_cells(evidence, STEM, series, base)
    columns = [
        Beside(f"{name} (ms)", step_times(rows)),
        Beside(f"{name} over {ways.words(base)}", cells[cells.index.isin(rows.index)]),
    ]
    # First calls are those of all phases together, and stand once, beside the train step.
    differ = dict(series.where)["implementation"] != dict(base.where)["implementation"]
    if differ and (rows["phase"] == STEP).all():
        columns.append(Beside(f"{name}: {FIRST_CALLS}", value_cells(rows, rows["compile_s"])))
    return columns


def _owed(**where) -> Owed:
    """A line of E3 or E4 is owed for every cell of eager float32."""

    def rows(**columns) -> Callable[[pd.DataFrame], pd.Series]:
        return lambda frame: frame.index.isin(having(frame, **columns).index)

    return Owed(rows(**where), cell=CELL, of=rows(implementation=EAGER, dtype=FLOAT32))


PHASES = Table("E1", "Forward, backward, both and the train step", step_tables)
COMPARED = (
    Table(
        "E3",
        "Eager against compiled",
        _tables(_compiled),
        _owed(implementation=ways.WHOLE, dtype=[FLOAT32, TF32]),
    ),
    Table(
        "E4",
        "Float32 against TF32 and mixed precision",
        _tables(_numerics),
        _owed(implementation=EAGER, dtype=ways.BF16),
    ),
    Table(
        "E6",
        "Other attention inside the model",
        _tables(_further),
        Owed(lambda frame: ~frame["implementation"].isin([EAGER, *COMPILED])),
    ),
)
