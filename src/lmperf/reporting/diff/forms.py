"""A comparison as text, as Markdown for a pull request, and as JSON."""

from __future__ import annotations

import json
import math

import pandas as pd
from tabulate import tabulate

from lmperf.names import mark_words
from lmperf.reporting.diff.comparison import BROKEN, Comparison
from lmperf.reporting.foreign import deep, in_markdown, plain
from lmperf.reporting.numbers import EMPTY, absent, counted, interval, listed, percent, significant
from lmperf.reporting.tables import pipe_table
from lmperf.statistics import FALSE_DISCOVERY, FLOOR_QUANTILE, SAME

WORST = 20
# A forge takes 65,536 characters as one comment.
DETAILS = 200


def headline(comparison: Comparison) -> str:
    """Whether there is a regression, in a few words."""
    if comparison.rows.empty:
        return "No row to compare"
    if not comparison.regressions:
        return f"No regression beyond {percent(comparison.at_least)}"
    return f"{counted(comparison.regressions, 'regression')} beyond {percent(comparison.at_least)}"


def summary(comparison: Comparison) -> list[str]:
    """What was compared, how many rows have each verdict, and what else differs, a line each."""
    counts = [f"{number:,} {name}" for name, number in comparison.counts.items() if number]
    left = {
        "in the old alone": comparison.only[0],
        "in the new alone": comparison.only[1],
        "ok in neither": comparison.neither,
        "without a time": comparison.untimed,
        "one measurement in both": comparison.identical,
    }
    left = [f"{number:,} {why}" for why, number in left.items() if number]
    lines = [
        f"{comparison.old.name} -> {comparison.new.name}:"
        f" {counted(len(comparison.rows), 'row')} compared: {listed(counts)}",
        f"old / new, above one is faster; differences from {percent(comparison.at_least)} on;"
        f" at most {percent(FALSE_DISCOVERY, 0)} of those named are expected to be chance of the"
        " rounds",
        *([f"not compared: {listed(left)}"] if left else []),
    ]
    same, floor = comparison.same_code
    if same:
        lines.append(
            f"{counted(same, 'row')} of the same code and environment in both:"
            f" {percent(FLOOR_QUANTILE, 0)} of them differ by at most {percent(floor)}, by the run"
        )
    return lines + comparison.notes


def table(rows: pd.DataFrame) -> pd.DataFrame:
    """Cells of the rows of a comparison: verdict, ratio with interval, times, cycles, marks, and
    why a row does not work any more."""
    cells = pd.DataFrame(
        {
            "verdict": rows["verdict"],
            "benchmark": rows["benchmark"],
            "row": rows["name"],
            "old (ms)": _times(rows, "old"),
            "new (ms)": _times(rows, "new"),
            "old / new": _intervals(rows, "ratio", "low", "high"),
        }
    )
    if rows["cycles"].notna().any():
        cells["in cycles"] = _intervals(rows, "cycles", "cycles_low", "cycles_high")
    further = {
        "marks": rows[["marks_old", "marks_new"]].apply(lambda row: _marks(*row), axis=1),
        "why": rows["reason_new"].where(rows["verdict"] == BROKEN).fillna(""),
    }
    return cells.assign(**{name: of for name, of in further.items() if (of != "").any()})


def as_text(comparison: Comparison) -> str:
    """The summary, and a line for each row, worst first."""
    lines = [headline(comparison), *(f"  {line}" for line in summary(comparison)), ""]
    cells = table(comparison.rows)
    body = tabulate(cells, headers="keys", showindex=False, tablefmt="plain", disable_numparse=True)
    return plain("\n".join([*lines, body]) + "\n")


def as_markdown(comparison: Comparison) -> str:
    """The summary, the worst rows, and the others folded; short enough for a comment."""
    parts = [f"### {headline(comparison)}", "\n".join(f"- {line}" for line in summary(comparison))]
    rows = comparison.rows[comparison.rows["verdict"] != SAME]
    worst, rest = rows.iloc[:WORST], rows.iloc[WORST:]
    if len(worst):
        parts.append(pipe_table(table(worst)))
    if len(rest):
        title = f"{counted(len(rest), 'further row')} that are not the same"
        left = len(rest) - DETAILS
        more = f"\n\nand {counted(left, 'further row')}" if left > 0 else ""
        body = pipe_table(table(rest.iloc[:DETAILS])) + more
        parts.append(f"<details>\n<summary>{title}</summary>\n\n{body}\n\n</details>")
    return in_markdown("\n\n".join(parts) + "\n")


def as_json(comparison: Comparison) -> str:
    """Everything, with ratios as fractions and times in milliseconds; null where there is none."""
    old, new = comparison.only
    document = {
        "old": _side(comparison.old),
        "new": _side(comparison.new),
        "at_least": comparison.at_least,
        "false_discovery": FALSE_DISCOVERY,
        "regressions": comparison.regressions,
        "counts": comparison.counts,
        "only_old": old,
        "only_new": new,
        "ok_in_neither": comparison.neither,
        "untimed": comparison.untimed,
        "identical": comparison.identical,
        "same_code": dict(zip(("rows", "floor"), map(_plain, comparison.same_code), strict=True)),
        "notes": comparison.notes,
        "rows": [_row(row) for row in comparison.rows.to_dict("records")],
    }
    return json.dumps(deep(plain, document), indent=2, allow_nan=False) + "\n"


FORMS = {"text": as_text, "markdown": as_markdown, "json": as_json}


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


def _times(rows: pd.DataFrame, side: str) -> list[str]:
    """The median of each row on one side; its status where it is not ok."""
    both = zip(rows[f"median_ms_{side}"], rows[f"state_{side}"], strict=True)
    return [
        state if state != "ok" or absent(median) else significant(median) for median, state in both
    ]


def _intervals(rows: pd.DataFrame, *names: str) -> list[str]:
    values = rows[list(names)].itertuples(index=False)
    return [EMPTY if absent(value) else interval(value, low, high) for value, low, high in values]


def _marks(old, new) -> str:
    """Marks of either side: what is not clean about the row."""
    found = [mark for marks in (old, new) if not absent(marks) for mark in marks.split(";")]
    return ", ".join(dict.fromkeys(map(mark_words, found)))
