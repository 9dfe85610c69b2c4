"""Tables of the profiles section: the head table (the one in the write-up) and P1 to P4.

P1: longest kernels of each phase. P2: time per class of kernels. P3: parts of attention. P4: files
of the profiler's traces.
"""

from __future__ import annotations

from dataclasses import replace

import pandas as pd

from lmperf.names import implementation_words, phase_words
from lmperf.reporting import gates, marks
from lmperf.reporting.evidence import MachineEvidence, having
from lmperf.reporting.foreign import plain, taken
from lmperf.reporting.numbers import EMPTY, absent, counted, percent, percent_digits, significant
from lmperf.reporting.sections.profiles.kernel_classes import (
    ATTENTION,
    CLASSES,
    COPY,
    ELEMENTWISE,
    MATMUL,
    OPTIMIZER,
    OTHER,
    REDUCTION,
)
from lmperf.reporting.sections.profiles.kernel_names import shortened
from lmperf.reporting.sections.profiles.rows import (
    APART,
    CASE,
    CELL,
    KERNEL,
    OPERATOR,
    STEM,
    by_class,
    cell_words,
    classes_of,
    kernels,
    kind_of,
    of_table,
    usual,
)
from lmperf.reporting.side_by_side import Beside, each, share, side_by_side, text, time
from lmperf.reporting.tables import (
    Owed,
    TableGroup,
    from_frame,
    number_cells,
    status_cells,
    status_words,
)
from lmperf.results import WITHHELD, Cell, Table

HEAD_LINES = 12
KERNELS_SHOWN = 12
PARTS = ("scores", "softmax", "values")
# The one trace that is published with the report; the others stay where they were measured.
PUBLISHED_TRACE = "small-512-4-autocast_bfloat16-eager-forward.json.gz"
WALL = (
    "Wall time: median of three passes without the profiler, which may be host-bound; E1 has the"
    " times to quote."
)
IDLE = "Idle: the share of the wall time in which no kernel ran, as the host was late."
UNCONFIRMED = (
    f" Withheld: where single calls in E1 differ from the wall time by more than"
    f" {percent(APART, 0)}, and where E1 lacks a case in which the host may decide."
)
SLOWED = "The profiler slows down operators, so their time may exceed the wall time."
LAUNCHES = {KERNEL: "launches", OPERATOR: "calls"}
STEP = "train_step"
HEAD_WORDS = {
    MATMUL: "matmul",
    ATTENTION: "attention",
    ELEMENTWISE: "elementwise",
    REDUCTION: "softmax, norms",
    OPTIMIZER: "optimizer",
    COPY: "copies, casts",
}


def head(evidence: MachineEvidence) -> Table | None:
    """The head table: ms of a train step in each class of kernels, a line per implementation."""
    cases = usual(evidence)
    cases = having(cases, phase=STEP if STEP in set(cases["phase"]) else cases["phase"].iloc[-1:])
    if cases.empty:
        return None
    kind, phase = kind_of(evidence), phase_words(cases["phase"].iloc[0])
    shown = [name for name in classes_of(cases) if name != OTHER]
    cells = {name: marks.with_stale(number_cells(cases[name], _ms), cases) for name in shown}
    columns = [time(HEAD_WORDS[name], cells[name], f"{name}.ms") for name in shown]
    note = f"Sums of {kind}s. {LAUNCHES[kind].capitalize()} and wall time: P2."
    if cases[OTHER].max() > 0:
        note += f" Left out: {kind}s without a class, at most {_ms(cases[OTHER].max())} ms."
    if withheld := int(cases["withheld"].sum()):
        of = "" if withheld == len(cases) else f" of {withheld} of {len(cases)} lines"
        note += f" Wall time{of} is withheld there: no row of E1 confirms it."
    caption = f"Where a {phase} spends its {kind} time, in ms"
    table = side_by_side(caption, cases, CELL, columns, note)
    return table and _without_unit(_in_one_column(table.last(HEAD_LINES)))


