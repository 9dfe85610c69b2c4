"""Table E6, the ladder, whose rungs are train steps that each add a technique.

The rungs of a size, context and batch are rows of `end_to_end`. They are compared by their
sustained times; without these, by single calls that were timed in turn.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence

import pandas as pd

from lmperf.names import implementation_words
from lmperf.reporting.ceilings import SUSTAINED, matmul_ceiling, sheet_ceiling
from lmperf.reporting.evidence import MachineEvidence, groups, having
from lmperf.reporting.sections.end_to_end import ways
from lmperf.reporting.sections.end_to_end.losses import LOSS, loss_cell, loss_words, losses
from lmperf.reporting.sections.end_to_end.ways import CELL, STEM, STEP
from lmperf.reporting.side_by_side import (
    Beside,
    each,
    memory,
    side_by_side,
    speedup,
    step_time,
    time,
)
from lmperf.reporting.speedup import Series, compared, speedup_cells
from lmperf.reporting.tables import (
    Owed,
    TableGroup,
    burst_note,
    step_times,
    value_cells,
)
from lmperf.results import LOWER, Table
from lmperf.transformer.rungs import FLOAT8, RUNGS, STEPS_ALONE, Rung

BASE = RUNGS[0]
_FLOAT8_WORDS = (
    f"The lines with FP8 are over {implementation_words(RUNGS[-1].name)}. Published gains of FP8:"
    " 1.31x (llmq, 3B), 1.25x tensorwise and 1.10x rowwise (torchao, 8B), 0.90x rowwise (nanochat)."
)


def rungs(frame: pd.DataFrame) -> pd.DataFrame:
    """The rows of `end_to_end` that are rungs, with the rung's name as ``implementation``.

    They are the train steps of cells in which an implementation of the ladder alone was configured.
    """
    alone = having(frame, phase=STEP, implementation=set(STEPS_ALONE))
    named = techniques(frame)
    here = pd.MultiIndex.from_frame(named[CELL]).isin(pd.MultiIndex.from_frame(alone[CELL]))
    return named[here]


def techniques(frame: pd.DataFrame) -> pd.DataFrame:
    """The train steps of any cell in the ways of the rungs, named as in ``rungs``."""
    return _named(frame, RUNGS)


def _named(frame: pd.DataFrame, of: Sequence[Rung]) -> pd.DataFrame:
    names = {(rung.dtype, rung.implementation): rung.name for rung in of}
    steps = having(frame, phase=STEP)
    pairs = zip(steps["dtype"], steps["implementation"], strict=True)
    named = steps.assign(implementation=pd.Series(map(names.get, pairs), steps.index, dtype=object))
    return named[named["implementation"].notna()]


def tables(evidence: MachineEvidence) -> list[Table]:
    """Tables E6: one for each size, context and batch, with a line for each rung of the ladder."""
    frame = evidence.frame(STEM)
    if frame is None:
        return []
    lines = pd.concat([rungs(frame), _named(frame, FLOAT8)])
    frame, found = with_rates(evidence, lines), losses(evidence)
    return each(*(_cell(evidence, rows, found) for *_, rows in groups(frame, *CELL)))


def with_rates(evidence: MachineEvidence, frame: pd.DataFrame) -> pd.DataFrame:
    return ways.with_rates(evidence, frame.assign(dtype=_fastest_numerics(evidence)))


def _fastest_numerics(evidence: MachineEvidence) -> str:
    """The ladder's dtype with the highest matmul rate; the MFU of every rung is over this rate.

    The rate is the data sheet's, else the measured matmul ceiling. Were MFU over the rate of each
    rung's own dtype, a faster rung could have a lower MFU.
    """

    def most(dtype: str) -> float:
        promised = sheet_ceiling(evidence, dtype)
        return promised or matmul_ceiling(evidence, dtype, SUSTAINED) or 0.0

    return max(dict.fromkeys(rung.dtype for rung in RUNGS), key=most)


def _cell(evidence: MachineEvidence, rows: pd.DataFrame, losses: pd.DataFrame) -> Table | None:
    lasting, peaks = ways.sustained(rows[~rows["burst"]]), value_cells(rows, ways.peak(rows))
    columns = [
        step_time("burst", step_times(rows), STEP),
        time("sustained", lasting, f"{STEP}.sustained"),
        *ways.stretch(rows, STEP),
        speedup("over the rung above", _over_previous(evidence, rows), f"{STEP}.over.previous"),
        *ways.rates(rows, STEP),
        ways.share_of_matmul(rows, STEP),
        memory("peak memory", peaks, f"{STEP}.peak", "GiB"),
    ]
    replaces = "; autocast replaces TF32" if "tf32" in set(rows["implementation"]) else ""
    of = ways.denominators(evidence, _fastest_numerics(evidence))
    note = f"{burst_note(rows)} {ways.sustained_note(rows) if len(lasting) else ''}"
    above = "rung before it" if (gaps := unmeasured(evidence, rows)) else "one above it"
    note += f"Each line adds a technique to the {above}{replaces}{of}."
    if gaps:
        note += f" Not measured, so without a line: {'; '.join(map(implementation_words, gaps))}."
        note += " The next line has no speed-up, since it adds several techniques."
    if set(rows["implementation"]) & {rung.name for rung in FLOAT8}:
        note += f" {_FLOAT8_WORDS}"
    size = rows["size"].iloc[0]
    if size in losses.index.get_level_values("size"):
        known = losses.loc[size]
        names = rows["implementation"][rows["implementation"].isin(known.index)]
        cells = [loss_cell(known.loc[name]) for name in names]
        cells = pd.Series(cells, names.index, dtype=object)
        header = "loss (over float32)" if known["base"].notna().any() else "loss"
        columns.append(Beside(header, cells, "loss", "", "precise", LOWER))
        note += f" {loss_words(evidence, size)}"
        if len(cells) < len(rows) and not evidence.missing.get(LOSS):
            note += " A dash: no loss is configured."
    caption = "The ladder" + "".join(
        f", {name} {rows[axis].iloc[0]}"
        for axis, name in zip(CELL, ("size", "context", "batch"), strict=True)
    )
    return side_by_side(caption, rows, ["implementation"], columns, note)


def series_of(rung: Rung) -> Series:
    return Series.of(dtype=rung.dtype, implementation=rung.implementation)


def unmeasured(evidence: MachineEvidence, rows: pd.DataFrame) -> list[str]:
    """Names of rungs that these rows lack, and that are configured in one of their cells."""
    lacking = evidence.lacking.get(STEM)
    if lacking is None or lacking.empty or rows.empty:
        return []
    named = techniques(lacking)
    here = pd.MultiIndex.from_frame(named[CELL]).isin(pd.MultiIndex.from_frame(rows[CELL]))
    names = set(named.loc[here, "implementation"]) - set(rows["implementation"])
    return [rung.name for rung in RUNGS if rung.name in names]


def adjacent(evidence: MachineEvidence, rows: pd.DataFrame) -> list[tuple[Rung, Rung]]:
    """Each rung that these rows contain and the rung before it.

    Pairs with an ``unmeasured`` rung in between are left out: several techniques separate them.
    """
    names, gaps = set(rows["implementation"]), unmeasured(evidence, rows)
    configured = [rung for rung in RUNGS if rung.name in {*names, *gaps}]
    pairs = itertools.pairwise(configured)
    return [(rung, before) for before, rung in pairs if {before.name, rung.name} <= names]


def pairs_of(evidence: MachineEvidence, rows: pd.DataFrame) -> Iterator[tuple[Series, Series]]:
    """The pairs that ``adjacent`` returns, and each rung of float8 with the highest rung."""
    names = set(rows["implementation"])
    yield from ((series_of(rung), series_of(base)) for rung, base in adjacent(evidence, rows))
    yield from ((series_of(rung), series_of(RUNGS[-1])) for rung in FLOAT8 if rung.name in names)


def _over_previous(evidence: MachineEvidence, rows: pd.DataFrame) -> pd.Series:
    """The speed-up of each rung over the previous rung: see ``pairs_of``."""
    pairs = pairs_of(evidence, rows)
    cells = [speedup_cells(evidence, STEM, rung, before) for rung, before in pairs]
    found = pd.concat([pd.Series(dtype=object), *cells])
    return found[found.index.isin(rows.index)]


def compared_rungs(
    evidence: MachineEvidence,
    rows: pd.DataFrame,
    rung: Series,
    base: Series,
    of: Callable[..., pd.DataFrame] = compared,
) -> pd.DataFrame:
    """The ``rows`` (from ``rungs``) of a rung that have a speed-up over the base, with it.

    of: ``compared`` for a statement on the whole rung, ``resolved`` for one on single rows.
    """
    found = of(evidence, STEM, rung, base)
    found = found[found.index.isin(rows.index)]
    return found.assign(implementation=rows["implementation"].reindex(found.index))


TABLE = TableGroup(
    "E6",
    "The ladder",
    tables,
    Owed(
        lambda frame: frame.index.isin(rungs(frame).index),
        stem=STEM,
        cell=[*CELL, "dtype", "implementation"],
    ),
)
