"""The page that compares published numbers with this machine's rows of the same cells.

It shows the largest cell of each source, device and metric. No check depends on it.
"""

from __future__ import annotations

from dataclasses import replace
from functools import reduce

import pandas as pd

from lmperf.devices import SHEETS
from lmperf.dtypes import dtype_of
from lmperf.names import axis_words, dtype_words, in_order, phase_words, value_words
from lmperf.reporting import gates, marks
from lmperf.reporting.evidence import MachineEvidence, groups, having
from lmperf.reporting.numbers import counted, finite, fixed, rounded, significant
from lmperf.reporting.published import STEMS, cell_of, figures_of, sources
from lmperf.reporting.sections import Section
from lmperf.reporting.tables import TableGroup, from_frame, keys_of
from lmperf.results import STALE, Cell, Table
from lmperf.workflow import IS_PACKAGED

# Only a checkout has these files at a place that a page can link to.
LINK = None if IS_PACKAGED else "../../src/lmperf/reporting/published"
# Metric of a published number -> column of our rows, unit, and function that formats the value.
MEASURED = {
    "time": ("median_ms", " ms", significant),
    "memory before backward": ("saved_mib", " MiB", significant),
    "memory": ("saved_mib", " MiB", significant),
    "peak memory": ("peak_mib", " MiB", significant),
    "sum": ("value", "", fixed),
}
# (benchmark, metric, phase) -> how our number differs in meaning from the published one.
HERE = {
    ("attention", "memory", "backward"): "when is not stated; here before the backward",
    ("memory", "peak memory", "forward"): "the forward here is without gradients",
}
# Columns that say how large a cell is; the first one with values is used.
WORK = ("flops", "bytes", "predicted_mib")
# Of several published implementations of a cell, the table shows the first of these, if any,
# else the first in reading order.
FIRST = ("triton", "eager")
MOST = 20
NOT_STATED = "not stated"
# Device as a source names it -> its fastest variant with a data sheet.
DEVICES = {
    "H100": "H100 80GB HBM3",
    "H100 80 GB": "H100 80GB HBM3",
    "A100 40 GB": "A100-SXM4-40GB",
}


def beside(evidence: MachineEvidence) -> list[Table]:
    """The table of published numbers: per source, device and metric the largest measured cell."""
    matched = {stem: _matched(evidence, stem) for stem in STEMS}
    lines = [
        _line(stem, found)
        for stem, rows in matched.items()
        for _, found in rows.groupby(["source", "device", "metric"])
    ]
    impossible = sum(int(_impossible(rows).notna().sum()) for rows in matched.values())
    cannot = (
        f" {counted(impossible, 'time')} cannot be as printed (in ms where no unit is stated):"
        " a rate above the data sheet of the device would follow."
    )
    note = (
        "The table shows the largest such cell of each source, device and quantity. Times here are"
        f" medians. {_negative()}{cannot if impossible else ''} All published figures:"
        f" {', '.join(f'[{stem}]({LINK}/{stem}.csv)' if LINK else stem for stem in STEMS)}."
    )
    table = pd.DataFrame(lines[:MOST])
    caption = "The largest cells that were published"
    made = from_frame(caption, table, note, right=[], folds=False)
    return [made] if lines else []


def counts(evidence: MachineEvidence) -> list[Table]:
    """The table of how many published figures have a row here, and why the others have none."""
    lines = []
    for stem in STEMS:
        figures, found = figures_of(stem), len(_matched(evidence, stem))
        stated = (figures[cell_of(figures)] != "").all(axis=1)
        known = figures["metric"].isin(list(MEASURED))
        other = int((stated & ~known).sum())
        lines.append(
            {
                "benchmark": stem,
                "figures": len(figures),
                "found": found,
                "vague": int((~stated).sum()),
                "quantity": other,
                "no_row": int((stated & known).sum()) - found,
            }
        )
    table = pd.DataFrame(lines)
    total = table.drop(columns="benchmark").sum()
    note = (
        f"Of {total['figures']:,} published figures {total['found']:,} have a row here,"
        f" {total['figures'] - total['found']:,} have none."
    )
    headers = {
        "found": "with a row here",
        "vague": "cell not stated in full",
        "quantity": "quantity not measured here",
        "no_row": "cell not measured here",
    }
    return [from_frame("Published figures and rows", table, note, headers=headers)]


