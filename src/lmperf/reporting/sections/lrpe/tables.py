"""Tables of the md_lrpe_cosine section: the head table (the one in the write-up), L1 and L2.

L1: times, rates and the share of a copy's speed. L2: measured and predicted peak memory. The lead
is the implementation that is compared with the others.
"""

from __future__ import annotations

from collections.abc import Callable

import pandas as pd

from lmperf.names import dtype_words, implementation_words, in_order, phase_words
from lmperf.reporting import gates, host_time
from lmperf.reporting.evidence import MachineEvidence, groups, having
from lmperf.reporting.marks import with_marks
from lmperf.reporting.numbers import EMPTY, Count, error, finite, percent, significant, whole
from lmperf.reporting.sections.lrpe import shapes
from lmperf.reporting.side_by_side import (
    Beside,
    each,
    memory,
    rate,
    side_by_side,
    speedup,
    time,
)
from lmperf.reporting.speedup import Series, every, speedup_cells
from lmperf.reporting.tables import (
    Owed,
    TableGroup,
    from_frame,
    kernel_note,
    kernel_times,
    number_cell,
    number_cells,
    status_cells,
    status_words,
    value_cells,
    with_shares,
)
from lmperf.results import DERIVED, HIGHER, Cell, Table, joined

HEAD_LINES = 12
RATIOS = (
    "GB/s: the bytes that must be moved, divided by the median time. % of copy and speed-ups: the"
    " median of the ratios of the rounds{}. The copy moves the same bytes."
)
CHECKED = {
    "out": "output",
    "dx": "dX",
    "angle": "angle",
    "norm": "length kept",
    "inverse": "backward inverts",
    "difference": "difference alone",
}
Make = Callable[[MachineEvidence, pd.DataFrame, str], Table | None]


def head(evidence: MachineEvidence) -> Table | None:
    """The head table: rates and speed-ups of the lead for a small to the largest shapes."""
    frame = shapes.rows_of(evidence)
    if frame is None or not shapes.leads(frame):
        return None
    lead, *peers = shapes.leads(frame)
    frame = _telling(having(frame, dtype=shapes.numerics(frame)))
    shares = shapes.over(evidence, lead, "copy", every)["ratio"]
    columns = []
    for phase, rows in groups(having(frame, implementation=lead), "phase"):
        rates = with_shares(value_cells(rows, rows["gbps"]), shares, rows)
        header = f"{phase_words(phase)} (GB/s)"
        named = f"{phase}.{lead}.bandwidth"
        columns.append(
            Beside(header, rates, named, "GB/s", "significant", HIGHER, DERIVED, "share of copy")
        )
        columns += _over(
            evidence, rows, lead, peers[:1], f"{phase_words(phase)} over", brackets=False
        )
    what = f"md_lrpe_cosine, {implementation_words(lead)}, {dtype_words(shapes.numerics(frame))}"
    notes = (
        f"In brackets: % of copy. {RATIOS.format(' (intervals: L1)')}{_dips(evidence, lead, frame)}"
    )
    table = side_by_side(what, frame, shapes.CELL, columns, notes)
    return table and table.last(HEAD_LINES)


def _dips(evidence: MachineEvidence, lead: str, among: pd.DataFrame) -> str:
    """A note on shares above 100 % where the copy itself is slower than copies of fewer bytes."""
    shares = shapes.over(evidence, lead, "copy", every)["ratio"]
    above = shares[shares > 1 + shapes.NEAR_COPY].index
    rows = shapes.rows_of(evidence)
    copies = having(rows[gates.shown(rows)], implementation="copy", dtype=shapes.numerics(among))
    cells = among.loc[among.index.intersection(above)]
    for row in cells.itertuples():
        same = having(copies, phase=row.phase)
        own = having(same, shape=row.shape, extra_tokens=row.extra_tokens)["gbps"].max()
        best = same.loc[same["bytes"] < row.bytes, "gbps"].max()
        if own < best * (1 - shapes.NEAR_COPY):
            return (
                f" Above 100 % the copy dips, to {significant(own)} GB/s (shape {row.shape})."
                f" Copies of fewer bytes reach {significant(best)}."
            )
    return ""


