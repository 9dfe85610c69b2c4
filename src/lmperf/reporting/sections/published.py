"""Figures that others published, beside what this machine measured in the same cell: context.

The page shows the largest cell of each source, device and metric; nothing passes or fails by it.
"""

from __future__ import annotations

import pandas as pd

from lmperf.names import axis_words, dtype_words, implementation_words, in_order, phase_words
from lmperf.reporting import gates
from lmperf.reporting.evidence import MachineEvidence
from lmperf.reporting.findings import PAGE, Finding, always, measured, rows_of
from lmperf.reporting.numbers import fixed, significant
from lmperf.reporting.published import STEMS, cell_of, figures_of
from lmperf.reporting.sections import Section
from lmperf.reporting.tables import Lines, Table

LINK = "../../src/lmperf/reporting/published"
# Metric -> the column here, its unit, its form.
MEASURED = {
    "time": ("median_ms", " ms", significant),
    "memory before backward": ("saved_mib", " MiB", significant),
    "memory": ("saved_mib", " MiB", significant),
    "peak memory": ("peak_mib", " MiB", significant),
    "sum": ("value", "", fixed),
}
# What tells the size of a cell, the first that its benchmark has.
WORK = ("flops", "bytes", "predicted_mib")
# Whose figure is shown of a cell, the first that was published; else the first in reading order.
FIRST = ("triton", "eager")
MOST = 20
NOT_STATED = "not stated"


def beside(evidence: MachineEvidence) -> list[Lines]:
    """One line a source, device and metric: its largest cell that this machine has, both ways."""
    matched = {stem: _matched(evidence, stem) for stem in STEMS}
    lines = [
        _line(stem, _largest(rows, cell_of(rows)))
        for stem, found in matched.items()
        for _, rows in found.groupby(["source", "device", "metric"])
    ]
    note = (
        f"Of {sum(len(figures_of(s)) for s in STEMS):,} published figures"
        f" {sum(map(len, matched.values())):,} have a row here; shown is the largest such cell of"
        f" each source, device and quantity. Times here are medians. All of them:"
        f" {', '.join(f'[{stem}]({LINK}/{stem}.csv)' for stem in STEMS)}."
    )
    table = pd.DataFrame(lines[:MOST])
    made = Lines("The largest cells that were published", table, note, right=[], folds=False)
    return [made] if lines else []


def _matched(evidence: MachineEvidence, stem: str) -> pd.DataFrame:
    """Published figures whose cell this machine has, with ``here``, its number, and ``work``."""
    figures, frame = figures_of(stem), evidence.frame(stem)
    keys = [*cell_of(figures), "phase"]
    if frame is None or not set(keys) <= set(frame.columns):
        return figures.iloc[:0]
    frame = frame[gates.shown(frame)]
    work = next((frame[name] for name in WORK if name in frame and frame[name].notna().any()), 0.0)
    ours = frame[keys].map(_text).assign(row=frame.index, work=work)
    both = figures.merge(ours.drop_duplicates(keys, keep="last"), on=keys).sort_values(keys)
    here = [
        frame.at[row, MEASURED[metric][0]] if metric in MEASURED else None
        for metric, row in zip(both["metric"], both["row"], strict=True)
    ]
    return both.assign(here=pd.Series(here, both.index, dtype=float)).dropna(subset=["here"])


def _text(value) -> str:
    """An axis value as a CSV of figures writes it."""
    whole = isinstance(value, float) and value.is_integer()
    return str(int(value)) if whole else str(value)


def _largest(rows: pd.DataFrame, cell: list[str]) -> pd.DataFrame:
    """The phases of one cell: most work, then by implementation, then the numerics named last."""
    names = [*FIRST, *in_order("implementation", rows["implementation"])]
    ranks = pd.DataFrame({"work": rows["work"], "name": -rows["implementation"].map(names.index)})
    if "dtype" in rows:
        ranks["dtype"] = rows["dtype"].map(in_order("dtype", rows["dtype"]).index)
    first = ranks.sort_values(list(ranks), ascending=False, kind="stable").index[0]
    same = rows[(rows[cell] == rows.loc[first, cell]).all(axis=1)].drop_duplicates("phase")
    return same.set_index("phase").loc[in_order("phase", same["phase"])].reset_index()


def _line(stem: str, rows: pd.DataFrame) -> dict[str, str]:
    first = rows.iloc[0]
    _, unit, form = MEASURED[first["metric"]]
    phases = " / ".join(map(phase_words, rows["phase"]))
    named = [phases] if first["metric"] == "time" else [first["metric"], phases]
    notes = dict.fromkeys(part for note in rows["note"] for part in note.split("; ") if part)
    device = "" if first["device"] == NOT_STATED else f", {first['device']}"
    cell = [_words(name, first[name]) for name in cell_of(figures_of(stem))]
    return {
        "benchmark": stem,
        "cell": ", ".join(word for word in cell if word),
        "quantity": ", ".join(named if len(rows) > 1 else named[:1]),
        "source": first["source"] + device,
        "published": _printed(rows["value"], first["unit"]),
        "here": " / ".join(map(form, rows["here"])) + unit,
        "remark": "; ".join(notes),
    }


def _printed(values: pd.Series, unit: str) -> str:
    """Values as printed, with their unit if they are numbers; seconds in milliseconds."""
    if unit == "s":
        values, unit = [significant(1e3 * float(value)) for value in values], "ms"
    number = any(value[-1].isdigit() for value in values)
    return " / ".join(values) + (f" {unit}" if unit and number else "")


def _words(name: str, value: str) -> str:
    """An axis and its value; empty for a flag that is not set."""
    if name in ("implementation", "dtype"):
        return implementation_words(value) if name == "implementation" else dtype_words(value)
    flags = {"True": axis_words(name), "False": ""}
    return flags.get(value, f"{axis_words(name)} {value}" if value.isdigit() else value)


def _negative(evidence: MachineEvidence) -> dict:
    """The published time furthest below nought, beside the same phase timed by itself here."""
    figures = figures_of("warmup")
    figures = figures[(figures["metric"] == "time") & (figures["unit"] == "s")]
    cell = ["size", "context_length", "batch", "dtype", "implementation", "phase"]
    rows = rows_of(evidence, "end_to_end")
    both = figures.merge(rows[cell].map(_text).assign(here=rows["median_ms"]), on=cell)
    both = both.assign(published=1e3 * both["value"].astype(float)).sort_values("published")
    return measured(both[both["published"] < 0]).iloc[0].to_dict()


FINDINGS = (
    Finding(
        name="published_negative",
        question="What does a time by subtraction look like?",
        values=_negative,
        answer=always,
        answers={
            "is": "A published {{ phase | phase }} takes {{ published | sig }} ms ({{ source }},"
            " size {{ size }}, context {{ context_length }}, {{ dtype | numerics }}, no warm-up):"
            " it was taken by subtraction. Timed by itself it takes {{ here | sig }} ms here.",
        },
        place=PAGE,
    ),
)
TABLES = (Table("", "Published figures beside this machine's", beside),)
SECTION = Section(FINDINGS, None, TABLES, None, STEMS, "Published figures", 90, in_write_up=False)
