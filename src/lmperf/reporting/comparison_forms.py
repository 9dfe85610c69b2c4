"""A comparison as text, as Markdown for a pull request, as JSON and as CSV."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace

import pandas as pd

from lmperf.reporting import formats
from lmperf.reporting.cells import Cell, Table, TableColumn
from lmperf.reporting.columns import cells
from lmperf.reporting.comparison import BROKEN, CYCLES, MENDED, VERDICTS, Comparison
from lmperf.reporting.judging import NEUTRAL
from lmperf.reporting.pairs import base_of
from lmperf.reporting.untrusted import deep, plain
from lmperf.reporting.words import count, end, listed, percent, ratio, sig
from lmperf.statistics import FALSE_DISCOVERY, FASTER, SAME, SLOWER, UNRESOLVED

SIDES = ("old", "new")
# Rows in a comment; GitHub limits it to 65,536 characters.
WORST = 50
JSON_COLUMNS = [
    *("benchmark", "axes", "implementation", "phase", "verdict", "cause"),
    *("ratio", "low", "high", "p", "floor", "rounds", *CYCLES),
    *(f"{name}_{side}" for side in SIDES for name in ("state", "reason", "ms", "marks")),
]
# Whether the results were timed in turn -> what the times and the ratio are.
RATIO_WORDS = {
    True: "times: medians over the rounds; the ratio is the median of the ratios of the rounds",
    False: "times: medians over the rounds, whose quotient is the ratio",
}


def headline(comparison: Comparison) -> str:
    """One line: the number of regressions, or which of two devices is faster in how many rows."""
    rows, counts = len(comparison.rows), comparison.counts
    if not rows:
        return "No row to compare"
    if comparison.has_two_devices:
        old, new = names(comparison)
        faster = f"{counts[SLOWER]:,} rows faster on {old}, {counts[FASTER]:,} on {new}"
        return f"Two devices: {faster}, of {rows:,}"
    number, undecided = comparison.regressions, counts[UNRESOLVED]
    words = f"{number:,} found" if number else "none found"
    words += f", {undecided:,} of {count(rows, 'row')} undecided" if undecided else ""
    return f"Regressions beyond {percent(comparison.at_least)}: {words}"


def names(comparison: Comparison) -> tuple[str, str]:
    """The words for the two results: those of the user if they are of two devices."""
    old, new = comparison.old.machine, comparison.new.machine
    return (old, new) if comparison.has_two_devices else SIDES


def words_of(comparison: Comparison) -> dict[str, str]:
    """The words for each verdict; between two devices they say which is faster."""
    words = dict(zip(VERDICTS, VERDICTS, strict=True))
    if comparison.has_two_devices:
        old, new = names(comparison)
        words |= {SLOWER: f"faster on {old}", FASTER: f"faster on {new}"}
        words |= {BROKEN: f"failing on {new}", MENDED: f"failing on {old}"}
    return words


def machines(comparison: Comparison) -> str:
    """The names of the two results."""
    return f"{comparison.old.machine} -> {comparison.new.machine}"


def summary(comparison: Comparison) -> list[str]:
    """Lines on what was compared, how many rows have which verdict, and other differences."""
    words, (old, new) = words_of(comparison), names(comparison)
    counts = [f"{number:,} {words[name]}" for name, number in comparison.counts.items() if number]
    compared = f"{count(len(comparison.rows), 'row')} compared: {listed(counts)}"
    lines = [
        f"{machines(comparison)}: {compared}",
        f"ratio: {old} / {new}, above 1 {new} is faster",
        RATIO_WORDS[comparison.in_turn],
        f"counts from: the least difference that counts, {percent(comparison.at_least)} or the"
        f" row's noise floor; at most {percent(FALSE_DISCOVERY, 0)} of the differences found are"
        " expected to be due to chance",
    ]
    if left := [f"{number:,} {why}" for why, number in comparison.not_compared.items()]:
        lines.append(f"not compared: {listed(left)}")
    return [*lines, *comparison.notes]


def by_benchmark(comparison: Comparison) -> pd.DataFrame:
    """A row for each benchmark with ratios: rows by verdict; median ratio, lowest and highest."""
    rows = comparison.rows[comparison.rows["ratio"].notna()]
    verdicts = [SLOWER, FASTER, SAME, UNRESOLVED]
    rows = rows.assign(**{name: rows["verdict"] == name for name in verdicts})
    grouped = rows.groupby("benchmark", sort=False)
    ratios = grouped["ratio"].agg(rows="size", ratio="median", low="min", high="max")
    ratios = ratios.join(grouped[verdicts].sum())
    columns = ["rows", *verdicts, "ratio", "low", "high"]
    return ratios[columns].sort_values("ratio", kind="stable").reset_index()


def overview(comparison: Comparison) -> Table:
    """A line for each benchmark."""
    frame, words = by_benchmark(comparison), words_of(comparison)
    over = " / ".join(names(comparison))
    columns = [_text(name, words.get(name, name), frame[name]) for name in frame.columns[:-3]]
    title = f"By benchmark, {over} as the median of the rows (lowest-highest)"
    return Table(title, (*columns, _ratio(frame, over)), folds=False)


def table(comparison: Comparison, rows: pd.DataFrame, caption: str = "") -> Table:
    """A line for each of these rows of a comparison."""
    words, (old, new) = words_of(comparison), names(comparison)
    columns = [
        _text("verdict", "verdict", rows["verdict"].map(words)),
        _text("benchmark", "benchmark", rows["benchmark"]),
        _text("row", "row", rows["name"]),
        TableColumn("old.time", f"{old} (ms)", tuple(cells(base_of(rows), "ms", sig)), "ms"),
        TableColumn("new.time", f"{new} (ms)", tuple(cells(rows, "ms", sig)), "ms"),
        _ratio(rows, f"{old} / {new}"),
        TableColumn("floor", "counts from", tuple(cells(_unjudged(rows), "floor", percent))),
    ]
    if rows["cycles"].notna().any():
        columns.append(_ratio(rows, "in cycles", *CYCLES))
    broken = rows["reason"].where(rows["verdict"] == BROKEN)
    further = {"why": broken.fillna(""), "cause": rows["cause"]}
    columns += [_text(name, name, texts) for name, texts in further.items() if (texts != "").any()]
    return Table(caption, tuple(columns))


def _text(name: str, header: str, values: pd.Series) -> TableColumn:
    return TableColumn(
        name, header, tuple(Cell(f"{v:,}" if type(v) is int else v, v) for v in values)
    )


def _unjudged(rows: pd.DataFrame) -> pd.DataFrame:
    """The rows without the states and signs of one side, which concern its time alone."""
    return rows.drop(columns=NEUTRAL, errors="ignore")


def _ratio(
    rows: pd.DataFrame, header: str, value: str = "ratio", low: str = "low", high: str = "high"
) -> TableColumn:
    ends = {"low": (low, end), "high": (high, end)}
    ratios = cells(_unjudged(rows), value, ratio, "{value} ({low}-{high})", **ends)
    name = "old.over.new" if value == "ratio" else f"old.over.new.{value}"
    return TableColumn(name, header, tuple(ratios))


def as_text(comparison: Comparison) -> str:
    """The summary, a line for each benchmark, and a line for each row, worst first."""
    lines = [headline(comparison), *(f"  {line}" for line in summary(comparison))]
    parts = [plain("\n".join(lines))]
    if comparison.rows["benchmark"].nunique() > 1:
        parts.append(formats.terminal(overview(comparison)))
    if len(comparison.rows):
        parts.append(formats.terminal(table(comparison, comparison.rows)))
    return "\n\n".join(parts) + "\n"


def as_markdown(comparison: Comparison) -> str:
    """The summary and the worst rows: short enough for a comment on GitHub."""
    lines = [f"- {line}" for line in summary(comparison)]
    parts = [f"### {headline(comparison)}", "\n".join(lines)]
    if comparison.rows["benchmark"].nunique() > 1:
        parts.append(formats.markdown(overview(comparison)))
    rows = comparison.rows[comparison.rows["verdict"] != SAME]
    if len(rows):
        parts.append(formats.markdown(replace(table(comparison, rows.iloc[:WORST]), folds=False)))
    if len(rows) > WORST:
        parts.append(f"and {count(len(rows) - WORST, 'further row')} that are not the same")
    return "\n\n".join(parts) + "\n"


def as_json(comparison: Comparison) -> str:
    """All results as JSON, times in milliseconds; absent numbers are null."""
    rows = comparison.rows
    sides = base_of(rows).add_suffix("_old").join(rows.add_suffix("_new"))
    rows = rows.join(sides)[JSON_COLUMNS].fillna({f"state_{side}": "ok" for side in SIDES})
    document = {
        "old": comparison.old.machine,
        "new": comparison.new.machine,
        "at_least": comparison.at_least,
        "false_discovery": FALSE_DISCOVERY,
        "of_two_devices": comparison.has_two_devices,
        "regressions": comparison.regressions,
        "counts": comparison.counts,
        "not_compared": comparison.not_compared,
        "notes": comparison.notes,
        "benchmarks": by_benchmark(comparison).to_dict("records"),
        "rows": rows.astype(object).where(rows.notna(), None).to_dict("records"),
    }
    return json.dumps(deep(plain, document), indent=2, allow_nan=False) + "\n"


def as_csv(comparison: Comparison) -> str:
    """The numbers of every row as CSV, worst first."""
    return formats.to_csv(table(comparison, comparison.rows, machines(comparison))) + "\n"


FORMS: dict[str, Callable[[Comparison], str]] = {
    "text": as_text,
    "markdown": as_markdown,
    "json": as_json,
    "csv": as_csv,
}