def source_table(_: MachineEvidence) -> list[Table]:
    """The table of sources: author, title, devices and number of figures of each."""
    every = pd.concat([figures_of(stem)[["source", "device"]] for stem in STEMS])
    lines = [
        {
            "source": one.source,
            "author": one.author or NOT_STATED,
            "title": one.title,
            "device": "; ".join(_devices(own := having(every, source=one.source))) or NOT_STATED,
            "figures": len(own),
        }
        for one in sources().itertuples()
    ]
    note = "The title of a write-up is its first heading."
    headers = {"device": "devices"}
    return [from_frame("Where the figures come from", pd.DataFrame(lines), note, headers=headers)]


def _devices(figures: pd.DataFrame) -> list[str]:
    return sorted(set(figures["device"]) - {NOT_STATED})


def _matched(evidence: MachineEvidence, stem: str) -> pd.DataFrame:
    """The published numbers whose cell this machine measured, the largest cell first.

    Column ``here`` holds this machine's number. Cells of equal work are ordered by implementation
    (as in ``FIRST``), then by dtype, the last in reading order first.
    """
    figures, frame = figures_of(stem), evidence.frame(stem)
    keys = [*cell_of(figures), "phase"]
    if frame is None or not set(keys) <= set(frame.columns):
        return figures.iloc[:0]
    frame = frame[gates.shown(frame)]
    numbers = {m: frame[c] for m, (c, *_) in MEASURED.items() if c in frame}
    numbers["flops"] = frame.get("flops", pd.Series(None, frame.index, float))
    work = next((frame[name] for name in WORK if name in frame and frame[name].notna().any()), 0.0)
    known = {"key": keys_of(frame), "marks": marks.names_of(frame)}
    ours = frame[keys].map(_text).assign(**numbers, work=work, **known)
    both = figures.merge(ours.drop_duplicates(keys, keep="last"), on=keys).sort_values(keys)
    here = [row.get(row["metric"]) for _, row in both.iterrows()]
    both = both.assign(here=pd.Series(here, both.index, dtype=float)).dropna(subset=["here"])
    names = [*FIRST, *in_order("implementation", both["implementation"])]
    numerics = both.get("dtype", pd.Series("", both.index))
    ranks = pd.DataFrame({"work": both["work"], "name": -both["implementation"].map(names.index)})
    ranks["numerics"] = numerics.map(in_order("dtype", numerics).index)
    return both.loc[ranks.sort_values(list(ranks), ascending=False, kind="stable").index]


def _impossible(rows: pd.DataFrame) -> pd.Series:
    """TFLOP/s of the published times that exceed their device's data sheet; NaN for all others.

    rows: from ``_matched``. A time without a unit is read as milliseconds.
    """
    if rows.empty or "dtype" not in rows:
        return pd.Series(float("nan"), rows.index)
    times = pd.to_numeric(rows["value"], errors="coerce").where(rows["metric"] == "time")
    ms = times * rows["unit"].map({"s": 1e3, "ms": 1.0, "": 1.0})
    rates = rows["flops"] / ms / 1e9
    return rates.where((ms > 0) & (rates > rows.apply(_peak, axis=1)))


def _peak(row: pd.Series) -> float:
    """TFLOP/s of the data sheet of a figure's device in its numerics; infinite if unknown."""
    sheet = SHEETS.get(DEVICES.get(row["device"], ""))
    known = sheet.tflops if sheet else {}
    return known.get(dtype_of(row["dtype"]).matmul, float("inf"))


