"""Speed-ups with confidence intervals, of rows of one cell.

Two train steps that were timed back to back are compared by these sustained times: the interval is
from the blocks of both stretches. Other rows are compared by per-round ratios, if they were timed
in turn (interleaved): each round times every row of a group once, and column ``together``, the id
of the pass that timed them, is the same. `lmperf.statistics` computes estimate, interval and
verdict. This module decides which rows form a pair and which noise floor (`reporting.noise`) the
pair has. False discovery is controlled over all pairs of one call of ``speedups``. A pair is never
compared more finely than the clock can tell: a step of the event timer is 10 % of 5 us.

`reporting.comparable` decides which rows may form a pair.

Rows that were measured while the machine was disturbed (`marks.disturbed`) have a ratio, but are
never called faster, slower or the same. Neither are host-bound steps that were timed in different
groups, or are compared by sustained times: the speed of a host changes from minute to minute.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pandas as pd

from lmperf.names import dtype_words, implementation_words
from lmperf.reporting import gates, marks
from lmperf.reporting.comparable import (
    both_host_bound_apart,
    both_in_turn,
    both_lasting,
    devices,
    on_other_devices,
    sustains,
)
from lmperf.reporting.evidence import MachineEvidence, axes, having
from lmperf.reporting.host_bound import host_bound, host_bound_back_to_back
from lmperf.reporting.jobs import sets_of_gpus
from lmperf.reporting.noise import floors_of, noise_floors
from lmperf.reporting.numbers import finite, interval, ratio, whole
from lmperf.reporting.rounds import parse_rounds, resolution, round_counts, same_width
from lmperf.results import (
    EMPTY,
    NO_BASELINE,
    NO_TIME,
    NOT_IN_TURN,
    OTHER_GPU,
    OTHER_RUN,
    WITHHELD,
    Cell,
    joined,
)
from lmperf.statistics import (
    FALSE_DISCOVERY,
    LEAST_FLOOR,
    SAME,
    UNRESOLVED,
    Ratio,
    adjusted,
    paired,
    unpaired,
    verdict,
)

COLUMNS = ["ratio", "low", "high", "rounds", "p", "floor", "verdict", "base_ms", "holds"]
# A mean over cells includes unresolved ones whose interval is within this distance of the ratio.
PRECISE = 0.10


@dataclass(frozen=True)
class Series:
    """One side of a comparison: the rows of an implementation, of a dtype, or of both.

    ``Series.of(implementation="compiled", dtype="tf32")`` is an implementation in one numerics.
    All other columns may have any value, but two compared rows must agree in them.
    """

    where: tuple[tuple[str, str], ...]

    @staticmethod
    def of(**where: str) -> Series:
        return Series(tuple(sorted(where.items())))

    @property
    def words(self) -> str:
        """The implementation, the dtype or both in words: ``compiled, TF32``."""
        named = dict(self.where)
        form = {"implementation": implementation_words, "dtype": dtype_words}
        order = [name for name in ("implementation", "dtype") if name in named]
        return ", ".join(form[name](named[name]) for name in order)

    @property
    def name(self) -> str:
        """The implementation, the dtype or both as a part of a column's name: ``compiled.tf32``."""
        named = dict(self.where)
        return joined(*(named[name] for name in ("implementation", "dtype") if name in named))

    def rows(self, frame: pd.DataFrame) -> pd.DataFrame:
        """The rows of ``frame`` that belong to this series."""
        return having(frame, **dict(self.where))


def speedups(evidence: MachineEvidence, stem: str, series: Series, base: Series) -> pd.DataFrame:
    """Speed-ups of the rows of one series, each over the matching row of the base series.

    Both series must select by the same columns: by implementation, by dtype, or by both. Two rows
    match if all other axes, the phase and (if not selected by) the implementation are equal.

    Returns:
        One line for each row of the series that has a sustained time from the device of its base
        row, or was timed in turn with it, indexed like ``evidence.frame(stem)``. Columns: ratio
        (base time / time), low and high (ends of its confidence interval), rounds (or blocks), p
        (adjusted for false discovery over all lines; NaN if a row is ``marks.disturbed``), floor
        (the noise floor: the higher one if the dtypes of the two rows have different floors),
        verdict, base_ms (the base row's time in ms), and holds (whether neither row is
        ``marks.doubtful``).
    """

    def make() -> pd.DataFrame:
        timed = evidence.once(("timed", stem), lambda: _timed(evidence, stem))
        return _speedups(timed, _paired(evidence, stem, timed, series, base))

    return evidence.once(("speedups", stem, series, base), make)


