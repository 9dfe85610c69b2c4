"""Rows and columns that the tables of the section share."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

import pandas as pd

from lmperf.benchmarks import load
from lmperf.names import in_order
from lmperf.reporting import gates
from lmperf.reporting.evidence import MachineEvidence, having
from lmperf.reporting.numbers import (
    Spread,
    absent,
    finite,
    percent,
    percent_digits,
    significant,
    whole,
)
from lmperf.reporting.sections.end_to_end.ways import sustained
from lmperf.reporting.side_by_side import Beside, rate, share, speedup, step_time, time
from lmperf.reporting.speedup import Series, every, speedup_cells
from lmperf.reporting.tables import keys_of, number_cells, or_status, step_times
from lmperf.results import DERIVED, EMPTY, HIGHER, LOWER, NOT_DECIDED, Cell
from lmperf.statistics import LEAST_FLOOR

STEM, LEDGER, MEMORY = "distributed", "distributed_overlap", "distributed_memory"
CELL = ["size", "context_length", "batch", "ranks", "dtype"]
LINES = [*CELL, "implementation"]
ONE, COMPILED = "one_rank", "_compiled"
# Largest idle share of a profiled step whose hidden share holds without the profiler as well.
MOST_IDLE = 0.2
# Largest width of the interval of a hidden share that holds.
WIDEST = 0.2
# By how much the work of profiled steps may exceed the timed step, as a fraction of it.
MOST_EXCESS = 0.05
_NOT_DECIDED = Cell("not decided", state=NOT_DECIDED)


def plain(name: str) -> str:
    """The name of a strategy without the suffix of its compiled variant."""
    return name.removesuffix(COMPILED)


def like(base: str, name: str) -> str:
    """The strategy ``base``, compiled if the strategy ``name`` is."""
    return base + COMPILED if name.endswith(COMPILED) else base


def of_strategies(frame: pd.DataFrame, names: Collection[str]) -> pd.DataFrame:
    """The rows of the strategies ``names`` and of their compiled variants."""
    return frame[frame["implementation"].map(plain).isin(list(names))]


def pairs(frame: pd.DataFrame, base: str) -> list[tuple[Series, Series]]:
    """Each strategy of the rows beside ``base``, at each number of ranks; ``ONE`` has one rank."""
    found = []
    for name in in_order("implementation", frame["implementation"]):
        other = like(base, name)
        if other == name:
            continue
        for ranks in sorted(having(frame, implementation=name)["ranks"].unique()):
            ours = Series.of(implementation=name, ranks=ranks)
            found.append((ours, Series.of(implementation=other, ranks=1 if base == ONE else ranks)))
    return found


def over(evidence: MachineEvidence, frame: pd.DataFrame, base: str, brackets: bool = True):
    """A cell for each row: its speed-up over the strategy ``base`` in the same cell."""
    parts = [speedup_cells(evidence, STEM, *pair, brackets) for pair in pairs(frame, base)]
    cells = pd.concat([pd.Series(dtype=object), *parts])
    return cells[cells.index.isin(frame.index)]


def floors(evidence: MachineEvidence, frame: pd.DataFrame, base: str) -> Spread | None:
    """The noise floors that decide the speed-ups of `over`; None if there is no speed-up."""
    found = [every(evidence, STEM, *pair)["floor"] for pair in pairs(frame, base)]
    known = pd.concat([pd.Series(dtype=float), *found])
    known = known[known.index.isin(frame.index)].clip(lower=LEAST_FLOOR).fillna(LEAST_FLOOR)
    return Spread.of(known) if len(known) else None


def efficiencies(evidence: MachineEvidence, frame: pd.DataFrame) -> pd.Series:
    """Speed-up over one rank divided by the number of ranks, for each row that has a speed-up."""
    found = [every(evidence, STEM, *pair) for pair in pairs(frame, ONE)]
    ratios = pd.concat([pd.Series(dtype=float), *(one["ratio"] / one["ranks"] for one in found)])
    return ratios[ratios.index.isin(frame.index)]


def ledger(evidence: MachineEvidence, table: str = "ledger") -> pd.DataFrame:
    """The rows of the ledger, or those of a timeline; rows that failed are among the former.

    The ledger's rows have the column `timed_ms`: see `with_timed`.
    """
    frame = evidence.frame(LEDGER)
    if frame is None:
        measured = [column.name for column in load(LEDGER).columns]
        frame = pd.DataFrame(columns=[*LINES, "phase", "status", *measured])
    if table == "ledger":
        return with_timed(evidence, frame[frame["table"].isna() | (frame["table"] == table)])
    return having(frame[gates.shown(frame)], table=table)


def with_timed(evidence: MachineEvidence, ledger: pd.DataFrame) -> pd.DataFrame:
    """Rows of the ledger with `timed_ms`: the ms of the same step without profiler, or NaN."""
    steps = evidence.frame(STEM)
    if steps is None:
        return ledger.assign(timed_ms=float("nan"))
    steps = steps[gates.shown(steps)].drop_duplicates(LINES).set_index(LINES)
    timed = lasting_ms(steps).reindex(pd.MultiIndex.from_frame(ledger[LINES]))
    return ledger.assign(timed_ms=timed.to_numpy(dtype=float))


def lasting_ms(steps: pd.DataFrame) -> pd.Series:
    """The sustained time of each step, or its median if it was not timed back to back."""
    return steps["sustained_ms"].fillna(steps["median_ms"])


def work_ms(frame: pd.DataFrame) -> pd.Series:
    """The ms of a profiled step in which a rank computes or waits for communication."""
    return frame["compute_ms"] + frame["exposed_ms"]


def idle_share(frame: pd.DataFrame) -> pd.Series:
    """The share of a profiled step in which a rank neither computes nor waits for communication."""
    return 1 - work_ms(frame) / frame["step_ms"]


def decided(frame: pd.DataFrame) -> pd.DataFrame:
    """The rows of the ledger that say what is hidden without the profiler as well.

    Left out are those whose ranks were idle for long: communication that runs while the device
    waits for the host would hide under computation in a step without the profiler. So are those
    whose hidden share varies from step to step, and those with more work than a step has time for
    without the profiler.
    """
    width = frame["hidden_share_high"] - frame["hidden_share_low"]
    fits = ~(excess_work(frame) > MOST_EXCESS)
    return frame[(idle_share(frame) <= MOST_IDLE) & ~(width > WIDEST) & fits]


def excess_work(frame: pd.DataFrame) -> pd.Series:
    """By how much the work of profiled steps exceeds the timed step, as a fraction, or NaN."""
    return work_ms(frame) / frame["timed_ms"] - 1


def beside(evidence: MachineEvidence, frame: pd.DataFrame) -> pd.DataFrame:
    """The valid rows of the ledger that belong to rows of steps, indexed like these."""
    rows = ledger(evidence)
    rows = rows[gates.shown(rows)].drop_duplicates(LINES).set_index(LINES)
    return rows.reindex(pd.MultiIndex.from_frame(frame[LINES])).set_axis(frame.index)


def if_decided(ledger: pd.DataFrame, cells: pd.Series) -> pd.Series:
    """The cells of rows of the ledger; *not decided* for a row that is not `decided`."""
    open_ = ledger["hidden_share"].notna() & ~ledger.index.isin(decided(ledger).index)
    return cells.mask(open_, _NOT_DECIDED)


def interval_cells(frame: pd.DataFrame, name: str) -> pd.Series:
    """A cell ``12.3 (12.1-12.6)`` for each row: a time of the ledger in ms, or the status."""
    stem = name.removesuffix("_ms")
    return _with_ends(frame, (name, f"{stem}_low_ms", f"{stem}_high_ms"), significant, 1)


def share_cells(frame: pd.DataFrame, name: str = "hidden_share") -> pd.Series:
    """A cell ``93.1 (92.0-94.2)`` for each row: a share of the ledger in percent, or the status."""
    return _with_ends(frame, (name, f"{name}_low", f"{name}_high"), percent_digits, 100)


def _with_ends(frame: pd.DataFrame, names: tuple[str, ...], form, scale: float) -> pd.Series:
    shown = gates.shown(frame) & frame[names[0]].notna()
    ok = frame[shown]
    numbers = (scale * ok[name].astype(float) for name in names)
    parts = zip(*numbers, ok["steps"], keys_of(ok), strict=True)
    made = [
        Cell(
            f"{form(middle)} ({form(low)}-{form(high)})",
            *(finite(middle), finite(low), finite(high), whole(steps)),
            row=key,
        )
        for middle, low, high, steps, key in parts
    ]
    return or_status(frame, shown, made)


def count(value: float) -> str:
    """A number of collectives; a dash if it is empty."""
    return EMPTY if absent(value) else f"{value:g}"


def step(frame: pd.DataFrame) -> list[Beside]:
    """The columns of a step: its time in bursts, and the sustained time if any row has one."""
    burst = step_time("step", step_times(frame), "train_step")
    if frame["sustained_ms"].isna().all():
        return [burst]
    return [burst, time("sustained", sustained(frame, brackets=False), "train_step.sustained")]


def over_one(evidence: MachineEvidence, frame: pd.DataFrame) -> list[Beside]:
    """Two columns: the speed-up over one rank, and its share of the number of ranks.

    A share has the marks of its speed-up.
    """
    ratios = over(evidence, frame, ONE)
    shares = number_cells(efficiencies(evidence, frame), percent)
    scaling = pd.Series(
        {row: replace(cell, marks=ratios[row].marks) for row, cell in shares.items()}, dtype=object
    )
    return [
        speedup("over one rank", ratios, f"over.{ONE}"),
        Beside("scaling efficiency", scaling, "scaling", "", "percent", HIGHER, DERIVED),
    ]


def overlap(evidence: MachineEvidence, frame: pd.DataFrame) -> list[Beside]:
    """Columns of the ledger: communication, its share of the step, and the hidden share."""
    rows = beside(evidence, frame)
    part = number_cells(rows["communication_ms"] / rows["step_ms"], percent)
    exposed = number_cells(rows["exposed_ms"], significant)
    return [
        time("communication", number_cells(rows["communication_ms"]), "communication"),
        share("communication in the step", if_decided(rows, part), "communication.share"),
        hidden("hidden", rows),
        Beside("exposed (ms)", if_decided(rows, exposed), "exposed", "ms", "significant", LOWER),
    ]


def hidden(what: str, ledger: pd.DataFrame) -> Beside:
    """A column of the hidden share of communication in percent, where it is decided."""
    cells = number_cells(100 * ledger["hidden_share"], percent_digits)
    return rate(what, if_decided(ledger, cells), "hidden", "%")