def _cannot_be(rows: pd.DataFrame) -> str:
    """A remark on the rate that would follow from a time that cannot be; else empty."""
    rates = _impossible(rows).dropna()
    if rates.empty:
        return ""
    row = rows.loc[rates.index[0]]
    unit = "" if row["unit"] else " as ms"
    return (
        f"{row['value']}{unit} cannot be: it would be {rounded(rates.iloc[0])} TFLOP/s, the data"
        f" sheet has {significant(_peak(row))} in {dtype_words(dtype_of(row['dtype']).matmul)}"
    )


def _text(value) -> str:
    """The value of an axis as the CSV files of published numbers write it."""
    whole = isinstance(value, float) and value.is_integer()
    return str(int(value)) if whole else str(value)


def _line(stem: str, rows: pd.DataFrame) -> dict[str, str]:
    """A line of the table: the first cell of the rows, with all its phases."""
    cell, first = cell_of(figures_of(stem)), rows.iloc[0]
    rows = rows[(rows[cell] == first[cell]).all(axis=1)].drop_duplicates("phase")
    rows = pd.concat([part for _, part in groups(rows, "phase")])
    _, unit, form = MEASURED[first["metric"]]
    phases = " / ".join(map(phase_words, rows["phase"]))
    named = [phases] if first["metric"] == "time" else [first["metric"], phases]
    notes = [part for note in rows["note"] for part in note.split("; ")]
    notes += [HERE.get((stem, first["metric"], phase), "") for phase in rows["phase"]]
    device = "" if first["device"] == NOT_STATED else f", {first['device']}"
    return {
        "benchmark": stem,
        "cell": ", ".join(filter(None, (_words(name, first[name]) for name in cell))),
        "quantity": ", ".join(named if len(rows) > 1 else named[:1]),
        "source": first["source"] + device,
        "published": _printed(rows["value"], first["unit"]),
        "here": replace(
            _here(rows["here"].tolist(), form, unit, first["key"]),
            marks=_marks(rows["marks"], first["metric"]),
        ),
        "remark": "; ".join(filter(None, dict.fromkeys([*notes, _cannot_be(rows)]))),
    }


def _here(values: list[float], form, unit: str, key: str | None) -> Cell:
    """A table cell with this machine's number for each phase, joined by a slash.

    key: the key of the row of the first number.
    """
    first, second, *_ = *map(finite, values), None
    return Cell(" / ".join(map(form, values)) + unit, first, second=second, row=key)


def _marks(names: pd.Series, metric: str) -> tuple[str, ...]:
    """All marks of rows with a time; of rows with another quantity, only that of stale rows."""
    found = reduce(marks.both, names)
    return found if metric == "time" else tuple(name for name in found if name == STALE)


def _printed(values: pd.Series, unit: str) -> str:
    """The published values as text with their unit; seconds become milliseconds."""
    if unit == "s":
        values, unit = [significant(1e3 * float(value)) for value in values], "ms"
    number = any(value[-1].isdigit() for value in values)
    return " / ".join(values) + (f" {unit}" if unit and number else "")


def _words(name: str, value: str) -> str:
    """The name and value of an axis in words; empty for a flag that is false."""
    if name in ("implementation", "dtype"):
        return value_words(name, value)
    flags = {"True": axis_words(name), "False": ""}
    return flags.get(value, f"{axis_words(name)} {value}" if value.isdigit() else value)


def _negative() -> str:
    """A sentence on the most negative published time, which subtraction produced."""
    times = having(figures_of("warmup"), metric="time", unit="s")
    milliseconds = 1e3 * times["value"].astype(float)
    least = times.loc[milliseconds.idxmin()]
    cell = f"{least['source']}, {least['size']}, context {least['context_length']}"
    time = f"a {phase_words(least['phase'])} of {significant(milliseconds.min())} ms ({cell})"
    return f"Times obtained by subtraction can be impossible: {time}."


TABLES = (
    TableGroup("", "Sources", source_table),
    TableGroup("", "Published figures beside this machine's", beside),
    TableGroup("", "Figures with and without a row here", counts),
)
SECTION = Section((), None, TABLES, None, STEMS, "Published figures", 90, in_write_up=False)
