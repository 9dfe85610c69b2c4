"""Make cells from rows of evidence, and tables from cells."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import pandas as pd

from lmperf.benchmark import Case
from lmperf.benchmarks import load
from lmperf.evidence.plausible import KIND
from lmperf.names import STATUSES, axis_words, implementation_words, value_words
from lmperf.reporting import gates, marks
from lmperf.reporting.evidence import MachineEvidence
from lmperf.reporting.foreign import escaped
from lmperf.reporting.host_bound import host_bound
from lmperf.reporting.numbers import (
    absent,
    counted,
    finite,
    gib,
    percent,
    significant,
    spread,
    whole,
)
from lmperf.reporting.rounds import median_intervals, round_numbers, rounds_words
from lmperf.results import (
    EMPTY,
    IMPOSSIBLE,
    NO_ROW,
    NOT_RECORDED,
    Cell,
    Column,
    Table,
    plain_words,
)

REASON_LENGTH = 160
REASONS = 12
MEDIAN_APART = 0.05
STATUS_WORDS = {
    **STATUSES,
    "failed_check": "gate failed, withheld",
    "unchecked": "not checked, withheld",
}
# Status -> the note that explains its words below a table.
STATUS_NOTES = {"unchecked": "Not checked: the measured call fits into memory, its check does not."}
IMPOSSIBLE_WORDS = f"{KIND}, withheld"
_SPREAD = (
    "mean ± standard deviation (n calls), with the median if it differs by more than"
    f" {percent(MEDIAN_APART, 0)}."
)
_HOST_BOUND = " Of a host-bound step: least time and median."
_BURST = f"Burst (calls with pauses): {_SPREAD}"
_LONG = (
    f"Each step lasts seconds, in which clock and power settle as in steps back to back: {_SPREAD}"
)


@dataclass(frozen=True)
class Owed:
    """The configured rows that a table must show.

    Attributes:
        where: selects these rows among the rows of the benchmark; None selects all.
        stem: the benchmark that has the rows; None: the benchmark of the section.
        cell: the axes that make up a cell of the table; empty: all axes and the implementation.
        of: selects further rows of the benchmark whose cells the table must show.
        unless: why a machine may lack these rows although its preset has them.
        counted: evidence -> numbers of measured and of configured rows, for a table that is not
            made from the rows of one benchmark.
    """

    where: Callable[[pd.DataFrame], pd.Series] | None = None
    stem: str | None = None
    cell: Sequence[str] = ()
    of: Callable[[pd.DataFrame], pd.Series] | None = None
    unless: str | None = None
    counted: Callable[[MachineEvidence], tuple[int, int]] | None = None


@dataclass(frozen=True)
class TableGroup:
    """A numbered table of the report (E1, F2, ...), made of one or more tables.

    Attributes:
        id: the number of the table; empty for a table that the index does not list.
        title: what the table shows, in a few words.
        make: function from evidence to the tables; no table if there is nothing to show.
        owed: the rows that the table must show.
    """

    id: str
    title: str
    make: Callable[[MachineEvidence], Sequence[Table]]
    owed: Owed = field(default_factory=Owed)

    @property
    def name(self) -> str:
        """The number of the table, or its title if it has no number."""
        return self.id or self.title

    @property
    def heading(self) -> str:
        return f"{self.id}. {self.title}" if self.id else self.title

    @property
    def anchor(self) -> str:
        """The anchor that GitHub and GitLab derive from the heading of the table."""
        return re.sub(r"[^\w\- ]", "", self.heading.lower()).replace(" ", "-")


def from_frame(
    caption: str,
    frame: pd.DataFrame,
    notes: str = "",
    right: Sequence[str] | None = None,
    folds: bool = True,
    headers: Mapping[str, str] | None = None,
) -> Table:
    """A table from a data frame of cells or plain values.

    Args:
        frame: one column for each column of the table, under its stable name (`Column.name`).
        right: names of the right-aligned columns; None: columns of numbers are right-aligned.
        headers: name -> header, with the unit in brackets at its end; a column without an entry
            has its name as its header.
    """
    headers = headers or {}
    columns = [
        _column_of(str(name), headers.get(name, str(name)), frame[name]) for name in frame.columns
    ]
    if right is not None:
        columns = [replace(c, align="right" if c.name in right else "left") for c in columns]
    return Table(caption, tuple(columns), notes, folds=folds)


def _column_of(name: str, header: str, values: pd.Series) -> Column:
    made = tuple(map(as_cell, values))
    if not any(isinstance(value, Cell) for value in values):
        return Column(name, header, made)
    unit = re.search(r" \(([^()]*)\)$", header)
    return Column(name, header, made, unit[1] if unit else "", "significant")


def as_cell(value) -> Cell:
    """A cell that shows a value unrounded, or a dash for None and NaN; a Cell is kept unchanged."""
    if isinstance(value, Cell):
        return value
    if absent(value):
        return Cell(EMPTY, state=NO_ROW)
    if isinstance(value, str):
        return Cell(EMPTY, state=NOT_RECORDED) if value == EMPTY else Cell(value, value)
    value = value.item() if isinstance(value, np.generic) else value
    return Cell(plain_words(value), value)


def status_words(frame: pd.DataFrame) -> pd.Series:
    """The status of each row in words; a row whose gate is red (``gates.red``) reads "withheld".

    A result that is not finite reads so instead. Out-of-memory rows give the requested and the free
    memory.
    """
    words = frame["status"].map(STATUS_WORDS).fillna(frame["status"]).astype(object)
    words[gates.red(frame) & (frame["status"] != "nan")] = STATUS_WORDS["failed_check"]
    words[gates.impossible(frame)] = IMPOSSIBLE_WORDS
    oom = frame["status"] == "oom"
    if oom.any():
        sizes = zip(frame.loc[oom, "requested_bytes"], frame.loc[oom, "free_bytes"], strict=True)
        words[oom] = [_out_of_memory(requested, free) for requested, free in sizes]
    return words


def _out_of_memory(requested: float, free: float) -> str:
    asked = "" if absent(requested) else f"asked {gib(requested)}"
    left = "" if absent(free) else f"{gib(free)} free"
    # The allocator asks for one block: as much memory in smaller ones does not help.
    if asked and left and free >= requested:
        return f"OOM ({asked}; {left}, in pieces)"
    details = ", ".join(part for part in (asked, left) if part)
    return f"OOM ({details})" if details else "OOM"


def states(frame: pd.DataFrame) -> pd.Series:
    """Why a table shows no number of a row (a status or IMPOSSIBLE); None for a valid row."""
    status, red = frame["status"].to_numpy(object), gates.red(frame).to_numpy()
    state = status.copy()
    state[(status == "ok") & ~red] = None
    state[red & (status != "nan")] = "failed_check"
    state[gates.impossible(frame).to_numpy()] = IMPOSSIBLE
    return pd.Series(state, frame.index, dtype=object)


def status_cells(frame: pd.DataFrame) -> pd.Series:
    """A cell for each row with its status in words; its value is ``ok`` or one of ``states``."""
    parts = zip(status_words(frame), states(frame), keys_of(frame), strict=True)
    cells = [Cell(words, state or "ok", row=row) for words, state, row in parts]
    return pd.Series(cells, frame.index, dtype=object)


def with_status_notes(table: Table) -> Table:
    """The table, with a note for each status in its cells whose words need one (STATUS_NOTES)."""
    shown = {cell.state for cell in table.cells if cell.words != EMPTY}
    notes = [note for status, note in STATUS_NOTES.items() if status in shown]
    return replace(table, notes=" ".join(filter(None, [table.notes.strip(), *notes])))


def keys_of(frame: pd.DataFrame) -> Sequence[str | None]:
    """The key of each row; None for rows without keys."""
    return frame["key"].tolist() if "key" in frame else [None] * len(frame)


def or_status(frame: pd.DataFrame, shown: pd.Series, made: Sequence[Cell]) -> pd.Series:
    """The cells ``made`` for the rows that ``shown`` selects; cells with the status for all others.

    A row that is ok but not selected lacks the number: a dash, whose state is NOT_RECORDED.
    """
    cells, mask = np.empty(len(frame), dtype=object), shown.to_numpy(bool)
    if mask.all():
        cells[:] = made
        return pd.Series(cells, frame.index, dtype=object)
    others = frame[~mask]
    parts = zip(status_words(others), states(others), keys_of(others), strict=True)
    cells[~mask] = [
        Cell(words if state else EMPTY, state=state or NOT_RECORDED, row=row)
        for words, state, row in parts
    ]
    cells[mask] = made
    return pd.Series(cells, frame.index, dtype=object)


def step_times(frame: pd.DataFrame) -> pd.Series:
    """A cell for each row: ``mean ± std (n)`` in ms, or the status if ``gates.shown`` is false.

    If slow repetitions pull the mean away from the median, the words show the median too: ratios
    and rates are computed from it. Of a host-bound step, whose times are skewed, the words show the
    least time and the median: ``13.7 least, 16.1 median (60) host-bound``. The value of a cell is
    always the mean, its second value the median. ``burst_note`` and ``step_note`` make the note
    that explains them.
    """
    shown = gates.shown(frame)
    ok = frame[shown]
    columns = ["mean_ms", "std_ms", "repetitions", "median_ms", "least_ms"]
    numbers = zip(*(ok[c].tolist() for c in columns), host_bound(ok), strict=True)
    made = [
        Cell(
            _host_bound_words(least, median, n)
            if late
            else f"{spread(mean, std)} ({n:.0f}){_median_beside(mean, median)}",
            *(finite(mean), None, None, whole(n), finite(std), finite(median)),
            marks=names,
            row=row,
        )
        for (mean, std, n, median, least, late), names, row in zip(
            numbers, marks.names_of(ok), keys_of(ok), strict=True
        )
    ]
    return or_status(frame, shown, made)


def _host_bound_words(least: float, median: float, n: float) -> str:
    first = "" if absent(least) else f"{significant(least)} least, "
    return f"{first}{significant(median)} median ({n:.0f}) host-bound"


def _median_beside(mean: float, median: float) -> str:
    apart = abs(mean - median) > MEDIAN_APART * median
    return f", median {significant(median)}" if apart else ""


def burst_note(rows: pd.DataFrame) -> str:
    """The note that explains cells of ``step_times``; it names host-bound steps if there are any.

    rows: those of the cells.
    """
    return _BURST + _of_host_bound(rows)


def _of_host_bound(rows: pd.DataFrame) -> str:
    return _HOST_BOUND if host_bound(rows[gates.shown(rows)]).any() else ""


def step_note(stem: str, rows: pd.DataFrame) -> str:
    """The note that explains cells of ``step_times``: ``burst_note``, or one on long steps."""
    benchmark = load(stem)
    names = [axis.name for axis in benchmark.axes]
    cells = rows.reindex(columns=names).itertuples(index=False, name=None)
    cases = {
        Case(tuple(zip(names, cell, strict=True)), implementation)
        for cell, implementation in zip(cells, rows["implementation"], strict=True)
    }
    long = cases and all(map(benchmark.runs_back_to_back, cases))
    return _LONG + _of_host_bound(rows) if long else burst_note(rows)


def kernel_times(frame: pd.DataFrame) -> pd.Series:
    """A cell for each row: ``median (low-high; n)`` in ms, or the status if it has no valid time.

    low to high is the confidence interval of the median, from the medians of the rounds.
    ``kernel_note`` makes the note that explains these cells to readers.
    """
    shown = gates.shown(frame) & frame["median_ms"].notna()
    ok = frame[shown]
    lows, highs = (ends.tolist() for ends in median_intervals(ok))
    numbers = zip(
        *(ok["median_ms"].tolist(), lows, highs, ok["repetitions"].tolist()),
        *(marks.names_of(ok), keys_of(ok)),
        strict=True,
    )
    made = [
        Cell(
            f"{significant(m)} ({significant(low)}-{significant(high)}; {n:.0f})",
            *(m, finite(low), finite(high), whole(n)),
            marks=names,
            row=row,
        )
        for m, low, high, n, names, row in numbers
    ]
    return or_status(frame, shown, made)


def kernel_note(frame: pd.DataFrame) -> str:
    """The note that explains cells of ``kernel_times``, with the rows' numbers of rounds."""
    rounds = round_numbers(frame[gates.shown(frame)])
    taken = f" in {rounds_words(rounds)} rounds" if rounds else ""
    return f"Median (interval over rounds; n calls{taken})."


