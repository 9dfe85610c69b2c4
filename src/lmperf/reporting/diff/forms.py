"""A comparison as text, as Markdown for a pull request, as JSON and as CSV."""

from __future__ import annotations

import json
import math
from dataclasses import replace

import pandas as pd
from tabulate import tabulate

from lmperf.names import STATUSES, mark_words
from lmperf.reporting.diff.comparison import BROKEN, MENDED, VERDICTS, Comparison
from lmperf.reporting.foreign import deep, in_markdown, plain
from lmperf.reporting.formats import FORMATS
from lmperf.reporting.markdown import body, laid_out
from lmperf.reporting.numbers import (
    absent,
    counted,
    finite,
    interval,
    listed,
    percent,
    significant,
    whole,
)
from lmperf.reporting.tables import as_cell, number_cells
from lmperf.results import (
    DERIVED,
    EMPTY,
    HIGHER,
    LOWER,
    NO_TIME,
    NOT_RECORDED,
    TIME,
    Cell,
    Column,
    Table,
)
from lmperf.statistics import (
    FALSE_DISCOVERY,
    FASTER,
    FLOOR_QUANTILE,
    SAME,
    SLOWER,
    UNRESOLVED,
)

WORST = 20
# Rows in the folded part; GitHub limits a comment to 65,536 characters.
DETAILS = 200
OVERVIEW = "By benchmark, {} as the median of the rows (lowest-highest):"
# Whether the results were timed in turn -> what the times and the ratio are.
_TIMES = {
    True: "times: medians over the rounds; the ratio is the median of the ratios of the rounds",
    False: "times: medians over the rounds, whose quotient is the ratio; of steps back to back if"
    " both have them",
}


def headline(comparison: Comparison) -> str:
    """One line: the number of regressions, and of rows that are not decided.

    Between two devices: which of them is faster in how many rows.
    """
    if comparison.rows.empty:
        return "No row to compare"
    if comparison.of_two_devices:
        old, new, counts = comparison.old.name, comparison.new.name, comparison.counts
        faster = f"{counts[SLOWER]:,} rows faster on {old}, {counts[FASTER]:,} on {new}"
        return f"Two devices: {faster}, of {len(comparison.rows):,}"
    number = comparison.regressions
    found = f"{number:,} found" if number else "none found"
    open_rows = comparison.counts[UNRESOLVED]
    left = f", {open_rows:,} of {counted(len(comparison.rows), 'row')} undecided"
    words = f"Regressions beyond {percent(comparison.at_least)}: {found}"
    return f"{words}{left if open_rows else ''}"


def summary(comparison: Comparison) -> list[str]:
    """Lines about what was compared, the number of rows by verdict, and other differences."""
    words, (old, new) = _words(comparison), _sides(comparison)
    counts = [f"{number:,} {words[name]}" for name, number in comparison.counts.items() if number]
    left = {
        f"only in {old}": comparison.only[0],
        f"only in {new}": comparison.only[1],
        "ok in neither": comparison.neither,
        "without a time": comparison.untimed,
        "the same measurement in both": comparison.identical,
    }
    left = [f"{number:,} {why}" for why, number in left.items() if number]
    lines = [
        f"{comparison.old.name} -> {comparison.new.name}:"
        f" {counted(len(comparison.rows), 'row')} compared: {listed(counts)}",
        f"ratio: {_over(comparison)}, above 1 {new} is faster",
        _TIMES[comparison.in_turn],
        f"counts from: the least difference that counts, {percent(comparison.at_least)} or the"
        f" row's noise floor; at most {percent(FALSE_DISCOVERY, 0)} of the differences found are"
        " expected to be due to chance",
        *([f"not compared: {listed(left)}"] if left else []),
    ]
    same, floor = comparison.same_code
    if same:
        lines.append(
            f"{counted(same, 'row')} with the same code and environment in both:"
            f" {percent(FLOOR_QUANTILE, 0)} of them differ by at most {percent(floor)} from run to"
            " run"
        )
    return lines + comparison.notes


def _sides(comparison: Comparison) -> tuple[str, str]:
    """The words for the two results: their names if they are of two devices."""
    names = comparison.old.name, comparison.new.name
    return names if comparison.of_two_devices else ("the old", "the new")


def _over(comparison: Comparison) -> str:
    return " / ".join(_sides(comparison)).replace("the ", "")


