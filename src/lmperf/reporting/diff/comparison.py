"""Rows of two results side by side, each with a verdict.

The ratio is old / new: above one, the new is faster. Two runs of the same code differ by more than
two slices of one run do (another allocation, another temperature, another clock), and no interval
within a run knows of it: a difference counts from a least one on (``AT_LEAST``), or from the noise
floor of its benchmark, phase and numerics on where that is wider. False discovery is controlled
over all rows compared.

On a GPU a difference in time must be one in cycles (time x SM clock) too. Where the clock explains
it, so that no more than the least difference is left in cycles, the verdict is ``clock``: another
clock, not another kernel. Where more is left and its interval contains one, it is unresolved.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from lmperf.errors import UserError
from lmperf.reporting.diff.results import Result
from lmperf.reporting.evidence import axes
from lmperf.reporting.numbers import counted, listed, percent
from lmperf.reporting.speedup import noise_floors, parse_rounds
from lmperf.statistics import (
    FALSE_DISCOVERY,
    FASTER,
    SAME,
    SLOWER,
    UNRESOLVED,
    Ratio,
    adjusted,
    noise_floor,
    paired,
    unpaired,
    verdict,
)

AT_LEAST = 0.02
BROKEN, MENDED, CLOCK = "broken", "mended", "clock"
# Worst first.
VERDICTS = (BROKEN, SLOWER, CLOCK, UNRESOLVED, SAME, FASTER, MENDED)
REGRESSIONS = (BROKEN, SLOWER)
FACTS = ("device", "driver", "torch", "cuda", "triton", "python", "power_limit_w", "cores")
_NAMED = ("benchmark", "implementation", "phase")
_TAKEN = (
    *("state", "reason", "median_ms", "rounds_ms", "rounds_mhz", "clock_mhz", "marks", "key"),
    *("again_ms", "floor", "measured_at"),
)


@dataclass(frozen=True)
class Comparison:
    """Two results, and the rows that both have.

    Attributes:
        rows: worst first: benchmark, axes (a dict), implementation, phase, name, verdict; ratio,
            low, high, p (adjusted), floor and rounds; cycles, cycles_low, cycles_high; of each side
            state, reason, median_ms, marks and key, with ``_old`` and ``_new`` behind. NaN where
            there is none.
        only: how many rows the old result alone has, and the new alone.
        neither: how many rows are ok in neither.
        untimed: how many rows are ok in both and have no time.
        identical: how many rows are one and the same measurement in both.
        at_least: the least difference that counts, as a fraction.
        notes: what else differs between the two, in words.
    """

    old: Result
    new: Result
    rows: pd.DataFrame
    only: tuple[int, int]
    neither: int
    untimed: int
    identical: int
    at_least: float
    notes: list[str]

    @property
    def counts(self) -> dict[str, int]:
        """How many rows have each verdict, worst first."""
        return {name: int((self.rows["verdict"] == name).sum()) for name in VERDICTS}

    @property
    def same_code(self) -> tuple[int, float]:
        """How many timed rows have one key on both sides, and how far most of them are apart.

        Nothing but the run differs between them: a least difference below this is noise.
        """
        same = self.rows[_alike(self.rows, "key") & self.rows["ratio"].notna()]
        return len(same), noise_floor(same["ratio"].to_numpy(float))

    @property
    def regressions(self) -> int:
        return sum(self.counts[name] for name in REGRESSIONS)


def compare(
    old: Result,
    new: Result,
    at_least: float = AT_LEAST,
    only: Sequence[tuple[str, str]] = (),
    benchmarks: Sequence[str] = (),
    estimate: Callable[[np.ndarray, np.ndarray], Ratio] = unpaired,
) -> Comparison:
    """The rows of two results, each with its verdict.

    Args:
        only: (column, value): rows that have, in each column named, one of the values named.
        benchmarks: stems; all when empty.
        estimate: ``paired`` where the rounds of both were timed in turn, and those of the old one
            a second time (``again_ms``): what differs must differ from both.

    Raises:
        UserError: they have no row in common, or no such benchmark or column.
    """
    both = _joined(old, new, only, benchmarks)
    sides = both.pop("_merge")
    rows = both[sides == "both"].reset_index(drop=True)
    if rows.empty:
        raise UserError(f"{old.name} and {new.name} have no row in common of what was asked for")
    was, now = rows["state_old"] == "ok", rows["state_new"] == "ok"
    timed = was & now & rows["rounds_ms_old"].notna() & rows["rounds_ms_new"].notna()
    identical = timed & _alike(rows, "rounds_ms") & _alike(rows, "measured_at")
    changed = rows[was != now]
    changed = changed.assign(verdict=np.where(changed["state_new"] == "ok", MENDED, BROKEN))
    compared = rows[timed & ~identical]
    confirm = old.known("device") == new.known("device") and "cpu" not in new.known("kind")
    compared = compared.join(_judged(compared, at_least, estimate, confirm))
    shown = compared if changed.empty else pd.concat([compared, changed])
    return Comparison(
        old,
        new,
        _worst_first(shown),
        (int((sides == "left_only").sum()), int((sides == "right_only").sum())),
        neither=int((~was & ~now).sum()),
        untimed=int((was & now & ~timed).sum()),
        identical=int(identical.sum()),
        at_least=at_least,
        notes=_notes(old, new, shown),
    )


def _alike(rows: pd.DataFrame, name: str) -> pd.Series:
    return rows[f"{name}_old"] == rows[f"{name}_new"]


def _joined(old: Result, new: Result, only, benchmarks) -> pd.DataFrame:
    """Rows of both results by what names them, with ``_merge`` as pandas has it."""
    stems = sorted({*old.frames, *new.frames})
    unknown = [stem for stem in benchmarks if stem not in stems]
    if unknown:
        raise UserError(f"no benchmark {listed(unknown)} in either; there are: {', '.join(stems)}")
    stems = [stem for stem in stems if not benchmarks or stem in benchmarks]
    sides = [_side(result, stems) for result in (old, new)]
    keys = list(dict.fromkeys(name for side in sides for name in side if name not in _TAKEN))
    _known_columns([name for name, _ in only], keys)
    for position, side in enumerate(sides):
        side = side.reindex(columns=[*keys, *_TAKEN])
        side[keys] = side[keys].astype(object).fillna("")
        sides[position] = _selected(side, only)
    both = sides[0].merge(sides[1], "outer", keys, suffixes=("_old", "_new"), indicator=True)
    named = [name for name in keys if name not in _NAMED]
    both["axes"] = [{k: v for k, v in row.items() if v} for row in both[named].to_dict("records")]
    both["name"] = [
        ", ".join([*(f"{axis}={value}" for axis, value in axes.items()), implementation, phase])
        for axes, implementation, phase in both[["axes", "implementation", "phase"]].to_numpy()
    ]
    return both.drop(columns=named)


def _side(result: Result, stems: Sequence[str]) -> pd.DataFrame:
    """All rows of a result: what names them, and what of them is compared."""
    frames = [_named(stem, result.frames[stem]) for stem in stems if stem in result.frames]
    empty = pd.DataFrame(columns=[*_NAMED, *_TAKEN])
    return pd.concat([frame for frame in frames if len(frame)] or [empty], ignore_index=True)


def _named(stem: str, frame: pd.DataFrame) -> pd.DataFrame:
    floors = noise_floors(frame)["apart"]  # two runs differ by more than an interval knows
    numerics = frame.get("dtype", pd.Series("", frame.index))
    places = pd.MultiIndex.from_arrays([frame["phase"], numerics])
    floor = floors.reindex(places).to_numpy() if len(floors) else np.nan
    keys = ["benchmark", *axes(frame), "implementation", "phase"]
    found = frame.assign(benchmark=stem, floor=floor)[[*keys, *_TAKEN]]
    return found.drop_duplicates(keys)  # an observation may have several rows


def _known_columns(names: Sequence[str], known: Sequence[str]) -> None:
    known = {*known} - {"benchmark"}
    unknown = [name for name in names if name not in known]
    if unknown:
        there = ", ".join(sorted(known))
        raise UserError(f"--only: no axis {listed(unknown)}; there are: {there}")


def _selected(side: pd.DataFrame, only: Sequence[tuple[str, str]]) -> pd.DataFrame:
    for name in dict.fromkeys(name for name, _ in only):
        side = side[side[name].isin([value for column, value in only if column == name])]
    return side


def _judged(timed: pd.DataFrame, at_least: float, estimate, confirm: bool) -> pd.DataFrame:
    """Ratio, interval, p and verdict of rows that are ok in both; in cycles where time differs."""
    old, new = (parse_rounds(timed[f"rounds_ms_{side}"]) for side in ("old", "new"))
    found = estimate(*_padded(old, new))
    p = adjusted(found.p)
    floor = np.fmax(np.fmax(timed["floor_old"], timed["floor_new"]), at_least).to_numpy(float)
    judged = pd.DataFrame(
        {"ratio": found.ratio, "low": found.low, "high": found.high, "p": p, "floor": floor},
        index=timed.index,
    )
    judged["rounds"] = found.rounds
    differs = p <= FALSE_DISCOVERY
    if estimate is paired:
        differs &= _differs_again(found, paired(*_padded(parse_rounds(timed["again_ms_old"]), new)))
    judged["verdict"] = verdict(found, floor, differs)
    judged[["cycles", "cycles_low", "cycles_high"]] = np.nan
    differs = judged["verdict"].isin((FASTER, SLOWER)).to_numpy()
    if confirm and differs.any():
        _confirm(judged, timed[differs], old[differs], new[differs], estimate)
    return judged


def _differs_again(found: Ratio, again: Ratio) -> np.ndarray:
    """Where the old version, timed once more, lies on the same side of the new; true if unknown.

    Two processes of one version differ by more than their rounds tell: one may be the odd one.
    """
    same_side = np.where(found.ratio > 1, np.greater(again.low, 1), np.less(again.high, 1))
    return same_side | np.isnan(again.ratio)


def _confirm(judged: pd.DataFrame, timed: pd.DataFrame, old, new, estimate) -> None:
    """Put ratios in cycles beside those in time, and name those that the clock explains."""
    cycles = estimate(*_padded(old * _clocks(timed, "old", old), new * _clocks(timed, "new", new)))
    here = timed.index
    judged.loc[here, "cycles"] = cycles.ratio
    judged.loc[here, "cycles_low"] = cycles.low
    judged.loc[here, "cycles_high"] = cycles.high
    said, floor = judged.loc[here, "verdict"].to_numpy(), judged.loc[here, "floor"].to_numpy()
    left = np.where(said == FASTER, 1, -1) * (cycles.ratio - 1)
    confirmed = verdict(cycles, floor, adjusted(cycles.p) <= FALSE_DISCOVERY) == said
    judged.loc[here, "verdict"] = np.where(
        left <= floor, CLOCK, np.where(confirmed, said, UNRESOLVED)
    )


def _clocks(timed: pd.DataFrame, side: str, rounds: np.ndarray) -> np.ndarray:
    """The SM clock of each round; that of the row where it was not sampled by round."""
    sampled, rounds = _padded(parse_rounds(timed[f"rounds_mhz_{side}"]), rounds)
    whole = (np.isnan(sampled) == np.isnan(rounds)).all(axis=1)
    row = timed[f"clock_mhz_{side}"].to_numpy(float)[:, None]
    return np.where(whole[:, None], sampled, row)[:, : rounds.shape[1]]


def _padded(one: np.ndarray, other: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Both with as many columns as the wider has, the further ones NaN."""
    width = max(one.shape[1], other.shape[1])

    def padded(matrix: np.ndarray) -> np.ndarray:
        return np.pad(matrix, ((0, 0), (0, width - matrix.shape[1])), constant_values=np.nan)

    return padded(one), padded(other)