def medians(frame: pd.DataFrame) -> pd.Series:
    """A cell for each row: the median in ms, or the status if ``gates.shown`` is false."""
    shown = gates.shown(frame)
    ok = frame[shown]
    numbers = zip(ok["median_ms"].tolist(), marks.names_of(ok), keys_of(ok), strict=True)
    made = [Cell(significant(m), finite(m), marks=names, row=row) for m, names, row in numbers]
    return or_status(frame, shown, made)


def value_cells(frame: pd.DataFrame, values: pd.Series, form=significant) -> pd.Series:
    """A cell for each row: ``form(value)``, or a dash if the row is not valid or has no value."""
    cells = np.empty(len(frame), dtype=object)
    parts = zip(values.reindex(frame.index), states(frame), keys_of(frame), strict=True)
    for place, (value, state, row) in enumerate(parts):
        if state is not None or absent(value):
            cells[place] = Cell(EMPTY, state=state or NOT_RECORDED, row=row)
        else:
            cells[place] = Cell(form(value), finite(value), row=row)
    return pd.Series(cells, frame.index, dtype=object)


def number_cells(values: pd.Series, form=significant) -> pd.Series:
    """A cell ``form(value)`` for each number; an empty value has state NOT_RECORDED."""
    cells = [number_cell(value, form) for value in values.tolist()]
    return pd.Series(cells, values.index, dtype=object)


