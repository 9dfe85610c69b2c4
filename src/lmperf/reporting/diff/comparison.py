"""Compare two results row by row, with a verdict for each row.

The ratio is old / new: above 1, the new result is faster. Of results that were measured apart, it
is that of the two times beside it: medians over the rounds, of sustained steps if both have them.
Two runs of the same code differ by more than the rounds within a run (other memory allocation,
temperature, clock), and no interval within a run covers this. So a difference counts only if it
exceeds both ``AT_LEAST`` and the noise floor of its benchmark and kind of call: how far apart
two processes of the same code are in either result (`noise.noise_floors`). False discovery is
controlled over all rows. A row that is marked because of load, drift or the host in either result
is unresolved (`marks.disturbed`). Between two devices so is a row that was capped in single calls
or contradicts another cell (`marks.doubtful`): a device that is held back is no device compared.

On a GPU, a difference in time must also be a difference in cycles (time x SM clock). If the
difference in cycles is too small to count, the verdict is ``clock``: the clock changed, not the
kernel. If it is large enough, but not significant, the verdict is ``unresolved``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd

from lmperf.errors import UserError
from lmperf.reporting import marks
from lmperf.reporting.comparable import compared_apart
from lmperf.reporting.diff.results import Result
from lmperf.reporting.evidence import axes
from lmperf.reporting.noise import floor_words, noise_floors, varies
from lmperf.reporting.numbers import counted, listed
from lmperf.reporting.rounds import parse_rounds, resolution
from lmperf.statistics import (
    FALSE_DISCOVERY,
    FASTER,
    SAME,
    SLOWER,
    UNKNOWN_FLOOR,
    UNRESOLVED,
    Ratio,
    adjusted,
    medians,
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
    *("sustained_rounds_ms", "sustained_mhz"),
    *("again_ms", "disturbed", "varies", "measured_at", "environment", "commit"),
)


@dataclass(frozen=True)
class Comparison:
    """Two results and the comparison of the rows that both have.

    Attributes:
        rows: worst first, with columns benchmark, axes (a dict), implementation, phase, name,
            verdict; ratio, low, high, p (adjusted), floor, rounds; cycles, cycles_low, cycles_high;
            and state, reason, median_ms (of the compared rounds), clock_mhz, marks, key,
            environment and commit of each side, with the suffix ``_old`` or ``_new``. Absent
            numbers are NaN.
        only: number of rows that only the old result has, and that only the new result has.
        neither: number of rows that are ok in neither result.
        untimed: number of rows that are ok in both results but lack a time in at least one.
        identical: number of rows whose two results are one and the same measurement.
        at_least: the least difference that counts, as a fraction.
        in_turn: whether both results were timed in turn, so that the ratio is the median of the
            ratios of the rounds.
        notes: other differences between the two results, in words.
    """

    old: Result
    new: Result
    rows: pd.DataFrame
    only: tuple[int, int]
    neither: int
    untimed: int
    identical: int
    at_least: float
    in_turn: bool
    notes: list[str]

    @property
    def counts(self) -> dict[str, int]:
        """Verdict -> number of rows, worst first."""
        return {name: int((self.rows["verdict"] == name).sum()) for name in VERDICTS}

    @property
    def same_code(self) -> tuple[int, float]:
        """Number of clean rows with the same key in both results, and how far they are apart.

        The distance is the FLOOR_QUANTILE quantile of how far their ratios are from 1. Such
        rows differ only by the run, so an ``at_least`` below this distance would report noise.
        """
        clean = ~self.rows[["disturbed_old", "disturbed_new"]].any(axis=1)
        same = self.rows[_alike(self.rows, "key") & self.rows["ratio"].notna() & clean]
        return len(same), noise_floor(same["ratio"].to_numpy(float))

    @property
    def of_two_devices(self) -> bool:
        """Whether the results come from different devices: no change of the code is compared."""
        return _are_two_devices(self.old, self.new)

    @property
    def regressions(self) -> int:
        """Number of rows that became slower or no longer work; none between two devices."""
        return 0 if self.of_two_devices else sum(self.counts[name] for name in REGRESSIONS)

    @property
    def by_benchmark(self) -> pd.DataFrame:
        """For each benchmark with ratios: its rows by verdict, and its median and outer ratios.

        Columns: benchmark, rows, slower, faster, same, unresolved, ratio, low, high. Smallest ratio
        first.
        """
        rows = self.rows[self.rows["ratio"].notna()]
        of_benchmark = rows.groupby("benchmark", sort=False)
        ratios = of_benchmark["ratio"].agg(["size", "median", "min", "max"])
        ratios.columns = ["rows", "ratio", "low", "high"]
        verdicts = (SLOWER, FASTER, SAME, UNRESOLVED)
        for name in verdicts:
            ratios[name] = of_benchmark["verdict"].agg(
                lambda of, name=name: int((of == name).sum())
            )
        names = ["rows", *verdicts, "ratio", "low", "high"]
        return ratios[names].sort_values("ratio", kind="stable").reset_index()


def compare(
    old: Result,
    new: Result,
    at_least: float = AT_LEAST,
    only: Sequence[tuple[str, str]] = (),
    benchmarks: Sequence[str] = (),
    estimate: Callable[[np.ndarray, np.ndarray], Ratio] = unpaired,
    floors: pd.DataFrame | None = None,
) -> Comparison:
    """The comparison of two results.

    Args:
        only: pairs (column, value); a row must have one of the values given for each column.
        benchmarks: stems; empty means all.
        estimate: ``paired`` if both results were timed in turn and the old one a second time
            (``again_ms``); a difference must then hold against both timings of the old result.
        floors: the noise floors; None: those of the two results together (``floors_of``).

    Raises:
        UserError: the results share no requested row, or a benchmark or column is unknown.
    """
    both = _joined(old, new, only, benchmarks)
    sides = both.pop("_merge")
    rows = both[sides == "both"].reset_index(drop=True)
    if rows.empty:
        raise UserError(f"{old.name} and {new.name} share none of the requested rows")
    was, now = rows["state_old"] == "ok", rows["state_new"] == "ok"
    timed = was & now & rows["rounds_ms_old"].notna() & rows["rounds_ms_new"].notna()
    identical = timed & _alike(rows, "rounds_ms") & _alike(rows, "measured_at")
    changed = rows[was != now]
    changed = changed.assign(verdict=np.where(changed["state_new"] == "ok", MENDED, BROKEN))
    compared = rows[timed & ~identical]
    compared = _with_times(compared, in_turn=estimate is paired)
    confirm = old.known("device") == new.known("device") and "cpu" not in new.known("kind")
    floors = floors_of(old, new) if floors is None else floors
    compared = compared.join(_judged(compared, at_least, estimate, confirm, floors))
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
        in_turn=estimate is paired,
        notes=_notes(old, new, shown, floors),
    )


def floors_of(old: Result, new: Result, unknown: float = UNKNOWN_FLOOR) -> pd.DataFrame:
    """The noise floors of two results, by benchmark and kind of call (see ``noise_floors``).

    Of one device: of the pairs of both together. Of two devices: the larger one of the two, since
    one device can be noisier than the other.

    unknown: the least floor of a benchmark with too few pairs: see ``noise_floors``.
    """
    if _are_two_devices(old, new):
        sides = [
            _floors({stem: [frame] for stem, frame in of.frames.items()}, unknown)
            for of in (old, new)
        ]
        return pd.concat(sides).groupby(level=[0, 1, 2, 3]).max()
    frames = {
        stem: [result.frames[stem] for result in (old, new) if stem in result.frames]
        for stem in sorted({*old.frames, *new.frames})
    }
    return _floors(frames, unknown)


def _floors(frames: Mapping[str, Sequence[pd.DataFrame]], unknown: float) -> pd.DataFrame:
    together = {stem: pd.concat(of, ignore_index=True) for stem, of in frames.items()}
    found = {stem: noise_floors(frame, unknown) for stem, frame in together.items()}
    return pd.concat(found, names=["benchmark"])


def without(comparison: Comparison, again: Comparison | None) -> Comparison:
    """The comparison without the differences that a second measurement does not show.

    again: the comparison of the second measurement, which has the rows that were faster or slower;
    None if it has none of them. A difference that it does not call by the same word is unresolved.
    """
    rows, keys = comparison.rows, ["benchmark", "name"]
    said = rows["verdict"].isin((FASTER, SLOWER))
    seen = {} if again is None else again.rows.set_index(keys)["verdict"].to_dict()
    second = [seen.get(key) for key in rows[keys].itertuples(index=False, name=None)]
    verdicts = rows["verdict"].where(~said | (rows["verdict"] == second), UNRESOLVED)
    return replace(comparison, rows=_worst_first(rows.assign(verdict=verdicts)))


def _alike(rows: pd.DataFrame, name: str) -> pd.Series:
    return rows[f"{name}_old"] == rows[f"{name}_new"]


def _joined(old: Result, new: Result, only, benchmarks) -> pd.DataFrame:
    """An outer join of the rows of both results by benchmark, axes, implementation and phase."""
    stems = sorted({*old.frames, *new.frames})
    unknown = [stem for stem in benchmarks if stem not in stems]
    if unknown:
        raise UserError(f"no benchmark {listed(unknown)} in either; there are: {', '.join(stems)}")
    stems = [stem for stem in stems if not benchmarks or stem in benchmarks]
    judge = marks.doubtful if _are_two_devices(old, new) else _disturbed
    sides = [_side(result, stems, judge) for result in (old, new)]
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


def _are_two_devices(old: Result, new: Result) -> bool:
    was, now = old.known("device"), new.known("device")
    return bool(was and now) and was != now


def _disturbed(frame: pd.DataFrame, stem: str) -> pd.Series:
    return marks.disturbed(frame)


def _side(result: Result, stems: Sequence[str], judge: Callable) -> pd.DataFrame:
    """All rows of a result, with the columns that identify a row and the columns to compare.

    judge: frame, stem -> whether each row's comparisons are unresolved.
    """
    frames = [_named(stem, result.frames[stem], judge) for stem in stems if stem in result.frames]
    empty = pd.DataFrame(columns=[*_NAMED, *_TAKEN])
    return pd.concat([frame for frame in frames if len(frame)] or [empty], ignore_index=True)


def _named(stem: str, frame: pd.DataFrame, judge: Callable) -> pd.DataFrame:
    keys = ["benchmark", *axes(frame), "implementation", "phase"]
    told = {"disturbed": judge(frame, stem), "varies": varies(frame)}
    found = frame.assign(benchmark=stem, **told)[[*keys, *_TAKEN]]
    return found.drop_duplicates(keys)  # observations such as kernels have several rows a case


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


def _with_times(rows: pd.DataFrame, in_turn: bool) -> pd.DataFrame:
    """The rows with the rounds to compare and their medians: see `speedup.compared_apart`."""
    names = ("rounds_ms", "rounds_mhz", "clock_mhz", "median_ms")
    sides = [_of_side(rows, side) for side in ("old", "new")]
    if in_turn:
        sides = [of.assign(median_ms=medians(parse_rounds(of["rounds_ms"]))) for of in sides]
    else:
        sides = compared_apart(*sides)
    sides = zip(("old", "new"), sides, strict=True)
    return rows.assign(**{f"{name}_{side}": of[name] for side, of in sides for name in names})


def _of_side(rows: pd.DataFrame, side: str) -> pd.DataFrame:
    return rows.rename(columns={f"{name}_{side}": name for name in _TAKEN})


def _judged(
    timed: pd.DataFrame, at_least: float, estimate, confirm: bool, floors: pd.DataFrame
) -> pd.DataFrame:
    """Ratio, interval, p and verdict of timed rows; in cycles too for rows that differ in time."""
    old, new = (parse_rounds(timed[f"rounds_ms_{side}"]) for side in ("old", "new"))
    found = estimate(*_padded(old, new))
    disturbed = timed[["disturbed_old", "disturbed_new"]].any(axis=1).to_numpy(bool)
    p = adjusted(np.where(disturbed, np.nan, found.p))
    dtypes = [axes.get("dtype", "") for axes in timed["axes"]]
    floor = np.fmax(at_least, resolution(old, new))
    for side in ("old", "new"):
        varying = timed[f"varies_{side}"].astype(bool)
        kinds = pd.MultiIndex.from_arrays([timed["benchmark"], timed["phase"], dtypes, varying])
        floor = np.fmax(floor, floors["floor"].reindex(kinds).to_numpy(float))
    judged = pd.DataFrame(
        {"ratio": found.ratio, "low": found.low, "high": found.high, "p": p, "floor": floor},
        index=timed.index,
    )
    judged["rounds"] = found.rounds
    differs = p <= FALSE_DISCOVERY
    if estimate is paired:
        differs &= _differs_again(found, paired(*_padded(parse_rounds(timed["again_ms_old"]), new)))
    judged["verdict"] = verdict(found, floor, differs, disturbed)
    judged[["cycles", "cycles_low", "cycles_high"]] = np.nan
    differs = judged["verdict"].isin((FASTER, SLOWER)).to_numpy()
    if confirm and differs.any():
        _confirm(judged, timed[differs], old[differs], new[differs], estimate)
    return judged


def _differs_again(found: Ratio, again: Ratio) -> np.ndarray:
    """Whether the second timing of the old version differs from the new in the same direction.

    True if there is no second timing.

    Two processes of one version can differ by more than their intervals: one may be an outlier.
    """
    same_side = np.where(found.ratio > 1, np.greater(again.low, 1), np.less(again.high, 1))
    return same_side | np.isnan(again.ratio)


def _confirm(judged: pd.DataFrame, timed: pd.DataFrame, old, new, estimate) -> None:
    """Add ratios in cycles; set the verdict of differences that the cycles do not confirm."""
    cycles = estimate(*_padded(old * _clocks(timed, "old", old), new * _clocks(timed, "new", new)))
    here = timed.index
    judged.loc[here, "cycles"] = cycles.ratio
    judged.loc[here, "cycles_low"] = cycles.low
    judged.loc[here, "cycles_high"] = cycles.high
    said, floor = judged.loc[here, "verdict"].to_numpy(), judged.loc[here, "floor"].to_numpy()
    left = np.where(said == FASTER, cycles.ratio, 1 / cycles.ratio) - 1
    confirmed = verdict(cycles, floor, adjusted(cycles.p) <= FALSE_DISCOVERY) == said
    judged.loc[here, "verdict"] = np.where(
        left <= floor, CLOCK, np.where(confirmed, said, UNRESOLVED)
    )


def _clocks(timed: pd.DataFrame, side: str, rounds: np.ndarray) -> np.ndarray:
    """The SM clock of each round; the clock of the whole row if not every round was sampled."""
    sampled, rounds = _padded(parse_rounds(timed[f"rounds_mhz_{side}"]), rounds)
    whole = (np.isnan(sampled) == np.isnan(rounds)).all(axis=1)
    row = timed[f"clock_mhz_{side}"].to_numpy(float)[:, None]
    return np.where(whole[:, None], sampled, row)[:, : rounds.shape[1]]


def _padded(one: np.ndarray, other: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Both arrays padded with NaN columns to the same width."""
    width = max(one.shape[1], other.shape[1])

    def padded(matrix: np.ndarray) -> np.ndarray:
        return np.pad(matrix, ((0, 0), (0, width - matrix.shape[1])), constant_values=np.nan)

    return padded(one), padded(other)