def _worst_first(rows: pd.DataFrame) -> pd.DataFrame:
    rank = rows["verdict"].map(VERDICTS.index)
    return rows.assign(rank=rank).sort_values(["rank", "ratio"], kind="stable").drop(columns="rank")


def _notes(old: Result, new: Result, shown: pd.DataFrame) -> list[str]:
    """What else a reader must know of the two: machines, software, keys, marks."""
    notes = []
    if old.machine != new.machine:
        notes.append(f"two machines: {old.machine} and {new.machine}")
    for fact in FACTS:
        was, now = old.known(fact), new.known(fact)
        if was and now and was != now:
            notes.append(f"{fact.replace('_', ' ')}: {listed(was)}, now {listed(now)}")
    changed = int((~_alike(shown, "key")).sum())
    if changed:
        notes.append(
            f"{changed:,} of {counted(len(shown), 'row')} have another key: code, method or"
            " environment changed between the two"
        )
    marked = shown[["marks_old", "marks_new"]].notna().any(axis=1).sum()
    if marked:
        notes.append(f"{counted(int(marked), 'row')} marked as not clean in one of the two")
    wide = shown[shown["floor"] > AT_LEAST]
    if len(wide):
        widest = percent(wide["floor"].max())
        notes.append(f"{counted(len(wide), 'row')} held against a noise floor of up to {widest}")
    return notes
