"""Markdown tables from rows of evidence: statuses in words, units in headers, captions with ids."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np
import pandas as pd
from tabulate import tabulate

from lmperf.evidence.plausible import KIND
from lmperf.names import STATUSES, axis_words, implementation_words, value_words
from lmperf.reporting import gates, marks
from lmperf.reporting.evidence import MachineEvidence
from lmperf.reporting.foreign import LONGEST, in_html
from lmperf.reporting.numbers import EMPTY, absent, counted, gib, percent, significant, spread
from lmperf.reporting.speedup import median_intervals, round_numbers, rounds_words

# A longer table is folded: a page shows what matters first.
FOLD = 15
REASON_LENGTH = 160
REASONS = 12
MEDIAN_APART = 0.05
STATUS_WORDS = {**STATUSES, "failed_check": "gate failed, withheld"}
IMPOSSIBLE = f"{KIND}, withheld"
STEPS = (
    "Mean ± standard deviation (n calls), the median where it is more than"
    f" {percent(MEDIAN_APART, 0)} off."
)


def escaped(value) -> str:
    """Text that is safe inside a cell of a Markdown table; what is too long for one is cut."""
    text = " ".join(str(value).split())
    text = text if len(text) <= LONGEST else text[: LONGEST - 1] + "…"
    return text.replace("\\", "\\\\").replace("|", "\\|").replace("<", "&lt;")


@dataclass(frozen=True)
class Lines:
    """One Markdown table: a frame of cells under a caption.

    Attributes:
        caption: what the table shows, with what all its lines share (dtype, mask, unit).
        frame: text or numbers; headers carry the units.
        right: columns that are flush right; of the others those that hold numbers alone are.
        note: how to read its cells (estimator, what brackets mean), below the table, before what
            the signs of marked rows mean.
        folds: whether a page may fold it when it is long.
    """

    caption: str
    frame: pd.DataFrame
    note: str = ""
    right: Sequence[str] | None = None
    folds: bool = True

    def markdown(self, fold: int | None = FOLD) -> str:
        """The table, inside ``<details>`` when it is longer than ``fold`` lines."""
        body = pipe_table(self.frame, self.right)
        words = " ".join(filter(None, (self.note.strip(), self.legend())))
        note = f"\n\n{words}" if words else ""
        if fold is None or not self.folds or len(self.frame) <= fold:
            return f"**{self.caption}.**\n\n{body}{note}"
        title = f"{self.caption} ({counted(len(self.frame), 'line')})"
        opening = f"<details>\n<summary>{in_html(escaped(title))}</summary>\n"
        return f"{opening}\n{body}{note}\n\n</details>"

    def legend(self) -> str:
        """What the signs of marked rows mean, of those that its cells have."""
        return marks.legend(cell for cell in self.frame.to_numpy().flat if isinstance(cell, str))


@dataclass(frozen=True)
class Owed:
    """What a table rests on, of what the grid asks for.

    Attributes:
        where: the rows of a frame that it shows; all of them when None.
        stem: the benchmark; that of the section itself when None.
        cell: the axes that make one cell of it; all axes and the implementation when empty.
        of: the rows whose cells it owes as well, where that is more than the grid has of ``where``.
        unless: why a machine may have no such rows although its preset has them.
    """

    where: Callable[[pd.DataFrame], pd.Series] | None = None
    stem: str | None = None
    cell: Sequence[str] = ()
    of: Callable[[pd.DataFrame], pd.Series] | None = None
    unless: str | None = None


@dataclass(frozen=True)
class Table:
    """A numbered table of the report: E1, F2, ...

    Attributes:
        id: its number; empty for one that is not in the index.
        title: what it shows, in a few words.
        make: evidence -> its parts; empty where there is nothing to show.
        owed: what it rests on.
    """

    id: str
    title: str
    make: Callable[[MachineEvidence], Sequence[Lines]]
    owed: Owed = field(default_factory=Owed)

    @property
    def name(self) -> str:
        """How a page names it: its number, or its title where it has none."""
        return self.id or self.title

    @property
    def heading(self) -> str:
        return f"{self.id}. {self.title}" if self.id else self.title

    @property
    def anchor(self) -> str:
        """What a forge makes of its heading."""
        return re.sub(r"[^\w\- ]", "", self.heading.lower()).replace(" ", "-")


def cells_of(
    frame: pd.DataFrame, right: Sequence[str] | None = None
) -> tuple[list[str], list[tuple[str, ...]], list[str]]:
    """The headers of a frame, its lines of cells as text, and whether a column is flush right."""
    columns = [[_plain(value) for value in frame[name]] for name in frame.columns]
    aligns = [
        "right" if (name in right if right is not None else _numeric(column)) else "left"
        for name, column in zip(frame.columns, columns, strict=True)
    ]
    return [*map(str, frame.columns)], list(zip(*columns, strict=True)), aligns


def pipe_table(frame: pd.DataFrame, right: Sequence[str] | None = None) -> str:
    """The frame as a pipe table by tabulate, its cells safe and unpadded."""
    headers, rows, aligns = cells_of(frame, right)
    text = tabulate(
        [[escaped(cell) for cell in row] for row in rows],
        headers=[escaped(name) for name in headers],
        tablefmt="pipe",
        colalign=aligns if len(frame) else None,
        disable_numparse=True,
    )
    head, rule, *rest = text.splitlines()
    rule = re.sub(r"-{3,}", "---", rule)
    return "\n".join([_unpadded(head), rule, *map(_unpadded, rest)])


def _unpadded(line: str) -> str:
    return re.sub(r" {2,}", " ", line)


def _numeric(cells: Sequence[str]) -> bool:
    """Whether most cells of a column begin with a digit: such a column is flush right."""
    return sum(bool(re.match(r"[-+]?\d", cell)) for cell in cells) * 2 > len(cells)


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
    words = frame["status"].map(STATUS_WORDS).fillna(frame["status"]).astype(object)
    words[gates.red(frame) & (frame["status"] != "nan")] = STATUS_WORDS["failed_check"]
    words[gates.impossible(frame)] = IMPOSSIBLE
    oom = frame["status"] == "oom"
    if oom.any():
        sizes = zip(frame.loc[oom, "requested_bytes"], frame.loc[oom, "free_bytes"], strict=True)
        words[oom] = [_out_of_memory(requested, free) for requested, free in sizes]
    return words


def _out_of_memory(requested: float, free: float) -> str:
    asked = "" if absent(requested) else f"asked {gib(requested)}"
    left = "" if absent(free) else f"{gib(free)} free"
    details = ", ".join(part for part in (asked, left) if part)
    return f"OOM ({details})" if details else "OOM"


def step_times(frame: pd.DataFrame) -> pd.Series:
    """``mean ± std (n)`` in ms where it may be shown, the status in words elsewhere.

    Where slow repetitions pull the mean away from the median, on which ratios and rates rest, the
    median stands beside it. See ``STEPS``.
    """
    words = status_words(frame)
    ok = frame[gates.shown(frame)]
    triples = ok[["mean_ms", "std_ms", "repetitions"]].itertuples(index=False)
    words[ok.index] = [f"{spread(mean, std)} ({n:.0f})" for mean, std, n in triples]
    apart = ok[(ok["mean_ms"] - ok["median_ms"]).abs() > MEDIAN_APART * ok["median_ms"]]
    words[apart.index] += [f", median {significant(m)}" for m in apart["median_ms"]]
    return _signed(words, ok)


def kernel_times(frame: pd.DataFrame) -> pd.Series:
    """``median (low-high; n)`` in ms where it may be shown, the status in words elsewhere.

    The interval is that of the median of the rounds' medians. See ``kernel_note``.
    """
    words = status_words(frame)
    ok = frame[gates.shown(frame) & frame["median_ms"].notna()]
    low, high = median_intervals(ok)
    numbers = zip(ok["median_ms"], low, high, ok["repetitions"], strict=True)
    words[ok.index] = [
        f"{significant(m)} ({significant(a)}-{significant(b)}; {n:.0f})" for m, a, b, n in numbers
    ]
    return _signed(words, ok)


def kernel_note(frame: pd.DataFrame) -> str:
    """How to read ``kernel_times``: what its brackets hold, and in how many rounds it was taken."""
    rounds = round_numbers(frame[gates.shown(frame)])
    taken = f" in {rounds_words(rounds)} rounds" if rounds else ""
    return f"Median (interval over rounds; n calls{taken})."


def medians(frame: pd.DataFrame) -> pd.Series:
    """The median in ms where it may be shown, the status in words elsewhere."""
    words = status_words(frame)
    ok = frame[gates.shown(frame)]
    words[ok.index] = [significant(m) for m in ok["median_ms"]]
    return _signed(words, ok)


def _signed(words: pd.Series, timed: pd.DataFrame) -> pd.Series:
    """The cells with the signs of the rows that have a time."""
    words[timed.index] += marks.signs(timed)
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
    words = (_axis_value(name, frame[name].iloc[0], present) for name in constant)
    return "".join(f", {word}" for word in words), varying


def _axis_value(name: str, value, axes: Sequence[str]) -> str:
    if isinstance(value, bool | np.bool_):
        return axis_words(name) if value else f"not {axis_words(name)}"
    if name in ("dtype", "implementation"):
        return value_words(name, value, axes)
    return f"{axis_words(name)} {_plain(value)}"


def reasons(frame: pd.DataFrame) -> str:
    """Why rows are not ok: status, implementation, reason and number, most frequent first.

    Out of memory is left out: the cells themselves say what was asked and what was free.
    """
    failed = frame[~frame["status"].isin(["ok", "oom"]) & frame["reason"].notna()]
    if failed.empty:
        return ""
    counts = failed.groupby(["status", "implementation", "reason"], sort=True).size()
    counts = counts.sort_values(ascending=False, kind="stable")
    lines = [_reason_line(frame, *key, n) for key, n in counts.iloc[:REASONS].items()]
    if len(counts) > REASONS:
        lines.append(f"- and {len(counts) - REASONS} further reasons, in the evidence")
    return "\n".join(lines)


def _reason_line(
    frame: pd.DataFrame, status: str, implementation: str, reason: str, count: int
) -> str:
    name = implementation_words(implementation, frame.columns)
    what = f"{STATUS_WORDS.get(status, status)}, {name}"
    return f"- {what} ({counted(count, 'row')}): {escaped(shortened(reason))}"


def shortened(reason: str, most: int = REASON_LENGTH) -> str:
    """A reason of at most so many characters; the place in the code that it ends with is kept."""
    if len(reason) <= most:
        return reason
    place = re.search(r" \([^()\s]{1,60}:\d+\)", reason)
    end = "…" + (place[0] if place else "")
    return reason[: most - len(end)] + end
