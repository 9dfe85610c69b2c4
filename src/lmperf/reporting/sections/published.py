"""Figures that others published, beside what this machine measured in the same cell.

They are context: no claim rests on them, nothing passes or fails by them, and they are in no
machine's evidence. `reporting/published/<stem>.csv` has a line for each figure, as it was printed:
source, device, the axes of the benchmark (empty where the source does not state them), value, unit.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path

import pandas as pd

from lmperf.reporting import published
from lmperf.reporting.evidence import MachineEvidence, in_order, in_reading_order
from lmperf.reporting.numbers import (
    EMPTY,
    absent,
    dtype_words,
    fixed,
    implementation_words,
    listed,
    phase_words,
    significant,
)
from lmperf.reporting.tables import AXIS_WORDS, markdown, shared_axes, timing_cells, value_cells

FOLDER = Path(published.__file__).parent
LINK = "../../src/lmperf/reporting/published"
MEASURED = {
    "memory before backward": ("saved_mib", "MiB"),
    "memory": ("saved_mib", "MiB"),
    "peak memory": ("peak_mib", "MiB"),
    "sum": ("value", ""),
}
NOT_STATED = "not stated"
MANY = 4
RESTS_ON = tuple(sorted(path.stem for path in FOLDER.glob("*.csv")))


@cache
def figures_of(stem: str) -> pd.DataFrame:
    """The published figures of a benchmark, all columns as text, empty where not stated."""
    return pd.read_csv(FOLDER / f"{stem}.csv", dtype=str, keep_default_na=False)


def tables(evidence: MachineEvidence) -> dict[str, str]:
    """``sources`` and ``beside``: the figures with a counterpart on this machine, by benchmark."""
    stems = in_order("stem", RESTS_ON)
    matched = {stem: _matched(evidence, stem) for stem in stems}
    beside = [_folded(stem, rows) for stem, rows in matched.items() if not rows.empty]
    return {"sources": _sources(matched), "beside": "\n\n".join(beside)}


def _cell_columns(figures: pd.DataFrame) -> list[str]:
    names = list(figures.columns)
    return names[names.index("device") + 1 : names.index("metric")]


def _matched(evidence: MachineEvidence, stem: str) -> pd.DataFrame:
    """Published figures whose whole cell this machine has, each with ``here``, what it measured."""
    figures, frame = figures_of(stem), evidence.frame(stem)
    keys = _cell_columns(figures)
    stated = figures[(figures[keys] != "").all(axis=1)]
    if frame is None or stated.empty or not set(keys) <= set(frame.columns):
        return figures.iloc[:0].assign(here="")
    plain = frame[keys].apply(_as_text)
    wanted = pd.concat([plain[name].isin(stated[name]) for name in keys], axis=1).all(axis=1)
    made = [
        plain[wanted].assign(
            metric=metric, here=_here(frame[wanted], metric), row=frame.index[wanted]
        )
        for metric in stated["metric"].unique()
    ]
    ours = pd.concat(made)
    ours = ours.drop_duplicates([*keys, "metric"], keep="last")
    both = stated.merge(ours, on=[*keys, "metric"], how="inner").set_index("row")
    both = both[both["here"] != EMPTY]
    typed = frame.loc[both.index, keys]
    return both.assign(**{name: typed[name].to_numpy() for name in keys})


def _here(frame: pd.DataFrame, metric: str) -> pd.Series:
    if metric == "time":
        return timing_cells(frame)
    column, _ = MEASURED.get(metric, (None, ""))
    empty = pd.Series(float("nan"), frame.index)
    form = fixed if metric == "sum" else significant
    return value_cells(frame, frame.get(column, empty) if column else empty, form)


def _as_text(column: pd.Series) -> pd.Series:
    return column.map({value: _plain(value) for value in column.unique()})


def _plain(value) -> str:
    if absent(value):
        return ""
    return f"{value:g}" if isinstance(value, float) else str(value)


def _folded(stem: str, rows: pd.DataFrame) -> str:
    """The figures of a benchmark, one table a metric, folded."""
    made = [_beside(stem, rows[rows["metric"] == m], m) for m in rows["metric"].unique()]
    title = f"{stem.replace('_', ' ').capitalize()}: {len(rows)} figures"
    return "\n\n".join([f"<details>\n<summary>{title}</summary>", *made, "</details>"])


def _beside(stem: str, rows: pd.DataFrame, metric: str) -> str:
    keys = _cell_columns(figures_of(stem))
    axes = [name for name in keys if name not in ("implementation", "phase")]
    constant, varying = shared_axes(rows, axes)
    lines = [*varying, "implementation", "phase"]
    table = in_reading_order(rows[keys].drop_duplicates(), first=varying)[lines]
    unit = "ms" if metric == "time" else MEASURED[metric][1]
    here = rows.drop_duplicates(lines)[[*lines, "here"]]
    table = table.merge(here.rename(columns={"here": _header("here", unit)}), on=lines)
    for (source, device), own in rows.groupby(["source", "device"], sort=True):
        header = _header(f"{source}, {_device(device)}", _unit(own))
        column = own[lines].assign(**{header: [_value(*r) for r in _values(own)]})
        table = table.merge(column.drop_duplicates(lines), on=lines, how="left")
    table = table.astype(object).where(table.notna(), EMPTY)
    return markdown(_in_words(table), f"Published, {metric}{constant}", left=["phase"])


def _header(words: str, unit: str) -> str:
    return f"{words} ({unit})" if unit else words


def _device(device: str) -> str:
    return f"device {NOT_STATED}" if device == NOT_STATED else device


def _unit(rows: pd.DataFrame) -> str:
    unit = rows["unit"].iloc[0]
    if rows["metric"].iloc[0] == "sum":
        return ""
    return {"s": "ms", "": f"unit {NOT_STATED}"}.get(unit, unit)


def _values(rows: pd.DataFrame):
    return rows[["value", "spread", "unit"]].itertuples(index=False)


def _value(value: str, spread: str, unit: str) -> str:
    """As printed; seconds in milliseconds."""
    if unit != "s":
        return value
    shown = [significant(1e3 * float(part)) for part in (value, spread) if part]
    return " ± ".join(shown)


def _in_words(table: pd.DataFrame) -> pd.DataFrame:
    words = {"implementation": implementation_words, "phase": phase_words, "dtype": dtype_words}
    present = {name: table[name].map(form) for name, form in words.items() if name in table}
    return table.assign(**present).rename(columns=AXIS_WORDS)


def _sources(matched: dict[str, pd.DataFrame]) -> str:
    lines = []
    for stem, both in matched.items():
        for (source, device), own in figures_of(stem).groupby(["source", "device"], sort=True):
            here = both[(both["source"] == source) & (both["device"] == device)]
            notes = {part for note in own["note"].unique() for part in note.split("; ") if part}
            lines.append(
                {
                    "source": source,
                    "device": _device(device),
                    "benchmark": f"[{stem}]({LINK}/{stem}.csv)",
                    "figures": len(own),
                    "with a counterpart here": len(here),
                    "remarks": _remarks(sorted(notes)),
                }
            )
    table = pd.DataFrame(lines)
    return markdown(table, "Published figures", ["source", "device", "benchmark", "remarks"])


def _remarks(notes: list[str]) -> str:
    if not notes:
        return EMPTY
    return listed(notes) if len(notes) <= MANY else "see the file"