def every(evidence: MachineEvidence, stem: str, series: Series, base: Series) -> pd.DataFrame:
    """The rows of a series that have a speed-up over the base, with the columns of ``speedups``."""
    found = speedups(evidence, stem, series, base)
    return evidence.frame(stem).loc[found.index].join(found)


def resolved(evidence: MachineEvidence, stem: str, series: Series, base: Series) -> pd.DataFrame:
    """The rows of a series with a speed-up over the base that a statement on a row may rest on.

    Left out are unresolved speed-ups and those of a row that is ``marks.doubtful``. The columns of
    ``speedups`` are added.
    """
    found = every(evidence, stem, series, base)
    return found[found["holds"] & (found["verdict"] != UNRESOLVED)]


def compared(
    evidence: MachineEvidence, stem: str, series: Series, base: Series, **where
) -> pd.DataFrame:
    """The rows of a series with a speed-up over the base that a statement on the series rests on.

    They are those of ``resolved``; none if these are fewer than half of all, since then they do
    not stand for the series.

    where: columns with their values, as of ``having``: only these rows are counted.
    """
    found = having(every(evidence, stem, series, base), **where)
    return _if_most(found, found["verdict"] != UNRESOLVED)


def averaged(
    evidence: MachineEvidence, stem: str, series: Series, base: Series, **where
) -> pd.DataFrame:
    """The rows of a series with a speed-up over the base that a mean over cells includes.

    As ``compared``, but with the unresolved speed-ups whose interval is within PRECISE of the
    ratio: without them a mean would be too far from 1.
    """
    found = having(every(evidence, stem, series, base), **where)
    width = np.maximum(found["high"] / found["ratio"], found["ratio"] / found["low"]) - 1
    return _if_most(found, (found["verdict"] != UNRESOLVED) | (width <= PRECISE))


def _if_most(found: pd.DataFrame, chosen: pd.Series) -> pd.DataFrame:
    """The chosen rows that hold; none if they are fewer than half of all rows."""
    kept = found[found["holds"] & chosen]
    return kept if 2 * len(kept) >= len(found) else kept.iloc[:0]


def speedup_cells(
    evidence: MachineEvidence, stem: str, series: Series, base: Series, brackets: bool = True
) -> pd.Series:
    """A cell for each row of the series with its speed-up over the base: ``1.42x (1.38-1.45)``.

    The verdict follows if it is ``same`` or ``unresolved``. A row without a speed-up gets the
    reason (``withheld``, ``another GPU``, ``another run``, ``not timed in turn``), or a dash if it
    has no base row or no time.

    brackets: whether the words include the interval.
    """
    of = ("speedup cells", stem, series, base, brackets)
    return evidence.once(of, lambda: _cells(evidence, stem, series, base, brackets))


def _cells(
    evidence: MachineEvidence, stem: str, series: Series, base: Series, brackets: bool
) -> pd.Series:
    frame = evidence.frame(stem)
    told = evidence.once(("told", stem), lambda: _told(evidence, stem))
    index = series.rows(frame).index
    cells = pd.Series([_NO_BASELINE] * len(index), index, dtype=object)
    base_rows = _paired(evidence, stem, frame, series, base)
    ours, bases = told.loc[base_rows.index], told.loc[base_rows]
    cells[ours.index] = _NO_TIME
    both = ours["ok"].to_numpy() & bases["ok"].to_numpy()
    cells[ours.index[both]] = _NOT_IN_TURN
    lasting = ours["lasting"].to_numpy() & bases["lasting"].to_numpy()
    apart = both & lasting & on_other_devices(ours, bases)
    known = [rows["device"].isin(sets_of_gpus(evidence)).to_numpy() for rows in (ours, bases)]
    cells[ours.index[apart]] = _OTHER_RUN
    cells[ours.index[apart & known[0] & known[1]]] = _OTHER_GPU
    cells[ours.index[_either(ours, bases, "red")]] = _WITHHELD
    found = speedups(evidence, stem, series, base)
    ours, bases = told.loc[found.index], told.loc[base_rows.loc[found.index]]
    parts = zip(
        *(found.itertuples(index=False), ours["key"], bases["key"], ours["marks"], bases["marks"]),
        strict=True,
    )
    made = [
        speedup_cell(row, brackets, marks.both(a, b), key, base) for row, key, base, a, b in parts
    ]
    cells[found.index] = made
    return cells


