"""A comparison as text, as Markdown for a pull request, as JSON and as CSV."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace

import pandas as pd

from lmperf.reporting import formats
from lmperf.reporting.comparing import BROKEN, MENDED, SIDES, VERDICTS, Comparison
from lmperf.reporting.foreign import deep, plain
from lmperf.reporting.results import Cell, Column, Table
from lmperf.reporting.tables import cells
from lmperf.reporting.words import count, end, listed, percent, ratio, sig
from lmperf.statistics import (
    FALSE_DISCOVERY,
    FASTER,
    SAME,
    SLOWER,
    UNRESOLVED,
)

# Rows in a comment; GitHub limits it to 65,536 characters.
WORST = 50
JSON_COLUMNS = [
    *("benchmark", "axes", "implementation", "phase", "verdict", "cause"),
    *("ratio", "low", "high", "p", "floor", "rounds", "cycles", "cycles_low", "cycles_high"),
    *(f"{name}_{side}" for side in SIDES for name in ("state", "reason", "ms", "marks")),
]
# Whether the results were timed in turn -> what the times and the ratio are.
SAID = {
    True: "times: medians over the rounds; the ratio is the median of the ratios of the rounds",
    False: "times: medians over the rounds, whose quotient is the ratio; of steps back to back if"
    " both have them",
}


def headline(of: Comparison) -> str:
    """One line: the number of regressions, or which of two devices is faster in how many rows."""
    rows, counts = len(of.rows), of.counts
    if not rows:
        return "No row to compare"
    if of.of_two_devices:
        old, new = names(of)
        faster = f"{counts[SLOWER]:,} rows faster on {old}, {counts[FASTER]:,} on {new}"
        return f"Two devices: {faster}, of {rows:,}"
    found = f"{of.regressions:,} found" if of.regressions else "none found"
    left = f", {counts[UNRESOLVED]:,} of {count(rows, 'row')} undecided"
    return f"Regressions beyond {percent(of.at_least)}: {found}{left if counts[UNRESOLVED] else ''}"


def names(of: Comparison) -> tuple[str, str]:
    """The words for the two results: those of the user if they are of two devices."""
    return (of.old.machine, of.new.machine) if of.of_two_devices else SIDES


def words_of(of: Comparison) -> dict[str, str]:
    """The words for each verdict; between two devices they say which is faster."""
    words = dict(zip(VERDICTS, VERDICTS, strict=True))
    if of.of_two_devices:
        old, new = names(of)
        words |= {SLOWER: f"faster on {old}", FASTER: f"faster on {new}"}
        words |= {BROKEN: f"failing on {new}", MENDED: f"failing on {old}"}
    return words


def summary(of: Comparison) -> list[str]:
    """Lines on what was compared, how many rows have which verdict, and other differences."""
    words, (old, new) = words_of(of), names(of)
    counts = [f"{number:,} {words[name]}" for name, number in of.counts.items() if number]
    compared = f"{count(len(of.rows), 'row')} compared: {listed(counts)}"
    lines = [
        f"{of.old.machine} -> {of.new.machine}: {compared}",
        f"ratio: {old} / {new}, above 1 {new} is faster",
        SAID[of.in_turn],
        f"counts from: the least difference that counts, {percent(of.at_least)} or the row's noise"
        f" floor; at most {percent(FALSE_DISCOVERY, 0)} of the differences found are expected to be"
        " due to chance",
    ]
    if of.left:
        lines.append(f"not compared: {listed([f'{n:,} {why}' for why, n in of.left.items()])}")
    return [*lines, *of.notes]


def by_benchmark(of: Comparison) -> pd.DataFrame:
    """A row for each benchmark with ratios: rows by verdict; median ratio, lowest and highest."""
    rows = of.rows[of.rows["ratio"].notna()]
    grouped = rows.groupby("benchmark", sort=False)
    found = grouped["ratio"].agg(rows="size", ratio="median", low="min", high="max")
    verdicts = (SLOWER, FASTER, SAME, UNRESOLVED)
    for one in verdicts:
        found[one] = (rows["verdict"] == one).groupby(rows["benchmark"]).sum()
    columns = ["rows", *verdicts, "ratio", "low", "high"]
    return found[columns].sort_values("ratio", kind="stable").reset_index()


def overview(of: Comparison) -> Table:
    """A line for each benchmark."""
    frame, words = by_benchmark(of), words_of(of)
    over = " / ".join(names(of))
    columns = [_text(name, words.get(name, name), frame[name]) for name in frame.columns[:-3]]
    title = f"By benchmark, {over} as the median of the rows (lowest-highest)"
    return Table(title, (*columns, _ratio(frame, over)), folds=False)


def table(of: Comparison, rows: pd.DataFrame, caption: str = "") -> Table:
    """A line for each of these rows of a comparison."""
    words, sides = words_of(of), names(of)
    columns = [
        _text("verdict", "verdict", rows["verdict"].map(words)),
        _text("benchmark", "benchmark", rows["benchmark"]),
        _text("row", "row", rows["name"]),
        *(_time(rows, side, words) for side, words in zip(SIDES, sides, strict=True)),
        _ratio(rows, " / ".join(sides)),
        Column("floor", "counts from", tuple(cells(rows, "floor", percent))),
    ]
    if rows["cycles"].notna().any():
        columns.append(_ratio(rows, "in cycles", "cycles", "cycles_low", "cycles_high"))
    broken = rows["reason_new"].where(rows["verdict"] == BROKEN)
    further = {"why": broken.fillna(""), "cause": rows["cause"]}
    columns += [_text(name, name, of) for name, of in further.items() if (of != "").any()]
    return Table(caption, tuple(columns))


def _text(name: str, header: str, values: pd.Series) -> Column:
    return Column(name, header, tuple(Cell(f"{v:,}" if type(v) is int else v, v) for v in values))


def _time(rows: pd.DataFrame, side: str, words: str) -> Column:
    of_side = rows.rename(columns=lambda name: name.removesuffix(f"_{side}"))
    made = tuple(cells(of_side, "ms", sig))
    return Column(f"{side}.time", f"{words} (ms)", made, "ms")


def _ratio(rows: pd.DataFrame, header: str, *columns: str) -> Column:
    value, low, high = columns or ("ratio", "low", "high")
    made = cells(rows, value, ratio, "{value} ({low}-{high})", low=(low, end), high=(high, end))
    name = "old.over.new" if value == "ratio" else f"old.over.new.{value}"
    return Column(name, header, tuple(made))


def as_text(of: Comparison) -> str:
    """The summary, a line for each benchmark, and a line for each row, worst first."""
    parts = ["\n".join([headline(of), *(f"  {line}" for line in summary(of))])]
    if of.rows["benchmark"].nunique() > 1:
        parts.append(formats.terminal(overview(of)))
    if len(of.rows):
        parts.append(formats.terminal(table(of, of.rows)))
    return plain("\n\n".join(parts) + "\n")


def as_markdown(of: Comparison) -> str:
    """The summary and the worst rows: short enough for a comment on GitHub."""
    parts = [f"### {headline(of)}", "\n".join(f"- {line}" for line in summary(of))]
    if of.rows["benchmark"].nunique() > 1:
        parts.append(formats.markdown(overview(of)))
    rows = of.rows[of.rows["verdict"] != SAME]
    if len(rows):
        parts.append(formats.markdown(replace(table(of, rows.iloc[:WORST]), folds=False)))
    if len(rows) > WORST:
        parts.append(f"and {count(len(rows) - WORST, 'further row')} that are not the same")
    return "\n\n".join(parts) + "\n"


def as_json(of: Comparison) -> str:
    """All results as JSON, times in milliseconds; absent numbers are null."""
    rows = of.rows[JSON_COLUMNS].fillna({f"state_{side}": "ok" for side in SIDES})
    document = {
        "old": of.old.machine,
        "new": of.new.machine,
        "at_least": of.at_least,
        "false_discovery": FALSE_DISCOVERY,
        "of_two_devices": of.of_two_devices,
        "regressions": of.regressions,
        "counts": of.counts,
        "not_compared": of.left,
        "notes": of.notes,
        "benchmarks": by_benchmark(of).to_dict("records"),
        "rows": rows.astype(object).where(rows.notna(), None).to_dict("records"),
    }
    return json.dumps(deep(plain, document), indent=2, allow_nan=False) + "\n"


def as_csv(of: Comparison) -> str:
    """The numbers of every row as CSV, worst first."""
    return formats.to_csv(table(of, of.rows, f"{of.old.machine} -> {of.new.machine}")) + "\n"


FORMS: dict[str, Callable[[Comparison], str]] = {
    "text": as_text,
    "markdown": as_markdown,
    "json": as_json,
    "csv": as_csv,
}
