"""Compare two results row by row: a ratio with its interval, a verdict and a cause, worst first.

The ratio is old / new: above 1, the new result is faster. Results that were measured apart are
compared by the medians of their rounds, train steps by those of their stretches. Two versions that
were timed in turn are compared by the ratios of each round.

A difference counts if it exceeds the noise floor (how far two processes of the same code are apart:
the larger one that the pairs of either result tell, else the assumed one) and the least difference
that was asked for. False discovery is controlled over all rows. A row that was measured beside
other load, or waited for the CPU, is compared but unresolved.

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
from lmperf.evidence.rows import row_name
from lmperf.names import size_words
from lmperf.reporting.evidence import Evidence
from lmperf.reporting.pairs import APART, IN_TURN, decided, have_times, is_sound, pairs
from lmperf.reporting.words import absent, count, listed
from lmperf.statistics import FASTER, LEAST_FLOOR, SAME, SLOWER, UNRESOLVED

AT_LEAST = 0.02
BROKEN, MENDED, CLOCK = "broken", "mended", "clock"
# Worst first.
VERDICTS = (BROKEN, SLOWER, CLOCK, UNRESOLVED, SAME, FASTER, MENDED)
REGRESSIONS = (BROKEN, SLOWER)
CHANGED = (BROKEN, SLOWER, CLOCK, FASTER, MENDED)
ONLY_IN_OLD, ONLY_IN_NEW = "only in the old", "only in the new"
CYCLES = ["cycles", "cycles_low", "cycles_high"]
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
# What is compared of a row, or shown of it.
COLUMNS = [
    *("implementation", "phase", "key", "state", "words", "reason", "marks", "signs", "waits"),
    *("holds", "floor", "is_assumed", "environment", "commit", "gpus", "measured_at", "rounds_ms"),
    *("ms", "clock_mhz"),
]
ANOTHER_RUN = "another run, of the same code and software"
COMMIT_LENGTH = 7


@dataclass(frozen=True)
class Comparison:
    """The comparison of the rows that two results have.

    Attributes:
        old, new: the results; `machine` is the name that the user gave.
        rows: pairs of the new rows with the old ones (`_base`), worst first: see `pairs.decided`.
            With benchmark, axes (a dict of texts), name, cause, and the ratio in CYCLES.
        not_compared: why rows are not compared -> how many.
        at_least: the least difference that counts, as a fraction.
        in_turn: whether both results were timed in turn.
    """

    old: Evidence
    new: Evidence
    rows: pd.DataFrame
    not_compared: Mapping[str, int]
    at_least: float
    in_turn: bool

    @property
    def counts(self) -> dict[str, int]:
        """Verdict -> number of rows, worst first."""
        return {name: int((self.rows["verdict"] == name).sum()) for name in VERDICTS}

    @property
    def has_two_devices(self) -> bool:
        """Whether the results come from different devices: no change of the code is compared."""
        return _are_two_devices(self.old, self.new)

    @property
    def shares_rows(self) -> bool:
        """Whether some row is in both results, compared or not."""
        return bool(len(self.rows) or {*self.not_compared} - {ONLY_IN_OLD, ONLY_IN_NEW})

    @property
    def regressions(self) -> int:
        """Number of rows that became slower or no longer work; none between two devices."""
        return 0 if self.has_two_devices else sum(self.counts[name] for name in REGRESSIONS)

    @property
    def notes(self) -> list[str]:
        """Other differences between the two results, one line each."""
        notes, two = [], self.has_two_devices
        machines = [result.facts["machine"] for result in (self.old, self.new)]
        if machines[0] != machines[1]:
            notes.append(f"two machines: {listed(machines)}")
        for fact, words in FACTS.items():
            was, now = recorded(self.old, fact), recorded(self.new, fact)
            if was and now and was != now:
                notes.append(f"{words}: {listed(was)}{' and' if two else ', now'} {listed(now)}")
        changed = int((self.rows["key"] != self.rows["key_base"]).sum())
        if changed and not two:
            what = "code, method or environment changed in between"
            notes.append(f"{changed:,} of {count(len(self.rows), 'row')} have another key: {what}")
        if unsound := int((~is_sound(self.rows) & self.rows["ratio"].notna()).sum()):
            why = "measured beside other load, or waiting for the CPU"
            notes.append(f"{count(unsound, 'row')} unresolved: {why}")
        return notes

    def confirmed_by(self, again: Comparison | None) -> Comparison:
        """The comparison without the differences that a second measurement does not show.

        again: the comparison of the second measurement; None if it has none of the rows.
        """
        keys = ["benchmark", "name"]
        seen = {} if again is None else again.rows.set_index(keys)["verdict"].to_dict()
        second = [seen.get(key) for key in self.rows[keys].itertuples(index=False, name=None)]
        first = self.rows["verdict"]
        kept = ~first.isin((FASTER, SLOWER)) | (first == second)
        verdicts = first.where(kept, UNRESOLVED)
        return replace(self, rows=_worst_first(self.rows.assign(verdict=verdicts)))


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
    _require_axes(only, chosen)
    after, before = (_having(_every_row(side, chosen), only) for side in (new, old))
    both = pairs(after, before, ["benchmark", "name"])
    fails, failed, timed = both["state"].notna(), both["state_base"].notna(), have_times(both)
    identical = timed & (both["rounds_ms"] == both["rounds_ms_base"])
    identical &= both["measured_at"] == both["measured_at_base"]
    not_compared = {
        ONLY_IN_OLD: len(before) - len(both),
        ONLY_IN_NEW: len(after) - len(both),
        "ok in neither": int((fails & failed).sum()),
        "without a time": int((~fails & ~failed & ~timed).sum()),
        "the same measurement in both": int(identical.sum()),
    }
    two = _are_two_devices(old, new)
    has_clock = not two and "cuda" in recorded(new, "kind")
    compared = _with_cycles(
        both[timed & ~identical], IN_TURN if in_turn else APART, at_least, has_clock
    )
    changed = both[fails != failed].drop(columns="floor")
    changed = changed.assign(verdict=np.where(changed["state"].isna(), MENDED, BROKEN))
    rows = _worst_first(pd.concat([compared, changed], ignore_index=True))
    explained = not in_turn and not two
    causes = [cause(row, old, new) if explained else "" for row in rows.to_dict("records")]
    not_compared = {why: number for why, number in not_compared.items() if number}
    return Comparison(old, new, rows.assign(cause=causes), not_compared, at_least, in_turn)


def recorded(evidence: Evidence, fact: str) -> list[str]:
    """The distinct values of a fact, as text, over the environments of the rows."""
    used = {row["environment"] for rows in evidence.raw.values() for row in rows}
    environments = [facts for name, facts in evidence.environments.items() if name in used]
    return sorted({str(facts[fact]) for facts in environments if facts.get(fact)})


def _are_two_devices(old: Evidence, new: Evidence) -> bool:
    was, now = (recorded(side, "device") or recorded(side, "cpu_model") for side in (old, new))
    return bool(was and now) and was != now


def first_rows(evidence: Evidence, stem: str) -> pd.DataFrame:
    """COLUMNS of the first row of each case and phase, as `Evidence.comparable` has it.

    Observations, such as kernels, have several rows for a case. Adds benchmark, axes (a dict of the
    texts that are not empty) and name, which is the same in all results.
    """
    benchmark, rows = load(stem), evidence.comparable(stem)
    axes = [axis.name for axis in benchmark.axes]
    rows = rows.drop_duplicates([*axes, "implementation", "phase"])
    texts = rows[axes].apply(_texts).assign(**rows[["implementation", "phase"]])
    lines = texts.to_dict("records")
    axis_texts = [{name: line[name] for name in axes if line[name]} for line in lines]
    # Without rows they would be columns of numbers, which cannot be joined with names.
    names = pd.Series([row_name(benchmark, line) for line in lines], rows.index, dtype=object)
    return rows[COLUMNS].assign(benchmark=stem, axes=axis_texts, name=names)


def _every_row(evidence: Evidence, chosen: Sequence[str]) -> pd.DataFrame:
    """`first_rows` of the chosen benchmarks."""
    frames = [first_rows(evidence, stem) for stem in chosen]
    return pd.concat(frames or [first_rows(evidence, stems()[0])[:0]], ignore_index=True)


def _texts(values: pd.Series) -> pd.Series:
    if pd.api.types.is_float_dtype(values):
        values = values.map("{:.12g}".format, na_action="ignore")
    return values.astype(object).where(values.notna(), "").map(str)


def _require_axes(only: Sequence[tuple[str, str]], chosen: Sequence[str]) -> None:
    axes = {axis.name for stem in chosen for axis in load(stem).axes}
    there = sorted({*axes, "implementation", "phase"})
    for name in (name for name, _ in only if name not in there):
        raise UserError(f"--only: no axis {name}; there are: {', '.join(there)}")


def _having(rows: pd.DataFrame, only: Sequence[tuple[str, str]]) -> pd.DataFrame:
    """The rows with one of the values given for each column, in upper or lower case."""
    texts = pd.DataFrame(rows["axes"].tolist(), rows.index)
    texts = texts.assign(**rows[["implementation", "phase"]])
    for name in dict.fromkeys(name for name, _ in only):
        wanted = {size_words(value).lower() for column, value in only if column == name}
        values = texts[name] if name in texts else pd.Series("", rows.index)
        rows = rows[values[rows.index].fillna("").str.lower().isin(wanted)]
    return rows


def _with_cycles(rows: pd.DataFrame, how: str, at_least: float, has_clock: bool) -> pd.DataFrame:
    """The pairs with their verdicts, and their ratios in CYCLES.

    has_clock: whether a change must also be one in cycles; otherwise its verdict is `clock`.
    """
    compared = decided(rows, how, at_least)
    first = compared.loc[compared["verdict"].isin((FASTER, SLOWER)) & has_clock, "verdict"]
    cycles = decided(rows.loc[first.index], how, at_least, "clock_mhz")
    ratio = cycles["ratio"].where(first == FASTER, 1 / cycles["ratio"])
    # Where the clock was not recorded, there is no ratio, and the first verdict stays.
    kept = (cycles["verdict"] == first) | ratio.isna()
    verdicts = first.where(kept, UNRESOLVED).mask(ratio - 1 <= cycles["floor"], CLOCK)
    cycles = cycles[["ratio", "low", "high"]].set_axis(CYCLES, axis=1)
    return compared.join(cycles).assign(verdict=verdicts.combine_first(compared["verdict"]))


def _worst_first(rows: pd.DataFrame) -> pd.DataFrame:
    rank = rows["verdict"].map(VERDICTS.index).astype(int)
    ordered = rows.assign(rank=rank).sort_values(["rank", "ratio"], kind="stable")
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
    was, now = row["environment_base"], row["environment"]
    causes = []
    if was != now:
        facts = old.environments.get(was, {}), new.environments.get(now, {})
        causes += differing_facts(*facts) or ["environment"]
    commits = [_short(row["commit_base"]), _short(row["commit"])]
    if row["key"] != row["key_base"] and (was == now or commits[0] != commits[1]):
        causes.append(f"{'' if was == now else 'perhaps '}code ({' to '.join(commits)})")
    gpus = [gpu for gpu in (row["gpus"], row["gpus_base"]) if not absent(gpu)]
    if len({*gpus}) == 2:
        causes.append("another GPU")
    return ", ".join([*causes, *filter(None, [clock])]) or ANOTHER_RUN


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
    was, now = row["clock_mhz_base"], row["clock_mhz"]
    if absent(was) or absent(now) or abs(now / was - 1) <= LEAST_FLOOR:
        return ""
    return f"clock {was:,.0f} to {now:,.0f} MHz"
