"""Markdown tables from rows of evidence: statuses in words, units in headers, captions with ids."""

from __future__ import annotations

import re
from collections.abc import Sequence

import numpy as np
import pandas as pd

from lmperf.reporting import gates
from lmperf.reporting.evidence import in_order
from lmperf.reporting.numbers import EMPTY, absent, gib, implementation_words, significant, spread

REASON_LENGTH = 160
REASONS = 12
MEDIAN_APART = 0.05
BETWEEN = "\0"
# What `escaped` changes: three signs, and white space but single blanks between words.
UNSAFE = re.compile(rf"[\\|<]|[^\S ]|\s\s|{BETWEEN}\s|\s{BETWEEN}")
STATUS_WORDS = {
    "oom": "out of memory",
    "timeout": "time-out",
    "crash": "crash",
    "nan": "result not finite",
    "unsupported": "unsupported",
    "failed_check": "gate failed, withheld",
}
AXIS_WORDS = {
    "context_length": "context",
    "seq_len": "sequence length",
    "extra_tokens": "extra tokens",
}
LEFT_COLUMNS = frozenset(
    (
        *("size", "dtype", "implementation", "status", "operation", "tensor", "kind", "note"),
        *("shape", "subject", "causal", "unsupported"),
    )
)


def escaped(value) -> str:
    """Text that is safe inside a cell of a Markdown table."""
    text = " ".join(str(value).split())
    return text.replace("\\", "\\\\").replace("|", "\\|").replace("<", "&lt;")


def markdown(frame: pd.DataFrame, caption: str, left: Sequence[str] = ()) -> str:
    """A caption and a pipe table; text columns flush left, all others right."""
    left = {*left, *LEFT_COLUMNS}
    headers = [escaped(name) for name in frame.columns]
    columns = [
        _padded([header, *_cells(frame[name])], name in left)
        for header, name in zip(headers, frame.columns, strict=True)
    ]
    body = "\n".join(f"| {' | '.join(line)} |" for line in zip(*columns, strict=True))
    return f"**{caption}**\n\n{body}"


def _cells(column: pd.Series) -> list[str]:
    """The values of a column as text that is safe in a table; most have nothing to escape."""
    values = [_plain(value) for value in column]
    if UNSAFE.search(BETWEEN.join(["", *values, ""])):
        return [escaped(value) for value in values]
    return values


def _padded(cells: list[str], left: bool) -> list[str]:
    width = max(3, *map(len, cells))
    rule = f":{'-' * (width - 1)}" if left else f"{'-' * (width - 1)}:"
    header, *rest = [cell.ljust(width) if left else cell.rjust(width) for cell in cells]
    return [header, rule, *rest]


def _plain(value) -> str:
    if isinstance(value, str):
        return value
    if absent(value):
        return EMPTY
    if isinstance(value, bool | np.bool_):
        return "yes" if value else "no"
    return f"{value:.12g}" if isinstance(value, float) else str(value)


def status_words(frame: pd.DataFrame) -> pd.Series:
    """The status of each row in words; a red gate is said whatever the status column says."""
    words = frame["status"].map(STATUS_WORDS).fillna(frame["status"])
    words[frame["status"] == "ok"] = "ok"
    words[gates.red(frame) & (frame["status"] != "nan")] = STATUS_WORDS["failed_check"]
    oom = frame["status"] == "oom"
    if oom.any():
        words[oom] = _memory_words(frame[oom])
    return words


def _memory_words(frame: pd.DataFrame) -> list[str]:
    empty = pd.Series(float("nan"), index=frame.index)
    sizes = zip(frame.get("requested_bytes", empty), frame.get("free_bytes", empty), strict=True)
    return [_out_of_memory(requested, free) for requested, free in sizes]


def _out_of_memory(requested: float, free: float) -> str:
    asked = "" if absent(requested) else f"asked {gib(requested)}"
    left = "" if absent(free) else f"{gib(free)} free"
    details = ", ".join(part for part in (asked, left) if part)
    return f"OOM ({details})" if details else "OOM"