def _told(evidence: MachineEvidence, stem: str) -> pd.DataFrame:
    """What cells tell of each row: whether it is ``ok`` and ``red``, its ``key`` and ``marks``.

    Further columns say why a pair is not compared: ``lasting`` (whether the row has a sustained
    time), ``together`` and ``device``.
    """
    frame = evidence.frame(stem)
    known = {"ok": frame["status"] == "ok", "red": gates.red(frame)}
    known |= {"lasting": sustains(frame), "device": devices(evidence, stem)}
    known["together"] = frame.get("together", pd.Series(None, frame.index, object))
    known["key"] = frame.get("key", pd.Series(None, frame.index, object))
    known["marks"] = pd.Series(marks.names_of(frame), frame.index, object)
    return pd.DataFrame(known)


_NO_BASELINE = Cell(EMPTY, state=NO_BASELINE)
_NO_TIME = Cell(EMPTY, state=NO_TIME)
_NOT_IN_TURN = Cell("not timed in turn", state=NOT_IN_TURN)
_OTHER_GPU = Cell("another GPU", state=OTHER_GPU)
_OTHER_RUN = Cell("another run", state=OTHER_RUN)
_WITHHELD = Cell("withheld", state=WITHHELD)


def geometric_mean(ratios: pd.Series) -> float:
    """The geometric mean of ratios; swapping the two sides of every ratio inverts it."""
    return float(np.exp(np.log(ratios).mean()))


def verdict_of_mean(rows: pd.DataFrame) -> str:
    """The verdict of the geometric mean of speed-ups: theirs, or whether it exceeds their floor.

    rows: at least one line of ``speedups``. Without a common verdict the mean is compared with the
    mean of the noise floors: if each ratio is off by its floor, the mean is off by theirs. Short
    calls have a large floor, which says nothing about the long ones.
    """
    said = set(rows["verdict"])
    if len(said) == 1:
        return said.pop()
    mean = geometric_mean(rows["ratio"])
    floor = geometric_mean(1 + rows["floor"].clip(lower=LEAST_FLOOR)) - 1
    return verdict(Ratio(mean, mean, mean, np.nan, len(rows)), floor)


def speedup_cell(
    row,
    brackets: bool = True,
    marked: tuple[str, ...] = (),
    key: str | None = None,
    base: str | None = None,
) -> Cell:
    """A cell ``1.42x (1.38-1.45)``, followed by ``same`` or ``unresolved`` if that is its verdict.

    Args:
        row: a line of ``speedups`` as a named tuple.
        brackets: whether the words include the interval.
        marked: names of the marks of both rows.
        key: key of the row of evidence.
        base: key of the row that the speed-up is over.
    """
    text = interval(row.ratio, row.low, row.high) if brackets else ratio(row.ratio)
    words = f"{text} {row.verdict}" if row.verdict in (SAME, UNRESOLVED) else text
    return Cell(
        words,
        *(finite(row.ratio), finite(row.low), finite(row.high), whole(row.rounds)),
        verdict=row.verdict,
        marks=marked,
        row=key,
        base=base,
    )