def number_cell(value: float, form=significant) -> Cell:
    """A cell ``form(value)``; an empty value has state NOT_RECORDED."""
    if absent(value):
        return Cell(EMPTY, state=NOT_RECORDED)
    return Cell(form(value), finite(value))


def beside(cells: pd.Series, others: pd.Series, form=significant) -> pd.Series:
    """Cells ``a / b``: ``cells`` with the number of ``others`` as second value, a dash if empty."""
    made = [
        replace(cell, words=f"{cell.words} / {form(other)}", second=finite(other))
        for cell, other in zip(cells, others.reindex(cells.index), strict=True)
    ]
    return pd.Series(made, cells.index, dtype=object)


def with_shares(cells: pd.Series, shares: pd.Series, rows: pd.DataFrame) -> pd.Series:
    """Cells ``563 (78.3 %)``: ``cells`` with a share as second value and the marks of their rows.

    A cell without a known share keeps its words. A cell with a status stays unchanged.
    """
    parts = zip(cells, shares.reindex(rows.index), marks.names_of(rows), strict=True)
    made = [_with_share(*part) for part in parts]
    return pd.Series(made, rows.index, dtype=object)


def _with_share(cell: Cell, share: float, names: tuple[str, ...]) -> Cell:
    if cell.state not in (None, NOT_RECORDED):
        return cell
    words = cell.words if absent(share) else f"{cell.words} ({percent(share)})"
    names = () if words == EMPTY else names
    return replace(cell, words=words, second=finite(share), marks=names)