def timing_cells(frame: pd.DataFrame) -> pd.Series:
    """``mean ± std`` in ms where it may be shown, the status in words elsewhere.

    Where slow repetitions pull the mean away from the median, on which ratios and rates rest, the
    median stands beside it.
    """
    words = status_words(frame).astype(object)
    ok = frame[gates.shown(frame)]
    words[ok.index] = [spread(m, s) for m, s in zip(ok["mean_ms"], ok["std_ms"], strict=True)]
    apart = ok[(ok["mean_ms"] - ok["median_ms"]).abs() > MEDIAN_APART * ok["median_ms"]]
    words[apart.index] += [f", median {significant(m)}" for m in apart["median_ms"]]
    return words


def value_cells(frame: pd.DataFrame, values: pd.Series, form=significant) -> pd.Series:
    """``form(value)`` where the row may be shown, a dash elsewhere."""
    words = pd.Series(EMPTY, index=frame.index, dtype=object)
    ok = gates.shown(frame) & values.notna()
    words[ok] = [form(v) for v in values[ok]]
    return words


def shared_axes(frame: pd.DataFrame, cell: Sequence[str]) -> tuple[str, list[str]]:
    """Axes with a single value, as words for the caption, and those that vary, for the lines."""
    present = [name for name in cell if name in frame.columns and frame[name].notna().any()]
    varying = [name for name in present if frame[name].nunique(dropna=False) > 1]
    varying = varying or present[:1]
    constant = [name for name in present if name not in varying]
    return "".join(f", {_axis_words(name, frame[name].iloc[0])}" for name in constant), varying


def _axis_words(name: str, value) -> str:
    if isinstance(value, bool | np.bool_):
        return name if value else f"not {name}"
    return f"{AXIS_WORDS.get(name, name)} {_plain(value)}"


def wide(frame: pd.DataFrame, cells: pd.Series, rows: list[str], column: str) -> pd.DataFrame:
    """One line per distinct ``rows``, one column per value of ``column`` in reading order."""
    keys = [*rows, column]
    table = frame[keys].assign(cell=cells).dropna(subset=[column])
    table = table.drop_duplicates(keys, keep="last")
    wide = table.set_index(keys)["cell"].unstack(column, sort=False)
    wide = wide.reindex(columns=in_order(column, table[column]))
    return wide.astype(object).where(wide.notna(), EMPTY).reset_index()


def joined(left: pd.DataFrame, right: pd.DataFrame, rows: list[str]) -> pd.DataFrame:
    """Two wide tables side by side on the same lines; a dash where one has no line."""
    both = left.merge(right, on=rows, how="left")
    added = [name for name in right.columns if name not in rows]
    both[added] = both[added].astype(object).where(both[added].notna(), EMPTY)
    return both


def reasons(frame: pd.DataFrame) -> str:
    """Why rows are not ok: status, implementation, reason and number, most frequent first.

    Out of memory is left out: the cells themselves say what was asked and what was free.
    """
    failed = frame[~frame["status"].isin(["ok", "oom"]) & frame["reason"].notna()]
    if failed.empty:
        return ""
    counts = failed.groupby(["status", "implementation", "reason"], sort=True).size()
    counts = counts.sort_values(ascending=False, kind="stable")
    lines = [_reason_line(*key, count) for key, count in counts.iloc[:REASONS].items()]
    if len(counts) > REASONS:
        lines.append(f"- and {len(counts) - REASONS} further reasons, in the evidence")
    return "\n".join(lines)


def _reason_line(status: str, implementation: str, reason: str, count: int) -> str:
    what = f"{STATUS_WORDS.get(status, status)}, {implementation_words(implementation)}"
    rows = "row" if count == 1 else "rows"
    return f"- {what} ({count} {rows}): {escaped(_shortened(reason))}"


def _shortened(reason: str) -> str:
    return reason if len(reason) <= REASON_LENGTH else reason[: REASON_LENGTH - 1] + "…"