def _words(comparison: Comparison) -> dict[str, str]:
    """The words for each verdict: between two devices, where a row is faster or fails."""
    same = dict(zip(VERDICTS, VERDICTS, strict=True))
    if not comparison.of_two_devices:
        return same
    old, new = _sides(comparison)
    faster = {SLOWER: f"faster on {old}", FASTER: f"faster on {new}"}
    return {**same, **faster, BROKEN: f"failing on {new}", MENDED: f"failing on {old}"}


def table_of(comparison: Comparison, rows: pd.DataFrame, caption: str = "") -> Table:
    """The table of some compared rows, in the words of the comparison: see ``table``."""
    made, words = table(rows, caption), _words(comparison)
    if not comparison.of_two_devices:
        return made
    names = dict(zip(("old", "new"), _sides(comparison), strict=True))
    headers = {f"{side}.time": f"{name} (ms)" for side, name in names.items()}
    headers["old.over.new"] = _over(comparison)
    columns = [replace(c, header=headers.get(c.name, c.header)) for c in made.columns]
    said = [replace(cell, words=words[cell.value]) for cell in columns[0].cells]
    return replace(made, columns=(replace(columns[0], cells=tuple(said)), *columns[1:]))


def table(rows: pd.DataFrame, caption: str = "") -> Table:
    """A table of compared rows: verdict, times, ratio with interval, floor, cycles and marks.

    If rows no longer work, the last column gives the reasons.
    """
    named = {"verdict": rows["verdict"], "benchmark": rows["benchmark"], "row": rows["name"]}
    columns = [Column(name, name, tuple(map(as_cell, of))) for name, of in named.items()]
    columns += [
        Column(f"{side}.time", f"{side} (ms)", _times(rows, side), "ms", "significant", LOWER, TIME)
        for side in ("old", "new")
    ]
    ratios = _intervals(rows, "ratio", "low", "high")
    columns.append(Column("old.over.new", "old / new", ratios, "", "ratio", HIGHER, DERIVED))
    floors = tuple(number_cells(rows["floor"], percent))
    columns.append(Column("floor", "counts from", floors, "", "percent", "", DERIVED))
    if rows["cycles"].notna().any():
        ratios = _intervals(rows, "cycles", "cycles_low", "cycles_high")
        name = "old.over.new.cycles"
        columns.append(Column(name, "in cycles", ratios, "", "ratio", HIGHER, DERIVED))
    further = {
        "marks": rows[["marks_old", "marks_new"]].apply(lambda row: _marks(*row), axis=1),
        "why": rows["reason_new"].where(rows["verdict"] == BROKEN).fillna(""),
    }
    further = {name: of for name, of in further.items() if (of != "").any()}
    columns += [Column(name, name, tuple(map(as_cell, of))) for name, of in further.items()]
    return Table(caption, tuple(columns))


def overview(comparison: Comparison) -> Table | None:
    """A line for each benchmark: its rows by verdict and its ratios; None for fewer than two."""
    frame = comparison.by_benchmark
    if len(frame) < 2:
        return None
    words = _words(comparison)
    columns = [
        Column(name, words.get(name, name), tuple(map(as_cell, frame[name])))
        for name in frame.columns[:-3]
    ]
    ratios = frame[["ratio", "low", "high"]].itertuples(index=False)
    cells = tuple(Cell(interval(*of), *map(finite, of)) for of in ratios)
    over = _over(comparison)
    columns.append(Column("old.over.new", over, cells, "", "ratio", HIGHER, DERIVED))
    return Table("", tuple(columns))


def as_text(comparison: Comparison) -> str:
    """The summary, a line for each benchmark, and a line for each row, worst first."""
    lines = [headline(comparison), *(f"  {line}" for line in summary(comparison)), ""]
    if (short := overview(comparison)) is not None:
        lines += [OVERVIEW.format(_over(comparison)), "", _as_lines(short), ""]
    return plain("\n".join([*lines, _as_lines(table_of(comparison, comparison.rows))]) + "\n")


def _as_lines(shown: Table) -> str:
    headers, cells, _ = laid_out(shown)
    return tabulate(cells, headers=headers, tablefmt="plain", disable_numparse=True)