def _timed(evidence: MachineEvidence, stem: str) -> pd.DataFrame:
    """What comparisons need of each row that has a time, as few columns to select rows of.

    Columns besides those of the rows: whether a row is ``disturbed``, ``doubtful`` and
    ``host_bound``, its noise ``floor``, ``count``: its number of rounds, and ``device``, which
    identifies the GPU.
    """
    frame = evidence.frame(stem)
    columns = ("sustained_rounds_ms", "sustained_ms", "environment", "host_ms")
    frame = frame.assign(**{name: None for name in columns if name not in frame})
    floors = noise_floors(frame)["floor"]
    timed = frame[gates.shown(frame) & frame["rounds_ms"].notna() & frame["together"].notna()]
    needed = (*axes(frame), "implementation", "phase", "rounds_ms", "median_ms", "together")
    return timed[list(dict.fromkeys([*needed, *columns[:-1]]))].assign(
        disturbed=marks.disturbed(timed),
        doubtful=marks.doubtful(timed, stem),
        host_bound=host_bound(timed) | host_bound_back_to_back(timed),
        floor=floors_of(timed, floors),
        count=round_counts(timed),
        device=devices(evidence, stem),
    )


def _speedups(timed: pd.DataFrame, base_rows: pd.Series) -> pd.DataFrame:
    """The speed-ups of pairs of timed rows: see ``speedups``, which has these columns.

    base_rows: label of a row -> label of its base row.
    """
    ours, theirs = timed.loc[base_rows.index], timed.loc[base_rows]
    lasting, in_turn = both_lasting(ours, theirs), both_in_turn(ours, theirs)
    parts = [
        _ratios(ours[chosen], theirs[chosen], *columns, how)
        for chosen, columns, how in (
            (lasting, ("sustained_rounds_ms", "sustained_ms"), unpaired),
            (in_turn & ~lasting, ("rounds_ms", "median_ms"), paired),
        )
        if chosen.any()
    ]
    if not parts:
        return pd.DataFrame(columns=COLUMNS, dtype=float).astype({"holds": bool})
    found = pd.concat(parts)
    ours, theirs = timed.loc[found.index], timed.loc[base_rows.loc[found.index]]
    disturbed = _either(ours, theirs, "disturbed") | both_host_bound_apart(ours, theirs)
    p = adjusted(np.where(disturbed, np.nan, found["p"]))
    floor = np.fmax(ours["floor"].to_numpy(), theirs["floor"].to_numpy())
    floor = np.fmax(floor, found["resolution"].to_numpy())
    holds = ~_either(ours, theirs, "doubtful")
    estimates = Ratio(*(found[name].to_numpy() for name in ("ratio", "low", "high", "p", "rounds")))
    said = verdict(estimates, floor, p <= FALSE_DISCOVERY, disturbed)
    return found.assign(p=p, floor=floor, verdict=said, holds=holds)[COLUMNS]


def _either(ours: pd.DataFrame, theirs: pd.DataFrame, name: str) -> np.ndarray:
    return ours[name].to_numpy() | theirs[name].to_numpy()


def _ratios(
    ours: pd.DataFrame,
    theirs: pd.DataFrame,
    rounds: str,
    time: str,
    how: Callable[[np.ndarray, np.ndarray], Ratio],
) -> pd.DataFrame:
    """The ratios of pairs of rows, from the columns of their rounds and of their time."""
    sides = same_width(parse_rounds(theirs[rounds]), parse_rounds(ours[rounds]))
    found = how(*sides)
    return pd.DataFrame(
        {
            **{"ratio": found.ratio, "low": found.low, "high": found.high, "rounds": found.rounds},
            **{"p": found.p, "resolution": resolution(*sides)},
            "base_ms": theirs[time].to_numpy(),
        },
        index=ours.index,
    )


def _paired(
    evidence: MachineEvidence, stem: str, rows: pd.DataFrame, series: Series, base: Series
) -> pd.Series:
    """Label of a row of the series -> label of its base row, for the rows that have one."""
    of = ("matching", stem, *(column for column, _ in series.where))
    matching = evidence.once(of, lambda: _matching(evidence.frame(stem), series))
    bases = matching.loc[base.rows(rows).index]
    bases = pd.Series(bases.index, bases).groupby(level=0).last()
    found = matching.loc[series.rows(rows).index].map(bases)
    return found.dropna().astype(rows.index.dtype)


def _matching(frame: pd.DataFrame, series: Series) -> pd.Series:
    """A number for each row, which is the same for rows that agree in all that a series leaves."""
    differing = [column for column, _ in series.where]
    keys = [n for n in (*axes(frame), "implementation", "phase") if n not in differing]
    return frame.groupby(keys, dropna=False, sort=False).ngroup()