def text_cells(values: pd.Series) -> pd.Series:
    """A cell for each text, which it shows unchanged."""
    return pd.Series([as_cell(value) for value in values], values.index, dtype=object)


def shared_axes(frame: pd.DataFrame, cell: Sequence[str]) -> tuple[list[str], list[str]]:
    """Split the axes: those with a single value (for the caption), those that vary (for the lines).

    If no axis varies, the lines get the first one.
    """
    present = [name for name in cell if name in frame.columns and frame[name].notna().any()]
    varying = [name for name in present if frame[name].nunique(dropna=False) > 1]
    varying = varying or present[:1]
    return [name for name in present if name not in varying], varying


def shared_words(frame: pd.DataFrame, cell: Sequence[str], shared: Sequence[str]) -> str:
    """The axes ``shared`` with their values in words, to append to a caption."""
    present = [name for name in cell if name in frame.columns and frame[name].notna().any()]
    words = (_axis_value(name, frame[name].iloc[0], present) for name in shared)
    return "".join(f", {word}" for word in words)


def _axis_value(name: str, value, axes: Sequence[str]) -> str:
    if isinstance(value, bool | np.bool_):
        return axis_words(name) if value else f"not {axis_words(name)}"
    if name in ("dtype", "implementation", "phase"):
        return value_words(name, value, axes)
    return f"{axis_words(name)} {as_cell(value)}"


def reasons(frame: pd.DataFrame) -> str:
    """Why rows failed: a Markdown line for each status, implementation and reason, with a count.

    The most frequent comes first. Out-of-memory rows are left out: their cells already give the
    requested and free memory.
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
    """The reason cut to ``most`` characters; a place in the code, as ``(file.py:12)``, is kept."""
    if len(reason) <= most:
        return reason
    place = re.search(r" \([^()\s]{1,60}:\d+\)", reason)
    end = "…" + (place[0] if place else "")
    return reason[: most - len(end)] + end