def as_markdown(comparison: Comparison) -> str:
    """Summary, worst rows, and further rows folded; short enough for a GitHub comment."""
    parts = [f"### {headline(comparison)}", "\n".join(f"- {line}" for line in summary(comparison))]
    if (short := overview(comparison)) is not None:
        parts += [OVERVIEW.format(_over(comparison)), body(short)]
    rows = comparison.rows[comparison.rows["verdict"] != SAME]
    worst, rest = rows.iloc[:WORST], rows.iloc[WORST:]
    if len(worst):
        parts.append(body(table_of(comparison, worst)))
    if len(rest):
        title = f"{counted(len(rest), 'further row')} that are not the same"
        left = len(rest) - DETAILS
        more = f"\n\nand {counted(left, 'further row')}" if left > 0 else ""
        text = body(table_of(comparison, rest.iloc[:DETAILS])) + more
        parts.append(f"<details>\n<summary>{title}</summary>\n\n{text}\n\n</details>")
    return in_markdown("\n\n".join(parts) + "\n")


def as_json(comparison: Comparison) -> str:
    """All results as JSON, times in milliseconds; absent numbers are null."""
    old, new = comparison.only
    document = {
        "old": _side(comparison.old),
        "new": _side(comparison.new),
        "at_least": comparison.at_least,
        "false_discovery": FALSE_DISCOVERY,
        "of_two_devices": comparison.of_two_devices,
        "regressions": comparison.regressions,
        "counts": comparison.counts,
        "only_old": old,
        "only_new": new,
        "ok_in_neither": comparison.neither,
        "untimed": comparison.untimed,
        "identical": comparison.identical,
        "same_code": dict(zip(("rows", "floor"), map(_plain, comparison.same_code), strict=True)),
        "notes": comparison.notes,
        "benchmarks": comparison.by_benchmark.to_dict("records"),
        "rows": [_row(row) for row in comparison.rows.to_dict("records")],
    }
    return json.dumps(deep(plain, document), indent=2, allow_nan=False) + "\n"


def as_csv(comparison: Comparison) -> str:
    """The numbers of every row as CSV, worst first."""
    caption = f"{comparison.old.name} -> {comparison.new.name}"
    return FORMATS["csv"](table_of(comparison, comparison.rows, caption)) + "\n"


FORMS = {"text": as_text, "markdown": as_markdown, "json": as_json, "csv": as_csv}


def _row(row: dict) -> dict:
    names = ("benchmark", "axes", "implementation", "phase", "verdict")
    numbers = ("ratio", "low", "high", "p", "floor", "rounds")
    cycles = ("cycles", "cycles_low", "cycles_high")
    of_side = ("state_{}", "reason_{}", "median_ms_{}", "marks_{}")
    sides = [name.format(side) for side in ("old", "new") for name in of_side]
    return {name: _plain(row[name]) for name in (*names, *numbers, *cycles, *sides)}


def _plain(value):
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _side(result) -> dict:
    commits = {c for frame in result.frames.values() for c in frame["commit"].dropna().unique()}
    return {"name": result.name, "machine": result.machine, "commits": sorted(commits)}


def _times(rows: pd.DataFrame, side: str) -> tuple[Cell, ...]:
    """The median of each row on one side, or its status if it is not ok."""
    names = ("median_ms", "state", "key")
    return tuple(
        Cell(STATUSES.get(state, state), state=NOT_RECORDED if state == "ok" else state, row=key)
        if state != "ok" or absent(median)
        else Cell(significant(median), finite(median), row=key)
        for median, state, key in zip(*(rows[f"{name}_{side}"] for name in names), strict=True)
    )


def _intervals(rows: pd.DataFrame, *names: str) -> tuple[Cell, ...]:
    values = zip(*(rows[name] for name in names), rows["rounds"], rows["verdict"], strict=True)
    return tuple(
        Cell(EMPTY, state=NO_TIME, verdict=verdict)
        if absent(value)
        else Cell(
            interval(value, low, high),
            *(finite(value), finite(low), finite(high), whole(rounds)),
            verdict=verdict,
        )
        for value, low, high, rounds, verdict in values
    )


def _marks(old, new) -> str:
    """The marks of both sides in words."""
    found = [mark for marks in (old, new) if not absent(marks) for mark in marks.split(";")]
    return ", ".join(dict.fromkeys(map(mark_words, found)))