def _without_unit(table: Table) -> Table:
    """The table with headers that lack the unit, which the caption has: the table gets narrower."""
    columns = (replace(c, header=c.header.removesuffix(" (ms)")) for c in table.columns)
    return replace(table, columns=tuple(columns))


def _in_one_column(table: Table) -> Table:
    """The table with the columns of dtypes and implementations as one: ``float32, eager``."""
    dtypes, ways = (
        next((c for c in table.columns if c.name == name), None)
        for name in ("dtype", "implementation")
    )
    if dtypes is None or ways is None:
        return table
    pairs = zip(dtypes.cells, ways.cells, strict=True)
    cells = tuple(replace(way, words=f"{dtype}, {way}") for dtype, way in pairs)
    columns = (replace(c, cells=cells) if c is ways else c for c in table.columns)
    return replace(table, columns=tuple(columns)).without("dtype")


def _ms(value: float) -> str:
    """Milliseconds to three significant digits; 0 without decimals."""
    return significant(value) if value else "0"


def _whole(value: float) -> str:
    return EMPTY if absent(value) else f"{value:,.0f}"


def class_table(evidence: MachineEvidence) -> list[Table]:
    """Table P2, a line for each case: ms of each class of kernels, launches, wall time, idle."""
    frame = evidence.frame(STEM).drop_duplicates(CASE)
    frame = frame.drop(columns=["wall_ms", "total_ms", "stale"], errors="ignore")
    cases = frame.merge(by_class(evidence), on=CASE, how="left")
    status = (
        [text("status", status_cells(cases), "status")] if (cases["status"] != "ok").any() else []
    )
    kind, columns = kind_of(evidence), []
    for name in CLASSES:
        cells = marks.with_stale(number_cells(cases[name], _ms), cases)
        columns.append(time(CLASSES[name].words, cells, f"{name}.ms"))
    columns += [
        time(f"{kind} time", marks.with_stale(number_cells(cases["total_ms"]), cases), "total"),
        text(
            LAUNCHES[kind],
            marks.with_stale(number_cells(cases["launches"], _whole), cases),
            "launches",
        ),
        time("wall time", _withheld(cases, number_cells(cases["wall_ms"])), "wall"),
    ]
    if kind == KERNEL:
        idle = _withheld(cases, number_cells(100 * cases["idle"], percent_digits))
        columns.append(share("idle (%)", idle, "idle", "%", "percent_digits"))
    note = f"{WALL} {IDLE if kind == KERNEL else SLOWED}"
    note += UNCONFIRMED if cases["withheld"].eq(True).any() else ""
    return each(
        side_by_side(
            f"The {kind} time by class",
            cases,
            CASE,
            [*columns, *status],
            note,
        )
    )


def _withheld(cases: pd.DataFrame, cells: pd.Series) -> pd.Series:
    """The cells, with the word "withheld" in the lines whose wall time is."""
    word = pd.Series([Cell("withheld", state=WITHHELD)] * len(cells), cells.index, dtype=object)
    return marks.with_stale(cells, cases).where(~cases["withheld"].eq(True), word)


def _percents(what: str, rows: pd.DataFrame, column: str, name: str) -> Beside:
    cells = marks.with_stale(number_cells(100 * rows[column], percent_digits), rows)
    return share(f"{what} (%)", cells, name, "%", "percent_digits")


def kernel_tables(evidence: MachineEvidence) -> list[Table]:
    """Tables P1, one per cell: the longest kernels of each phase, and the sum of the others."""
    rows, kind = kernels(evidence), kind_of(evidence)
    full = {name: plain(name) for name in rows["name"].unique()}
    short = shortened(full.values())
    names = {name: taken(short[text]) for name, text in full.items()}
    return [_cell_table(part, names, kind) for _, part in rows.groupby(CELL, sort=False)]


