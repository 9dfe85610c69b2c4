"""Rows that were measured now, for a terminal: times, speed-ups with verdicts, failed checks."""

from __future__ import annotations

from dataclasses import replace

import pandas as pd

from lmperf.benchmark import Benchmark, Timed
from lmperf.evidence.plausible import KIND
from lmperf.names import STATUSES, axis_words, implementation_words, in_order
from lmperf.reporting.cells import Cell, Table
from lmperf.reporting.columns import (
    Quantity,
    known_size,
    largest_error,
    number,
    over,
    status,
    text,
    time,
)
from lmperf.reporting.evidence import Evidence
from lmperf.reporting.rows import Rows
from lmperf.reporting.tables import Layout
from lmperf.reporting.untrusted import plain
from lmperf.reporting.words import TENSORS, count, error
from lmperf.statistics import FASTER, SLOWER

# With more implementations, a table compares each of them with one baseline only.
MOST_BASES = 4
# With more observations, such as kernels, a table has a line for each case only.
MOST_LINES = 40
# State of a row -> its words in a list of failures.
FAILED = STATUSES | {"failed_check": "gate failed, withheld", "impossible": f"{KIND}, withheld"}


def tables(evidence: Evidence, benchmark: Benchmark, baseline: str | None = None) -> list[Table]:
    """A table for each phase with times, rates, errors and speed-ups over other implementations.

    baseline: the only one; None: each implementation, or of more than MOST_BASES the project's
        first one.
    """
    stem, rows = benchmark.stem, evidence.rows(benchmark.stem)
    cell = [*(axis.name for axis in benchmark.axes), "implementation"]
    # Of a single case the implementation stands in the line, the axes in the caption.
    cell = cell if len(rows[cell].drop_duplicates()) > 1 else cell[::-1]
    if not isinstance(benchmark, Timed):
        return _observed(evidence, benchmark, rows, [*cell, "phase"])
    measured = in_order("implementation", rows["implementation"])
    own = [name for name in measured if benchmark.implementation(name).origin == "project"]
    bases = measured if len(measured) <= MOST_BASES else [*own, *measured][:1]
    columns = [
        time(),
        *([number("host_ms", "host", unit="ms")] if rows["host_ms"].notna().any() else []),
        number("tflops", unit="TFLOP/s"),
        number("bandwidth_gbps", unit="GB/s"),
        *(_over(base) for base in ([baseline] if baseline else bases)),
        *_errors(rows),
    ]
    return Layout(cell, columns, ["phase"]).tables(Rows(evidence, stem, rows))


def short_tables(
    evidence: Evidence, benchmark: Benchmark, baseline: str | None = None
) -> list[Table]:
    """A table for each phase and cell with times, speed-ups over the best peer, and errors.

    baseline: of the speed-ups; None: the fastest implementation that is not the user's.
    """
    rows = evidence.rows(benchmark.stem)
    if not baseline:
        rows = rows.assign(base=_best_peers(benchmark, rows))
    columns = [
        time(),
        _over(baseline) if baseline else _over("best", "over the best peer"),
        replace(largest_error(), header="error / bound"),
    ]
    split = ["phase", *(axis.name for axis in benchmark.axes)]
    layout = Layout(["implementation"], columns, split)
    return layout.tables(Rows(evidence, benchmark.stem, rows))


def _best_peers(benchmark: Benchmark, rows: pd.DataFrame) -> pd.Series:
    """What each row is compared with, as `over` reads it: the fastest peer of its cell."""
    cell = ["phase", *(axis.name for axis in benchmark.axes)]
    peers = rows[rows["state"].isna() & ~rows["implementation"].isin(benchmark.external)]
    fastest = peers.sort_values("ms").drop_duplicates(cell).set_index(cell)["implementation"]
    best = rows[cell].join(fastest, on=cell)["implementation"]
    others = best.notna() & (best != rows["implementation"])
    return best.map(lambda name: {"implementation": name}).where(others, None)


def _over(base: str, header: str | None = None) -> Quantity:
    """A column with the speed-ups of all other implementations over one, with their verdicts."""
    return replace(over("", base, header).mapped(_with_verdict), note="")


def _with_verdict(cell: Cell) -> Cell:
    says_it = cell.verdict in (FASTER, SLOWER)
    return replace(cell, words=f"{cell.words} {cell.verdict}") if says_it else cell


def _errors(rows: pd.DataFrame) -> list[Quantity]:
    """Columns with the errors of each row, also of those that failed their check."""
    tensors = [(f"error_{name}", f"error of {words}") for name, words in TENSORS.items()]
    return [
        largest_error(),
        *(known_size(name, header, "", error) for name, header in tensors if name in rows),
    ]


def _observed(
    evidence: Evidence, benchmark: Benchmark, rows: pd.DataFrame, case: list[str]
) -> list[Table]:
    if len(rows) > MOST_LINES:
        cases = Rows(evidence, benchmark.stem, rows.drop_duplicates(case))
        return Layout(case, [status()]).tables(cases)
    results = [
        text(name) if benchmark.kinds[name] is str else number(name, axis_words(name))
        for name in benchmark.result_columns
    ]
    columns = [status(), *results, *_errors(rows)]
    layout = Layout([*case, *benchmark.index], columns)
    return layout.tables(Rows(evidence, benchmark.stem, rows))


def failures(rows: pd.DataFrame) -> str:
    """A line for each reason why rows have no result: how many there are, the most frequent first.

    Rows that ran out of memory are left out: their cells say how much they asked for.
    """
    failed = rows[rows["state"].notna() & (rows["state"] != "oom")]
    counts = failed.fillna({"reason": ""}).value_counts(["state", "implementation", "reason"])
    lines = [
        f"- {FAILED.get(state, state)}, {implementation_words(name)} ({count(number, 'row')})"
        + (f": {plain(why)}" if why else "")
        for (state, name, why), number in counts.items()
    ]
    return "\n".join(lines)
