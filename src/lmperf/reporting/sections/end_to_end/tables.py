"""Tables of the end-to-end section: the head table (the one in the write-up), E1, E3, E4, E7.

E1: all phases. E3: compiled over eager. E4: other dtypes over float32. E7: other attention over
plain attention. A ``Way`` is an implementation in a dtype.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import pandas as pd

from lmperf.names import dtype_words, in_order, phase_words
from lmperf.reporting import gates
from lmperf.reporting.comparable import devices
from lmperf.reporting.evidence import MachineEvidence, having
from lmperf.reporting.findings import NotMeasured
from lmperf.reporting.host_bound import HOST_BOUND, queued
from lmperf.reporting.marks import with_marks
from lmperf.reporting.numbers import listed, percent
from lmperf.reporting.sections.end_to_end import choice, losses, recipes, ways
from lmperf.reporting.sections.end_to_end.ways import BASE, CELL, EAGER, FLOAT32, STEM, STEP, Way
from lmperf.reporting.side_by_side import (
    Beside,
    each,
    memory,
    share,
    side_by_side,
    speedup,
    step_time,
    time,
)
from lmperf.reporting.speedup import speedup_cells
from lmperf.reporting.tables import (
    Owed,
    TableGroup,
    burst_note,
    step_times,
    value_cells,
)
from lmperf.results import AXIS, Table

# Header of the head table -> the way; the compiled ones are compiled by block.
TECHNIQUES = {
    "eager float32": BASE,
    "eager TF32": recipes.TF32,
    "eager bf16": Way(EAGER, ways.BF16),
    "bf16, compiled": Way(ways.BLOCKS, ways.BF16),
    "and flash attention": Way("triton_compiled_blocks", ways.BF16),
}
# Whether all times are burst times -> the note below the head table.
NOTE = {
    True: "Times: single calls with pauses (burst), median.",
    False: "Times: steps back to back, median.",
}
SINGLE = (
    " Burst: single calls with pauses, in which the device may clock higher: not comparable with"
    " steps back to back."
)
_LASTING_RATIOS = (
    " Where both steps have sustained times (E1), the speed-up is of these, not of the times shown."
)
FIRST_CALLS = "first calls, compilation and execution"
COMPILED = (ways.WHOLE, ways.BLOCKS)
COMPARED_PHASES = (STEP, "forward", "backward")
# Implementation -> implementations that differ from it only in the attention.
ATTENTIONS = {
    EAGER: ("sdpa", "triton"),
    ways.WHOLE: ("sdpa_compiled", "triton_compiled"),
    ways.BLOCKS: ("sdpa_compiled_blocks", "triton_compiled_blocks"),
}


def head(evidence: MachineEvidence) -> Table | None:
    """The head table, a line for each size: the time of a train step with each technique in ms.

    The column ``recommended`` has the recipe of the write-up's first table. None without evidence,
    and if no line has two times to compare.
    """
    try:
        steps, best = choice.steps(evidence), choice.fastest(evidence)
    except NotMeasured:
        return None
    burst = not steps["sustained_ms"].notna().any()
    parts = {
        **{words: (way.rows(steps), way.name) for words, way in TECHNIQUES.items()},
        "recommended": (best, "best"),
    }
    columns = [
        time(words, ways.times(rows, mixed=not burst), name)
        for words, (rows, name) in parts.items()
        if len(rows)
    ]
    note = NOTE[burst]
    if any("bf16" in words for words, (rows, _) in parts.items() if len(rows)):
        note += " bf16: autocast."
    if len(best):
        note += " Recommended: the recipe of the first table."
        if best["size"].nunique() < steps["size"].nunique():
            note += " Without one, the fastest step is marked."
    note += _apart(evidence, {words: rows for words, (rows, _) in parts.items() if len(rows)})
    if any(cell.words.endswith(" burst") for column in columns for cell in column.cells):
        note += SINGLE
    found = side_by_side(phase_words(STEP).capitalize(), steps, CELL, columns, note)
    if found is None or not _compares(found):
        return None
    sizes = recipes.size_cells(steps.drop_duplicates("size"))  # in the order of the lines
    return replace(found, columns=(sizes, *(c for c in found.columns if c.role != AXIS)))


def _apart(evidence: MachineEvidence, parts: Mapping[str, pd.DataFrame]) -> str:
    """For the note of the head table: which columns other GPUs timed than most of their line."""
    shown, device = pd.concat(parts.values()), devices(evidence, STEM)
    most = device[shown.index].groupby(shown["size"]).agg(lambda of: of.mode().min())
    other = {
        words: device[rows.index] != most.reindex(rows["size"]).to_numpy()
        for words, rows in parts.items()
    }
    columns = [words for words, apart in other.items() if apart.any()]
    sizes = {size for words in columns for size in parts[words]["size"][other[words]]}
    if not columns:
        return ""
    at = listed(in_order("size", [*sizes]))
    return f" At {at}, from another run, on another GPU or one not recorded: {listed(columns)}."


def _compares(table: Table) -> bool:
    """Whether a line of the table has at least two numbers."""
    columns = (column.cells for column in table.columns if column.role != AXIS)
    lines = zip(*columns, strict=True)
    return any(sum(cell.value is not None for cell in line) > 1 for line in lines)


def step_tables(evidence: MachineEvidence) -> list[Table]:
    """Tables E1, two per dtype: times of every phase, and train steps back to back."""
    frame = evidence.frame(STEM)
    dtypes = in_order("dtype", frame["dtype"]) if frame is not None else []
    made = ((_steps(evidence, dtype), _sustained(evidence, dtype)) for dtype in dtypes)
    return each(*itertools.chain.from_iterable(made))


def _steps(evidence: MachineEvidence, dtype: str) -> Table | None:
    frame = having(evidence.frame(STEM), dtype=dtype)
    step = having(frame, phase=STEP)
    columns = [
        step_time(_burst_words(phase), step_times(having(frame, phase=phase)), phase)
        for phase in in_order("phase", frame["phase"])
    ]
    single = ways.with_rates(evidence, step.assign(sustained_ms=None))
    peaks, first = (value_cells(step, n) for n in (ways.peak_mib(step), step["compile_s"]))
    columns += [
        *ways.rates(single, STEP),
        memory("peak memory", peaks, f"{STEP}.peak"),
        share(
            "queued (% of the step)",
            with_marks(value_cells(step, 100 * queued(step)), step),
            *(f"{STEP}.queued", "%", "significant"),
        ),
        time(FIRST_CALLS, first, "first_calls", "s"),
    ]
    note = burst_note(frame)
    if gates.shown(step).any():
        mfu = ", MFU" if ways.mfu_words(evidence, dtype) else ""
        note += f" Tokens/s{mfu} and peak memory: of the train step"
        note += f"{ways.denominators(evidence, dtype)}."
    note += f"{_queued(step)}{_loss(evidence, step, dtype)}"
    words = dtype_words(dtype, CELL)
    return side_by_side(words, frame, [*CELL, "implementation"], columns, note)


def _sustained(evidence: MachineEvidence, dtype: str) -> Table | None:
    """The train steps of a dtype that have a sustained time; None if there are none."""
    frame = having(evidence.frame(STEM), dtype=dtype, phase=STEP)
    steps = ways.with_rates(evidence, frame[frame["sustained_ms"].notna()])
    if steps.empty:
        return None
    apart = value_cells(steps, 100 * (steps["sustained_ms"] / steps["median_ms"] - 1))
    apart = with_marks(apart, steps)
    columns = [
        time(f"{phase_words(STEP)}, sustained", ways.sustained(steps), f"{STEP}.sustained"),
        share("over burst (%)", apart, f"{STEP}.sustained.over.burst", "%", "significant"),
        *ways.stretch(steps, STEP),
        *ways.rates(steps, STEP),
        ways.share_of_matmul(steps, STEP),
    ]
    of = ways.denominators(evidence, dtype).removeprefix("; ")
    note = f"{ways.sustained_note(steps)}{of[:1].upper()}{of[1:]}"
    caption = f"{dtype_words(dtype, CELL)}, sustained"
    note += f".{_loss(evidence, steps, dtype)}"
    return side_by_side(caption, steps, [*CELL, "implementation"], columns, note)


def _loss(evidence: MachineEvidence, steps: pd.DataFrame, dtype: str) -> str:
    """For the note of a table of a dtype: by how much its weights raise the loss."""
    return losses.growth_words(evidence, steps) if dtype == ways.BF16_WEIGHTS else ""


def _burst_words(phase: str) -> str:
    return f"{phase_words(phase)}, burst" if phase == STEP else phase_words(phase)


def _queued(step: pd.DataFrame) -> str:
    if queued(step).isna().all():
        return ""
    late = percent(HOST_BOUND, 0)
    return (
        f" Queued: when the host had queued the last work of the step. Beyond {late} the step is"
        " host-bound, unless the host had to wait because the device's queue was full."
    )


def _compiled(base: Way, other: Way) -> bool:
    """Whether table E3 compares the pair: eager and compiled in one dtype, or float32 and TF32."""
    dtypes = other.dtype == base.dtype or (base.dtype, other.dtype) == (FLOAT32, ways.TF32)
    return base.implementation == EAGER and other.implementation in COMPILED and dtypes


def _dtypes(base: Way, other: Way) -> bool:
    """Whether table E4 compares the pair: one implementation in float32 and in another dtype."""
    dtypes = base.dtype == FLOAT32 != other.dtype
    return dtypes and other.implementation == base.implementation


def _further(base: Way, other: Way) -> bool:
    """Whether table E7 compares the pair: plain and another attention, in the same dtype.

    Both are eager, both compiled as a whole, or both compiled by block.
    """
    others = ATTENTIONS.get(base.implementation, ())
    return other.implementation in others and other.dtype == base.dtype


def _tables(pairs: Callable[[Way, Way], bool]):
    """Return a function that makes one table for each phase and base from the evidence.

    pairs: (base, other) -> whether the table of ``base`` has a column for ``other``. The phase
    ``forward_backward`` is left out; table E1 shows it.
    """

    def make(evidence: MachineEvidence) -> list[Table]:
        frame = evidence.frame(STEM)
        if frame is None:
            return []
        phases = [name for name in COMPARED_PHASES if name in set(frame["phase"])]
        by_phase = [having(frame, phase=phase) for phase in phases]
        bases = [
            way for way in ways.of(frame) if any(pairs(way, other) for other in ways.of(frame))
        ]
        parts = itertools.product(by_phase, bases)
        return each(*(_against(evidence, rows, base, pairs) for rows, base in parts))

    return make


def _against(
    evidence: MachineEvidence, frame: pd.DataFrame, base: Way, pairs: Callable[[Way, Way], bool]
) -> Table | None:
    """Times of ``base`` and of the ways compared with it, and speed-ups, in one phase.

    Only cells in which both ``base`` and another way were configured have a line.
    """
    based, others = base.rows(frame), [way for way in ways.of(frame) if pairs(base, way)]
    if based.empty or not others:
        return None
    timed = _at(pd.concat([other.rows(frame) for other in others]), based)
    based, phase = _at(based, timed), frame["phase"].iloc[0]
    columns = [
        step_time(base.words, step_times(based), f"{phase}.{base.name}"),
        *(column for other in others for column in _columns(evidence, frame, other, base)),
    ]
    caption = f"{_burst_words(phase).capitalize()}, over {base.words}"
    rows = pd.concat([based, timed])
    lasting = _LASTING_RATIOS if (rows["sustained_ms"].notna() & gates.shown(rows)).any() else ""
    note = burst_note(rows) + lasting + _left_out(evidence, rows, others)
    return side_by_side(caption, rows, CELL, columns, note)


def _at(rows: pd.DataFrame, others: pd.DataFrame) -> pd.DataFrame:
    """The rows whose cell (size, context, batch) also occurs in ``others``."""
    return rows[pd.MultiIndex.from_frame(rows[CELL]).isin(pd.MultiIndex.from_frame(others[CELL]))]


def _left_out(evidence: MachineEvidence, rows: pd.DataFrame, beside: Sequence[Way]) -> str:
    """A note that names ways without a row in every line; empty while measurements are missing."""
    lines = len(rows[CELL].drop_duplicates())
    lack = {way.words: lines - len(way.rows(rows)) for way in beside}
    fewer = [f"{words}: {n} of {lines} lines" for words, n in lack.items() if n]
    if not fewer or evidence.missing.get(STEM):
        return ""
    return f" A dash: not configured ({'; '.join(fewer)})."


def _columns(evidence: MachineEvidence, frame: pd.DataFrame, way: Way, base: Way) -> list[Beside]:
    rows, cells = way.rows(frame), speedup_cells(evidence, STEM, way.series, base.series)
    cells, phase = cells[cells.index.isin(rows.index)], frame["phase"].iloc[0]
    named = f"{phase}.{way.name}.over.{base.name}"
    columns = [
        step_time(way.words, step_times(rows), f"{phase}.{way.name}"),
        speedup(f"{way.words} over {base.words}", cells, named),
    ]
    # Every phase has the same first-calls time, so only the train step's table shows it.
    if way.implementation != base.implementation and (rows["phase"] == STEP).all():
        first = value_cells(rows, rows["compile_s"])
        columns.append(time(f"{way.words}: {FIRST_CALLS}", first, f"{way.name}.first_calls", "s"))
    return columns


def _of(*which: Way) -> Callable[[pd.DataFrame], pd.Series]:
    return lambda frame: frame.index.isin(pd.concat([way.rows(frame) for way in which]).index)


PHASES = TableGroup("E1", "Forward, backward, both and the train step", step_tables)
COMPARED = (
    TableGroup(
        "E3",
        "Eager against compiled",
        _tables(_compiled),
        Owed(lambda frame: frame["implementation"].isin(COMPILED)),
    ),
    TableGroup(
        "E4",
        "Float32 against TF32 and mixed precision",
        _tables(_dtypes),
        Owed(_of(Way(EAGER, ways.BF16)), cell=CELL, of=_of(BASE)),
    ),
)
FURTHER = TableGroup(
    "E7",
    "Other attention inside the model",
    _tables(_further),
    Owed(lambda frame: frame["implementation"].isin([*itertools.chain(*ATTENTIONS.values())])),
)