def _cell_table(rows: pd.DataFrame, names: dict[str, str], kind: str) -> Table:
    parts = [_longest(part) for _, part in rows.groupby("phase", sort=False)]
    shown = pd.concat(parts, ignore_index=True)
    shown["mean_us"] = 1e3 * shown["total_ms"] / shown["instances"]
    times = ("mean", "median", "min", "max", "std")

    def cells(values: pd.Series, form=significant) -> pd.Series:
        return marks.with_stale(number_cells(values, form), shown)

    frame = pd.DataFrame(
        {
            "phase": shown["phase"].map(phase_words),
            "name": [names.get(name, name) for name in shown["name"]],
            "class": shown["kernel_class"].map({name: c.words for name, c in CLASSES.items()}),
            "share": cells(100 * shown["share"], percent_digits),
            "total": cells(shown["total_ms"]),
            "instances": cells(shown["instances"], "{:.0f}".format),
            **{name: cells(shown[f"{name}_us"]) for name in times},
        }
    )
    headers = {
        "name": kind,
        "share": "time (%)",
        "total": "total (ms)",
        **{name: f"{name} (µs)" for name in times},
    }
    cell = rows.iloc[0]
    way = f"batch {cell['batch']}, {implementation_words(cell['implementation'], CELL)}"
    return from_frame(f"Longest {kind}s: {cell_words(cell)}, {way}", frame, headers=headers)


def _longest(rows: pd.DataFrame) -> pd.DataFrame:
    """The longest kernels of a phase, then one row for all others."""
    rows = rows.sort_values("total_ms", ascending=False, kind="stable")
    shown, others = rows.iloc[:KERNELS_SHOWN], rows.iloc[KERNELS_SHOWN:]
    if len(others) < 2:
        return rows
    ways = {"share": "sum", "total_ms": "sum", "instances": "sum", "min_us": "min", "max_us": "max"}
    ways |= {"stale": "max"} if "stale" in others else {}
    together = others.groupby("phase", as_index=False).agg(ways)
    return pd.concat([shown, together.assign(name=counted(len(others), "other"))])


def attention_table(evidence: MachineEvidence) -> list[Table]:
    """Table P3: shares of scores, softmax and values in attention's forward time and FLOPs."""
    parts, columns = attention_parts(evidence), []
    for part in PARTS:
        rows = having(parts, name=part)
        columns.append(_percents(f"{part}: time", rows, "share", f"{part}.time"))
        columns.append(_percents(f"{part}: FLOPs", rows, "flops_share", f"{part}.flops"))
    return each(side_by_side("Inside plain attention, forward", parts, CELL[:-1], columns))


def attention_parts(evidence: MachineEvidence) -> pd.DataFrame:
    """A row per part of attention (scores, softmax, values); ``share``: of attention's time."""
    rows = of_table(evidence, "attention")
    return rows.assign(share=rows["total_ms"] / rows.groupby(CELL)["total_ms"].transform("sum"))


def trace_table(evidence: MachineEvidence) -> list[Table]:
    """Table P4: the file name of each case's trace; a link for the trace that is published."""
    rows = evidence.frame(STEM).drop_duplicates(CASE)
    link = f"[{PUBLISHED_TRACE}](traces/{PUBLISHED_TRACE})"
    traces = rows["trace"].where(gates.shown(rows), status_words(rows))
    traces = traces.dropna().replace(PUBLISHED_TRACE, link)
    return each(
        side_by_side("Traces", rows.loc[traces.index], CASE, [text("trace", traces, "trace")])
    )


def _is_eager_forward(frame: pd.DataFrame) -> pd.Series:
    return (frame["implementation"] == "eager") & (frame["phase"] == "forward")


TABLES = (
    TableGroup("P1", "Kernels of a phase", kernel_tables),
    TableGroup("P2", "Time in each class of kernels", class_table),
    TableGroup(
        "P3", "Inside attention: time beside FLOPs", attention_table, Owed(_is_eager_forward)
    ),
    TableGroup("P4", "Traces", trace_table),
)