def _telling(frame: pd.DataFrame) -> pd.DataFrame:
    """The rows of the head table: the largest shape per number of axes, the smallest, a middle."""
    largest = frame["positions"] == frame.groupby("axes")["positions"].transform("max")
    positions = sorted(frame["positions"].unique())
    few, middle = positions[0], positions[len(positions) // 2]
    return frame[largest | frame["positions"].isin([few, middle])]


def _over(
    evidence: MachineEvidence,
    rows: pd.DataFrame,
    lead: str,
    peers: list[str],
    words: str,
    brackets: bool = True,
) -> list[Beside]:
    """Columns with the speed-ups of ``lead`` over each of ``peers``, in the phase of ``rows``.

    brackets: whether the words include the interval.
    """
    columns = []
    for peer in peers:
        series, base = Series.of(implementation=lead), Series.of(implementation=peer)
        cells = speedup_cells(evidence, shapes.STEM, series, base, brackets)
        cells = cells[cells.index.isin(rows.index)]
        phase = rows["phase"].iloc[0] if len(rows) else ""
        named = joined(phase, lead, "over", peer)
        columns.append(speedup(f"{words} {base.words}", cells, named))
    return columns


def _parts(make: Make) -> Callable[[MachineEvidence], list[Table]]:
    """Return a function that makes one table for each phase and dtype from the evidence."""

    def tables(evidence: MachineEvidence) -> list[Table]:
        frame = shapes.rows_of(evidence)
        parts = [] if frame is None else groups(frame, "phase", "dtype")
        return each(
            *(make(evidence, r, f"{phase_words(p)}, {dtype_words(d)}") for p, d, r in parts)
        )

    return tables


def _ordered(frame: pd.DataFrame) -> list[str]:
    """The implementations in the order of columns: the copy, our kernels, then the others."""
    names = in_order("implementation", frame["implementation"])
    return sorted(names, key=lambda name: (name != "copy", name not in ("triton", "triton_cached")))


def _speed(evidence: MachineEvidence, frame: pd.DataFrame, words: str) -> Table | None:
    """Table L1 of a phase and dtype: times, GB/s, shares of the copy's speed, speed-ups."""
    leads = shapes.leads(frame)
    columns = []
    for name in _ordered(frame):
        rows, label = having(frame, implementation=name), implementation_words(name)
        named = f"{frame['phase'].iloc[0]}.{name}"
        columns.append(time(label, kernel_times(rows), named))
        if name in ("copy", *leads[:1]):
            rates = with_marks(value_cells(rows, rows["gbps"]), rows)
            columns.append(rate(label, rates, f"{named}.bandwidth", "GB/s"))
        if name != "copy":
            shares = _shares(evidence, name)
            columns.append(rate(label, shares, f"{named}.share_of_copy", "% of copy", "percent"))
    if leads:
        columns += _over(
            evidence, frame, leads[0], leads[1:], implementation_words(leads[0]) + " over"
        )
    return side_by_side(
        words.capitalize(), frame, shapes.CELL, columns, f"{kernel_note(frame)} {RATIOS.format('')}"
    )


def _shares(evidence: MachineEvidence, name: str) -> pd.Series:
    """The speed of ``name`` in percent of the copy's, with interval: ``93.0 % (92.9-93.1)``.

    It has the marks of both rows, as a speed-up has.
    """
    found = shapes.over(evidence, name, "copy", every)
    sides = (Series.of(implementation=side) for side in (name, "copy"))
    marked = speedup_cells(evidence, shapes.STEM, *sides).map(lambda cell: cell.marks)
    cells = [
        Cell(
            f"{percent(r.ratio)} ({100 * r.low:.1f}-{100 * r.high:.1f})",
            *(finite(100 * r.ratio), finite(100 * r.low), finite(100 * r.high), whole(r.rounds)),
            verdict=r.verdict,
            marks=marked[r.Index],
        )
        for r in found.itertuples()
    ]
    return pd.Series(cells, found.index, dtype=object)


def _memory(_: MachineEvidence, frame: pd.DataFrame, words: str) -> Table | None:
    """Table L2 of a phase and dtype: measured and predicted peak of each implementation."""
    forward = frame["phase"] == "forward"
    closed = frame["predicted_forward_mib"].where(forward, frame["predicted_backward_mib"])
    frame = frame.assign(closed=closed)[closed.notna()]
    if frame["peak_mib"].isna().all():
        return None
    columns = []
    for name in _ordered(frame):
        rows, label = having(frame, implementation=name), implementation_words(name)
        peaks, named = value_cells(rows, rows["peak_mib"]), f"{frame['phase'].iloc[0]}.{name}"
        peaks = peaks.where(status_words(rows) == "ok", status_cells(rows))
        columns += [
            memory(label, peaks, f"{named}.peak"),
            memory(f"{label}, closed form", number_cells(rows["closed"]), f"{named}.predicted"),
        ]
    return side_by_side(f"Peak memory, {words}", frame, shapes.CELL, columns)


def host_tables(evidence: MachineEvidence) -> list[Table]:
    """The tables of device, host and loop times of each shape, with the fewest extra tokens."""
    frame = shapes.rows_of(evidence)
    if frame is not None:
        frame = having(frame, dtype=shapes.numerics(frame))
        frame = having(frame, extra_tokens=frame["extra_tokens"].min())
    return host_time.tables(frame, "md_lrpe_cosine", shapes.CELL)


def gate_tables(evidence: MachineEvidence) -> list[Table]:
    """Two tables of the largest errors over all cells: in timed rows, and in kernel tests."""
    return each(
        _gates(evidence.frame(shapes.STEM), "Gates of the timed rows"),
        _gates(evidence.frame(f"{shapes.STEM}_check"), "Kernel tests", every=True),
    )


def _gates(frame: pd.DataFrame | None, caption: str, every: bool = False) -> Table | None:
    """A table of the largest errors, with a line for each implementation and dtype.

    The share of the bound is the largest that a row reaches. every: also count rows that failed
    before their gate ran, since no other table shows kernel tests.
    """
    if frame is None:
        return None
    frame = frame[gates.gated(frame) | (every & (frame["status"] != "ok"))]
    if frame.empty:
        return None
    lines = [
        {
            "implementation": implementation_words(name),
            "numerics": dtype_words(dtype),
            **{key: number_cell(rows[f"error_{key}"].max(), error) for key in CHECKED},
            "share_of_bound": number_cell((rows["max_error"] / rows["error_bound"]).max(), percent),
            "passed": _passed(rows),
            **_others(rows, frame),
        }
        for name, dtype, rows in groups(frame, "implementation", "dtype")
    ]
    caption = f"{caption}, largest errors; {_passed(frame)} passed"
    headers = {
        **CHECKED,
        "share_of_bound": "largest share of its bound",
        "not_passed": "not passed",
    }
    return from_frame(caption, pd.DataFrame(lines), headers=headers)


def _passed(frame: pd.DataFrame) -> Cell:
    passed = Count(int(gates.shown(frame).sum()), len(frame))
    return Cell(str(passed), passed.k, n=passed.n)


def _others(rows: pd.DataFrame, among: pd.DataFrame) -> dict[str, str]:
    """The column of statuses of rows that did not pass; empty if all rows of ``among`` passed."""
    if gates.shown(among).all():
        return {}
    counts = status_words(rows[~gates.shown(rows)]).value_counts(sort=False)
    return {"not_passed": "; ".join(f"{words}: {n}" for words, n in counts.items()) or EMPTY}


TABLES = (
    TableGroup("L1", "Speed of md_lrpe_cosine, and its share of a copy", _parts(_speed)),
    TableGroup(
        "L2",
        "Memory of md_lrpe_cosine",
        _parts(_memory),
        Owed(where=lambda frame: frame["implementation"] != "copy"),
    ),
    TableGroup("", host_time.TITLE, host_tables),
    TableGroup("", "Gates and kernel tests", gate_tables),
)
