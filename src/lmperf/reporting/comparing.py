"""Compare two results row by row: a ratio with its interval, a verdict and a cause, worst first.

The ratio is old / new: above 1, the new result is faster. Results that were measured apart are
compared by the medians of their rounds, train steps by those of their stretches. Two versions that
were timed in turn are compared by the ratios of each round.

A difference counts if it exceeds the noise floor (how far two processes of the same code are apart:
the larger one that the pairs of either result tell, else the assumed one) and the least difference
that was asked for. False discovery is controlled over all rows. A row that was measured beside
other load, or waited for the CPU, is compared but unresolved. So is a train step that one result
has back to back and the other, of an earlier method, in single calls.

On a GPU a difference in time must also be one in cycles (time x SM clock). If the cycles differ too
little, the verdict is `clock`: the clock changed, not the code.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd

from lmperf.benchmarks import load, stems
from lmperf.errors import UserError
from lmperf.evidence.plausible import EVENT_STEP_MS
from lmperf.evidence.rows import row_name
from lmperf.names import size_words
from lmperf.reporting.evidence import Evidence, rounds
from lmperf.reporting.words import absent, count, listed
from lmperf.statistics import (
    FALSE_DISCOVERY,
    FASTER,
    LEAST_FLOOR,
    SAME,
    SLOWER,
    UNRESOLVED,
    Ratio,
    adjusted,
    paired,
    unpaired,
    verdict,
)

AT_LEAST = 0.02
BROKEN, MENDED, CLOCK = "broken", "mended", "clock"
# Worst first.
VERDICTS = (BROKEN, SLOWER, CLOCK, UNRESOLVED, SAME, FASTER, MENDED)
REGRESSIONS = (BROKEN, SLOWER)
CHANGED = (BROKEN, SLOWER, CLOCK, FASTER, MENDED)
SIDES = ("old", "new")
ONLY_IN = ("only in the old", "only in the new")
_OF_SIDE = (
    *("row", "key", "ms", "state", "words", "reason", "marks", "signs", "waits", "floor"),
    *("environment", "commit", "gpus", "measured_at", "rounds_ms"),
    *("n", "clock_mhz", "assumed"),
)
# Facts of an environment that may change a time, and their words.
FACTS = {
    "device": "device",
    "torch": "torch",
    "triton": "Triton",
    "cuda": "CUDA",
    "driver": "driver",
    "python": "Python",
    "power_limit_w": "power limit",
    "cores": "cores",
    "threads": "threads",
    "settings": "settings",
}
ANOTHER_RUN = "another run, of the same code and software"
COMMIT_LENGTH = 7


@dataclass(frozen=True)
class Comparison:
    """The comparison of the rows that two results have.

    Attributes:
        old, new: the results; `machine` is the name that the user gave.
        rows: worst first, with columns benchmark, axes (a dict), implementation, phase, name,
            verdict, cause; ratio, low, high, p (adjusted), rounds, floor; the same in cycles; and,
            with suffix `_old` or `_new`, the columns of `_OF_SIDE`. `row_old` and `row_new` are
            labels of `Evidence.rows`. Absent numbers: NaN.
        left: why rows are not compared -> how many.
        at_least: the least difference that counts, as a fraction.
        in_turn: whether both results were timed in turn.
    """

    old: Evidence
    new: Evidence
    rows: pd.DataFrame
    left: Mapping[str, int]
    at_least: float
    in_turn: bool

    @property
    def counts(self) -> dict[str, int]:
        """Verdict -> number of rows, worst first."""
        return {name: int((self.rows["verdict"] == name).sum()) for name in VERDICTS}

    @property
    def of_two_devices(self) -> bool:
        """Whether the results come from different devices: no change of the code is compared."""
        return _are_two_devices(self.old, self.new)

    @property
    def shares_rows(self) -> bool:
        """Whether some row is in both results, compared or not."""
        return bool(len(self.rows) or {*self.left} - {*ONLY_IN})

    @property
    def regressions(self) -> int:
        """Number of rows that became slower or no longer work; none between two devices."""
        return 0 if self.of_two_devices else sum(self.counts[name] for name in REGRESSIONS)

    @property
    def notes(self) -> list[str]:
        """Other differences between the two results, one line each."""
        notes, two = [], self.of_two_devices
        machines = [of.facts["machine"] for of in (self.old, self.new)]
        if machines[0] != machines[1]:
            notes.append(f"two machines: {listed(machines)}")
        for fact, words in FACTS.items():
            was, now = known(self.old, fact), known(self.new, fact)
            if was and now and was != now:
                notes.append(f"{words}: {listed(was)}{' and' if two else ', now'} {listed(now)}")
        changed = int((~_alike(self.rows, "key")).sum())
        if changed and not two:
            what = "code, method or environment changed in between"
            notes.append(f"{changed:,} of {count(len(self.rows), 'row')} have another key: {what}")
        if unsound := int(_unsound(self.rows).sum()):
            why = "measured beside other load, by single steps, or waiting for the CPU"
            notes.append(f"{count(unsound, 'row')} unresolved: {why}")
        return notes

    def confirmed_by(self, again: Comparison | None) -> Comparison:
        """The comparison without the differences that a second measurement does not show.

        again: the comparison of the second measurement; None if it has none of the rows.
        """
        keys = ["benchmark", "name"]
        seen = {} if again is None else again.rows.set_index(keys)["verdict"].to_dict()
        second = [seen.get(key) for key in self.rows[keys].itertuples(index=False, name=None)]
        said = self.rows["verdict"]
        kept = ~said.isin((FASTER, SLOWER)) | (said == second)
        return replace(self, rows=_worst_first(self.rows, said.where(kept, UNRESOLVED)))


def compare(
    old: Evidence,
    new: Evidence,
    at_least: float = AT_LEAST,
    only: Sequence[tuple[str, str]] = (),
    benchmarks: Sequence[str] | None = None,
    in_turn: bool = False,
) -> Comparison:
    """Compare two results.

    Args:
        only: pairs (column, value); a row must have one of the values given for each column.
        benchmarks: stems; None means all.
        in_turn: whether both results were timed in turn.

    Raises:
        UserError: a benchmark or a column is unknown.
    """
    there = sorted({*old.raw, *new.raw})
    chosen = there if benchmarks is None else benchmarks
    if unknown := [stem for stem in chosen if stem not in there]:
        raise UserError(f"no benchmark {listed(unknown)} in either; there are: {', '.join(there)}")
    every = [joined(old, new, stem) for stem in chosen]
    none = joined(old, new, stems()[0]).iloc[:0]
    both = _selected(pd.concat(every, ignore_index=True) if every else none, chosen, only)
    was, now = both["state_old"].isna(), both["state_new"].isna()
    shared = both["side"] == "both"
    timed = shared & was & now & both["rounds_ms_old"].notna() & both["rounds_ms_new"].notna()
    identical = timed & _alike(both, "rounds_ms") & _alike(both, "measured_at")
    left = {
        ONLY_IN[0]: both["side"] == "left_only",
        ONLY_IN[1]: both["side"] == "right_only",
        "ok in neither": shared & ~was & ~now,
        "without a time": shared & was & now & ~timed,
        "the same measurement in both": identical,
    }
    two = _are_two_devices(old, new)
    same_gpu = not two and "cuda" in known(new, "kind")
    compared = judged(both[timed & ~identical], at_least, in_turn, same_gpu)
    changed = both[shared & (was != now)]
    changed = changed.assign(verdict=np.where(changed["state_new"].isna(), MENDED, BROKEN))
    rows = pd.concat([compared, changed.reindex(columns=compared.columns)], ignore_index=True)
    rows = _worst_first(rows, rows["verdict"])
    explained = not in_turn and not two
    causes = [cause(row, old, new) if explained else "" for row in rows.to_dict("records")]
    left = {why: int(of.sum()) for why, of in left.items() if of.any()}
    return Comparison(old, new, rows.assign(cause=causes), left, at_least, in_turn)


def known(evidence: Evidence, fact: str) -> list[str]:
    """The distinct values of a fact, as text, over the environments of the rows."""
    used = {row["environment"] for rows in evidence.raw.values() for row in rows}
    found = [facts for name, facts in evidence.environments.items() if name in used]
    return sorted({str(facts[fact]) for facts in found if facts.get(fact)})


def _are_two_devices(old: Evidence, new: Evidence) -> bool:
    was, now = (known(of, "device") or known(of, "cpu_model") for of in (old, new))
    return bool(was and now) and was != now


def joined(old: Evidence, new: Evidence, stem: str) -> pd.DataFrame:
    """The rows of both results by cell, implementation and phase; `side`: which of them have it."""
    benchmark = load(stem)
    cell = [axis.name for axis in benchmark.axes]
    keys = [*cell, "implementation", "phase"]
    sides = []
    for evidence in (old, new):
        rows = evidence.rows(stem)
        texts, kinds = {n: _texts(rows[n]) for n in keys}, rows["noise_kind"]
        floors = {"floor": evidence.floors_of(kinds), "assumed": kinds.isin(evidence.assumed)}
        rows = rows.assign(row=rows.index, **floors, **texts)
        # Observations, such as kernels, have several rows for a case.
        sides.append(rows[[*keys, *_OF_SIDE]].drop_duplicates(keys))
    both = sides[0].merge(sides[1], "outer", keys, suffixes=("_old", "_new"), indicator="side")
    rows = both[keys].to_dict("records")
    axes = [{name: row[name] for name in cell if row[name]} for row in rows]
    names = [row_name(benchmark, row) for row in rows]
    return both.drop(columns=cell).assign(benchmark=stem, axes=axes, name=names)


def _texts(values: pd.Series) -> pd.Series:
    if pd.api.types.is_float_dtype(values):
        values = values.map("{:.12g}".format, na_action="ignore")
    return values.astype(object).where(values.notna(), "").map(str)


def _selected(
    rows: pd.DataFrame, chosen: Sequence[str], only: Sequence[tuple[str, str]]
) -> pd.DataFrame:
    axes = {axis.name for stem in chosen for axis in load(stem).axes}
    known = sorted({*axes, "implementation", "phase"})
    for name in dict.fromkeys(name for name, _ in only):
        if name not in known:
            raise UserError(f"--only: no axis {name}; there are: {', '.join(known)}")
        wanted = {size_words(value).lower() for column, value in only if column == name}
        values = rows[name] if name in rows else rows["axes"].map(lambda of, n=name: of.get(n, ""))
        rows = rows[values.str.lower().isin(wanted)]
    return rows


def judged(rows: pd.DataFrame, at_least: float, in_turn: bool, in_cycles: bool) -> pd.DataFrame:
    """The rows with their ratios and verdicts.

    rows: valid on both sides (see `joined`).
    in_cycles: whether a difference must also be one in cycles.
    """
    times = [rounds(rows[f"rounds_ms_{side}"]) for side in SIDES]
    clocks = [rows[f"clock_mhz_{side}"].to_numpy()[:, None] for side in SIDES]
    found = _estimated(*times, in_turn)
    unsound = _unsound(rows).to_numpy()
    p = adjusted(np.where(unsound, np.nan, found.p))
    floor = np.fmax(_floor(rows, in_turn), at_least).to_numpy()
    said = verdict(found, floor, p <= FALSE_DISCOVERY, unsound)
    numbers = pd.DataFrame(vars(found) | {"p": p, "floor": floor}, rows.index)
    nothing = dict.fromkeys(("cycles", "cycles_low", "cycles_high"), np.nan)
    rows = rows.assign(**numbers, verdict=said, **nothing)
    changed = np.isin(said, (FASTER, SLOWER))
    if in_cycles and changed.any():
        cycles = [ms[changed] * mhz[changed] for ms, mhz in zip(times, clocks, strict=True)]
        return _confirmed(rows, changed, _estimated(*cycles, in_turn))
    return rows


def _floor(rows: pd.DataFrame, in_turn: bool) -> pd.Series:
    """The noise floor of each pair of rows, at least the step of the event timer.

    Differences of two versions that were timed in turn are confirmed, so these need no floor.
    """
    step = EVENT_STEP_MS / np.fmin(rows["ms_old"], rows["ms_new"])
    if in_turn:
        return step
    floors = rows[[f"floor_{side}" for side in SIDES]].astype(float)
    assumed = rows[[f"assumed_{side}" for side in SIDES]].eq(True).to_numpy()
    measured = floors.mask(assumed).max(axis=1)
    return np.fmax(measured.fillna(floors.max(axis=1)), step)


def _estimated(old: np.ndarray, new: np.ndarray, in_turn: bool) -> Ratio:
    if not in_turn:
        return unpaired(old, new)
    width = min(old.shape[1], new.shape[1])
    return paired(old[:, :width], new[:, :width])


def _confirmed(rows: pd.DataFrame, changed: np.ndarray, cycles: Ratio) -> pd.DataFrame:
    """The rows whose changes are also changes in cycles; others get the verdict `clock`."""
    said, floor = rows.loc[changed, "verdict"], rows.loc[changed, "floor"].to_numpy()
    ratios = np.stack([cycles.ratio, cycles.low, cycles.high], axis=1)
    rows.loc[changed, ["cycles", "cycles_low", "cycles_high"]] = ratios
    left = np.where(said == FASTER, cycles.ratio, 1 / cycles.ratio) - 1
    same = verdict(cycles, floor, adjusted(cycles.p) <= FALSE_DISCOVERY) == said
    same |= np.isnan(cycles.ratio)  # the clock was not recorded
    rows.loc[changed, "verdict"] = said.where(same, UNRESOLVED).mask(left <= floor, CLOCK)
    return rows


def _unsound(rows: pd.DataFrame) -> pd.Series:
    """Whether one of the two times may not hold."""
    # Method 7 timed single steps and recorded no number of calls.
    single = rows["n_old"].isna() != rows["n_new"].isna()
    found = single & (rows["phase"] == "train_step")
    for side in SIDES:
        found |= rows[f"signs_{side}"].map(lambda signs: "loaded" in signs).astype(bool)
        found |= rows[f"waits_{side}"].eq(True)
    return found


def _alike(rows: pd.DataFrame, name: str) -> pd.Series:
    return rows[f"{name}_old"] == rows[f"{name}_new"]


def _worst_first(rows: pd.DataFrame, verdicts: pd.Series) -> pd.DataFrame:
    rank = verdicts.map(VERDICTS.index).astype(int)
    ordered = rows.assign(verdict=verdicts, rank=rank).sort_values(["rank", "ratio"], kind="stable")
    return ordered.drop(columns="rank")


def cause(row: Mapping, old: Evidence, new: Evidence) -> str:
    """Why a compared row changed, in words: software, code, GPU or clock; "" if it did not change.

    A key covers the code and the environment of a row. With two environments the code counts as
    unchanged only if both rows were measured from the same commit.
    """
    if row["verdict"] not in CHANGED:
        return ""
    clock = _clock(row)
    if row["verdict"] == CLOCK:
        return clock or "clock"
    found = []
    same_environment = row["environment_old"] == row["environment_new"]
    if not same_environment:
        sides = zip((old, new), SIDES, strict=True)
        known = [of.environments.get(row[f"environment_{side}"], {}) for of, side in sides]
        found += differing_facts(*known) or ["environment"]
    commits = [_short(row[f"commit_{side}"]) for side in SIDES]
    if row["key_old"] != row["key_new"] and (same_environment or commits[0] != commits[1]):
        found.append(f"{'' if same_environment else 'perhaps '}code ({' to '.join(commits)})")
    gpus = {row[f"gpus_{side}"] for side in SIDES if not absent(row[f"gpus_{side}"])}
    if len(gpus) == len(SIDES):
        found.append("another GPU")
    return ", ".join([*found, *filter(None, [clock])]) or ANOTHER_RUN


def differing_facts(was: Mapping, now: Mapping) -> list[str]:
    """The facts of two environments that differ, as in `torch 2.11.0 to 2.13.0`."""
    return [
        f"{words} {_fact(was.get(name))} to {_fact(now.get(name))}"
        for name, words in FACTS.items()
        if was.get(name) != now.get(name)
    ]


def _fact(value) -> str:
    if absent(value):
        return "unknown"
    return f"{value:g}" if isinstance(value, float) else str(value)


def _short(commit) -> str:
    return "unknown" if absent(commit) else str(commit)[:COMMIT_LENGTH]


def _clock(row: Mapping) -> str:
    """The change of the processor clock, if it is one; empty if it is not or not recorded."""
    was, now = row["clock_mhz_old"], row["clock_mhz_new"]
    if absent(was) or absent(now) or abs(now / was - 1) <= LEAST_FLOOR:
        return ""
    return f"clock {was:,.0f} to {now:,.0f} MHz"
