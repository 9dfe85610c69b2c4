"""P1: kernels of a phase; P2: their classes; P3: inside attention; P4: the traces."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import pandas as pd

from lmperf.names import axis_words, dtype_words, implementation_words, phase_words
from lmperf.reporting import gates
from lmperf.reporting.evidence import MachineEvidence, having
from lmperf.reporting.kernel_classes import CLASSES, OTHER
from lmperf.reporting.numbers import EMPTY, counted, percent, significant
from lmperf.reporting.sections.profiles.kernel_names import shortened
from lmperf.reporting.sections.profiles.shares import (
    CASE,
    CELL,
    KERNELS,
    REST,
    STEM,
    by_class,
    kernels,
    kind_of,
    usual_size,
    where_words,
)
from lmperf.reporting.tables import Lines, Owed, Table, shared_axes, status_words

PHASES = ("forward", "backward", "train_step")
HEAD_LINES = 12
KERNELS_SHOWN = 12
PARTS = ("scores", "softmax", "values")
# Above it the shares say little, and the write-up shows what has no class.
LARGEST_OTHER = 0.05
# The one trace that is published with the report; the others stay where they were measured.
PUBLISHED_TRACE = "small-512-4-autocast_bfloat16-eager-forward.json.gz"
WORDS = {
    "dtype": ("numerics", dtype_words),
    "implementation": ("implementation", implementation_words),
    "phase": ("phase", phase_words),
}


def _axes(rows: pd.DataFrame, columns: Sequence[str]) -> tuple[str, pd.DataFrame]:
    """What all rows share, as words for the caption; the other axes in words, under headers."""
    found = {}
    for column in columns:
        header, words = WORDS.get(column, (axis_words(column), lambda value: value))
        found[header] = rows[column].map(words)
    named = pd.DataFrame(found, index=rows.index)
    what, varying = shared_axes(named, list(named))
    return what, named[varying]


def _percentages(values: pd.Series) -> pd.Series:
    return values.map(lambda share: percent(share).removesuffix(" %"))


def _shares(cases: pd.DataFrame, classes: Iterable[str] = CLASSES) -> pd.DataFrame:
    """Share of the time of kernels by class, in percent, for every case of ``by_class``."""
    found = {
        f"{CLASSES[name].words} (%)": _percentages(cases[name] / cases["total_ms"])
        for name in classes
    }
    return pd.DataFrame(found, index=cases.index)


def _busy(cases: pd.DataFrame) -> pd.Series:
    return _percentages(cases["total_ms"] / cases["wall_ms"])


def usual(evidence: MachineEvidence) -> pd.DataFrame:
    """Cases of the usual size, without forward and backward in one: what the write-up shows."""
    cases = by_class(evidence)
    if cases.empty:
        return cases
    return having(cases, size=usual_size(cases), phase=list(PHASES)).iloc[:HEAD_LINES]


def head(evidence: MachineEvidence) -> Lines | None:
    """One size, a line a phase and way of running it: the share of each class of kernels."""
    cases = usual(evidence)
    if cases.empty:
        return None
    what, axes = _axes(cases, CASE)
    unused = [name for name in CLASSES if not cases[name].any()]
    if (cases[OTHER] <= LARGEST_OTHER * cases["total_ms"]).all():
        unused.append(OTHER)
    table = pd.concat([axes, _shares(cases, [c for c in CLASSES if c not in unused])], axis=1)
    table[f"{kind_of(evidence)} (ms)"] = cases["total_ms"].map(significant)
    if kind_of(evidence) == KERNELS:
        table["device busy (%)"] = _busy(cases)
    return Lines(
        f"Share of the time of {kind_of(evidence)}, by class{what}", table, _older(evidence)
    )


def kernel_tables(evidence: MachineEvidence) -> list[Lines]:
    """P1, a table a cell: the longest kernels of each phase, and what the others are together."""
    rows = kernels(evidence)
    names = shortened(rows["name"])
    kind = kind_of(evidence)
    return [_cell_table(own, names, kind) for _, own in rows.groupby(CELL, sort=False)]


def _cell_table(rows: pd.DataFrame, names: dict[str, str], kind: str) -> Lines:
    phases = [_longest(own) for _, own in rows.groupby("phase", sort=False)]
    shown = pd.concat(phases, ignore_index=True)
    mean = shown["total_ms"] / shown["instances"] * 1e3
    times = {"mean": mean, **{n: shown[f"{n}_us"] for n in ("median", "min", "max", "std")}}
    frame = pd.DataFrame(
        {
            "phase": shown["phase"].map(phase_words),
            kind.removesuffix("s"): [names.get(name, name) for name in shown["name"]],
            "class": [CLASSES[c].words if c in CLASSES else EMPTY for c in shown["kernel_class"]],
            "time (%)": _percentages(shown["share"]),
            "total (ms)": shown["total_ms"].map(significant),
            "instances": shown["instances"].map("{:.0f}".format),
            **{f"{name} (µs)": values.map(significant) for name, values in times.items()},
        }
    )
    cell = rows.iloc[0]
    what = f"{where_words(cell)}, context {cell['context_length']}, batch {cell['batch']}"
    right = [name for name in frame if name.endswith(")")] + ["instances"]
    return Lines(f"Longest {kind}: {what}", frame, right=right)


def _longest(rows: pd.DataFrame) -> pd.DataFrame:
    """The longest kernels of a phase, then one row for all others."""
    rows = rows.assign(last=rows["name"] == REST)
    rows = rows.sort_values(["last", "total_ms"], ascending=[True, False], kind="stable")
    shown, others = rows.iloc[:KERNELS_SHOWN], rows.iloc[KERNELS_SHOWN:]
    if len(others) < 2:
        return rows
    sums = others[["share", "total_ms", "instances"]].sum()
    ends = {"min_us": others["min_us"].min(), "max_us": others["max_us"].max()}
    name = counted(len(others), "other")
    row = {"phase": rows["phase"].iloc[0], "name": name, "kernel_class": None, **sums, **ends}
    return pd.concat([shown, pd.DataFrame([row])])


def class_table(evidence: MachineEvidence) -> list[Lines]:
    """P2: a line a case, the share of each class, the time of all, and how busy the device was."""
    known, kind = by_class(evidence), kind_of(evidence)
    frame = evidence.frame(STEM)
    failed = frame[~gates.shown(frame) & frame["table"].isna()]
    cases = pd.concat([known, failed.assign(status=status_words(failed))], ignore_index=True)
    if cases.empty:
        return []
    what, axes = _axes(cases, CASE)
    table = pd.concat([axes, _shares(cases)], axis=1)
    table[f"{kind} (ms)"] = cases["total_ms"].map(significant)
    table["wall time (ms)"] = cases["wall_ms"].map(significant)
    table["device busy (%)" if kind == KERNELS else "of the wall time (%)"] = _busy(cases)
    if len(failed):
        table["status"] = cases["status"].fillna("ok")
    most = (known[OTHER] / known["total_ms"]).max()
    note = f"At most {percent(most)} of a phase has no class. " if len(known) else ""
    caption = f"Share of the time of {kind}, by class{what}"
    return [Lines(caption, table, (note + _older(evidence)).strip())]


def _older(evidence: MachineEvidence) -> str:
    if not (kernels(evidence)["name"] == REST).any():
        return ""
    return (
        f"Of this evidence only the {KERNELS_SHOWN} longest kernels of a phase are known by name;"
        " the others stand as they were classed when measured, when a fused kernel with a cast"
        " among its operators was a copy."
    )


def attention_table(evidence: MachineEvidence) -> list[Lines]:
    """P3: the parts of plain attention, share of its time beside share of its FLOPs."""
    parts = attention_parts(evidence)
    if parts.empty:
        return []
    lines = parts.drop_duplicates(CELL)[CELL].reset_index(drop=True)
    columns = {}
    for part in PARTS:
        own = lines.merge(having(parts, name=part), on=CELL, how="left")
        columns[f"{part}: time (%)"] = _percentages(own["share"])
        columns[f"{part}: FLOPs (%)"] = _percentages(own["flops_share"])
    what, axes = _axes(lines, CELL[:-1])
    table = pd.concat([axes, pd.DataFrame(columns)], axis=1)
    return [Lines(f"Inside plain attention, forward{what}", table)]


def attention_parts(evidence: MachineEvidence) -> pd.DataFrame:
    """The parts of attention, with ``share``: that of the time of attention."""
    frame = evidence.frame(STEM)
    rows = having(frame[gates.shown(frame)], table="attention")
    return rows.assign(share=rows["total_ms"] / rows.groupby(CELL)["total_ms"].transform("sum"))


def trace_table(evidence: MachineEvidence) -> list[Lines]:
    """P4: the trace of each case; the one that is published is a link."""
    frame = evidence.frame(STEM)
    rows = frame[frame["trace"].notna()].drop_duplicates("trace")
    if rows.empty:
        return []
    what, table = _axes(rows, CASE)
    link = f"[{PUBLISHED_TRACE}](traces/{PUBLISHED_TRACE})"
    table = table.assign(trace=rows["trace"].replace(PUBLISHED_TRACE, link))
    return [Lines(f"Traces{what}", table)]


def _is_eager_forward(frame: pd.DataFrame) -> pd.Series:
    return (frame["implementation"] == "eager") & (frame["phase"] == "forward")


TABLES = (
    Table("P1", "Kernels of a phase", kernel_tables),
    Table("P2", "Share of each class of kernels", class_table),
    Table("P3", "Inside attention: time beside FLOPs", attention_table, Owed(_is_eager_forward)),
    Table("P4", "Traces", trace_table),
)