def _worst_first(rows: pd.DataFrame) -> pd.DataFrame:
    rank = rows["verdict"].map(VERDICTS.index)
    return rows.assign(rank=rank).sort_values(["rank", "ratio"], kind="stable").drop(columns="rank")


def _notes(old: Result, new: Result, shown: pd.DataFrame, floors: pd.DataFrame) -> list[str]:
    """Other differences between two results and their noise, one line each."""
    notes, two = [], _are_two_devices(old, new)
    if old.machine != new.machine:
        notes.append(f"two machines: {old.machine} and {new.machine}")
    for fact in FACTS:
        was, now = old.known(fact), new.known(fact)
        if was and now and was != now:
            apart = f" and {listed(now)}" if two else f", now {listed(now)}"
            notes.append(f"{fact.replace('_', ' ')}: {listed(was)}{apart}")
    changed = int((~_alike(shown, "key")).sum())
    if changed and not two:
        notes.append(
            f"{changed:,} of {counted(len(shown), 'row')} have another key: code, method or"
            " environment changed in between"
        )
    sides = shown[["disturbed_old", "disturbed_new"]].astype(bool)
    disturbed = int(sides.any(axis=1).sum())
    if disturbed:
        why = "load, drift or a slow host"
        if two:
            why = "load, drift, a slow host, capped single calls, or contradicting another cell"
        notes.append(
            f"{counted(disturbed, 'row')} marked in at least one of the two ({why}): unresolved"
        )
    return [*notes, *filter(None, [floor_words(floors)])]
