"""Are rows of a machine's evidence reproduced by rows that were measured now?

A time is reproduced if it differs by no more than the larger of two values: the noise floor of the
row, and the interval of the ratio of the two times. Observed values have neither: bytes, errors and
sums may differ by `LEAST_FLOOR`, times by `UNKNOWN_FLOOR`, texts not at all. A value that differs
is listed with what else differs: code, software, clock.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from lmperf.benchmark import Benchmark, Timed
from lmperf.errors import UserError
from lmperf.names import STATUSES
from lmperf.reporting.comparing import SIDES, cause, joined, judged
from lmperf.reporting.evidence import Evidence
from lmperf.reporting.foreign import plain
from lmperf.reporting.results import Cell, Column, Table
from lmperf.reporting.tables import cells
from lmperf.reporting.words import absent, listed, percent, sig
from lmperf.statistics import LEAST_FLOOR, SLOWER, UNKNOWN_FLOOR

REPRODUCED, DIFFERS, NOT_JUDGED = "reproduced", "differs", "cannot be judged"
# A difference within an interval that reaches further than this says nothing.
WIDEST = 0.10
# A difference below this is shown as this.
LEAST_SHOWN = 0.001
# Benchmark without a clock -> the columns that are its result; absent: all that it declares.
RESULTS = {
    "attention_limit": ("seq_len", "requested_mib"),
    "ladder_loss": ("loss",),
    "memory": ("peak_mib",),
    "memory_timeline": ("size_mib", "recorded_mib"),
    "mixed_precision": ("value", "observed_dtype"),
    "profiles": ("total_ms",),
    "warmup": ("step_ms",),
}


@dataclass(frozen=True)
class Judgement:
    """One result of a row, on the other machine and here.

    Attributes:
        row: name of the row.
        verdict: REPRODUCED, DIFFERS or NOT_JUDGED.
        words: the verdict with the difference or the reason.
        compared: the column that is compared; empty for a status.
        there, here: the two values; None if one is not compared.
        limit: the largest difference that counts as reproduced, as a fraction.
    """

    row: str
    verdict: str
    words: str
    compared: str = ""
    there: float | None = None
    here: float | None = None
    limit: float | None = None


def require_comparable(then: Evidence, stem: str, kind: str) -> None:
    """Check that a machine's evidence can be compared with rows of this machine.

    kind: the kind of this machine's device: cuda, mps or cpu.

    Raises:
        UserError: the evidence has no rows of the benchmark, or is of another kind of device.
    """
    name = plain(then.machine)
    if not then.raw.get(stem):
        intact = "intact " if stem in then.damaged else ""
        raise UserError(f"--against: {name} has no {intact}rows of {stem}")
    known = [then.environments.get(row["environment"], {}) for row in then.raw[stem]]
    kinds = {str(of["kind"]): str(of.get("device")) for of in known if of.get("kind")}
    if kinds and kind not in kinds:
        there = plain(listed(f"{device} ({one})" for one, device in kinds.items()))
        raise UserError(
            f"--against: {name} was measured on another kind of device: {there}; this machine"
            f" measures on {kind}"
        )


def judgements(then: Evidence, now: Evidence, benchmark: Benchmark) -> list[Judgement]:
    """Compare every row that was measured now with the row of the same cell in the evidence."""
    rows = joined(then, now, benchmark.stem)
    rows = rows[rows["side"] != "left_only"]
    # Keys differ between environments; whether the code has changed is known: the row is stale.
    stale = rows["signs_old"].map(lambda of: isinstance(of, tuple) and "stale" in of)
    rows["key_old"] = rows["key_old"].where(stale.astype(bool), rows["key_new"])
    if isinstance(benchmark, Timed):
        timed = rows[rows["ms_old"].notna() & rows["ms_new"].notna()]
        ratios = judged(timed, LEAST_FLOOR, in_turn=False, in_cycles=False)
        rows = rows.join(ratios[["ratio", "low", "high", "rounds", "floor"]])
    pairs = (_Pair(then, now, benchmark, row) for row in rows.to_dict("records"))
    return [one for pair in pairs for one in pair.judgements()]


@dataclass(frozen=True)
class _Pair:
    """One case and phase on both machines.

    Attributes:
        row: a row of `joined`, with `ratio` if it is timed; there is "old", here is "new".
    """

    then: Evidence
    now: Evidence
    benchmark: Benchmark
    row: Mapping

    def judgements(self) -> Iterator[Judgement]:
        row, state = self.row, self.row["state_new"]
        if why := self._why_not():
            yield self._judgement(NOT_JUDGED, f": {why}", "time", row["ms_old"], row["ms_new"])
        elif state:
            again = bool(row["state_old"])
            said = f": {STATUSES.get(state, state)} {'again' if again else 'here'}"
            yield self._judgement(REPRODUCED if again else DIFFERS, said)
        elif isinstance(self.benchmark, Timed):
            yield self._of_time()
        elif self.benchmark.is_check:
            yield self._judgement(REPRODUCED, ": passes again", "check")
        else:
            yield from self._of_observations()

    def _judgement(self, verdict: str, words: str, *values) -> Judgement:
        values = (None if absent(value) else value for value in values)
        return Judgement(self.row["name"], verdict, f"{verdict}{words}", *values)

    def _why_not(self) -> str:
        """Why the two rows cannot be judged; empty if they can."""
        row = self.row
        if row["side"] == "right_only":
            return f"{self.then.machine} has no such row"
        there, here = (of.get("device") for of in self._environments())
        if there != here:
            return f"other device ({there}, here {here})"
        if row["state_old"] and {row["state_old"], row["state_new"]} != {"oom"}:
            return f"no result there ({STATUSES.get(row['state_old'], row['words_old'])})"
        sides = (("there", row["signs_old"]), ("here", row["signs_new"]))
        loaded = [where for where, signs in sides if "loaded" in signs]
        return f"measured beside other load {listed(loaded)}" if loaded else ""

    def _of_time(self) -> Judgement:
        row, (ratio, low, high) = self.row, (self.row[name] for name in ("ratio", "low", "high"))
        values = "time", row["ms_old"], row["ms_new"]
        if row["rounds"] < 2:
            return self._judgement(NOT_JUDGED, ": timed in a single round", *values)
        reach, apart = max(high / ratio, ratio / low) - 1, abs(1 / ratio - 1)
        if apart <= reach and reach > max(row["floor"], WIDEST):
            why = f": unresolved, the interval reaches {percent(reach, 0)} to either side"
            return self._judgement(NOT_JUDGED, why, *values)
        return self._by_distance(*values, apart, max(row["floor"], reach))

    def _of_observations(self) -> Iterator[Judgement]:
        """Yield the judgement of each result: texts are compared one by one, numbers by sums."""
        declared = [column.name for column in self.benchmark.columns]
        for column in RESULTS.get(self.benchmark.stem, declared):
            sides = zip((self.then, self.now), SIDES, strict=True)
            there, here = (self._values(of, self.row[f"row_{side}"], column) for of, side in sides)
            if there.empty or here.empty:
                continue
            if self.benchmark.kinds[column] is str:
                there, here = there.align(here)
                changed = int((there != here).sum())
                said = f" in {changed} of {len(there)}: {self._cause()}"
                equal = f": all {len(there)} are equal"
                verdict, words = (DIFFERS, said) if changed else (REPRODUCED, equal)
                yield self._judgement(verdict, words, column)
            else:
                sums = float(there.sum()), float(here.sum())
                apart = 0.0 if sums[0] == sums[1] else abs(np.divide(*sums[::-1]) - 1)
                limit = UNKNOWN_FLOOR if column.endswith(("_ms", "_us")) else LEAST_FLOOR
                yield self._by_distance(column, *sums, apart, limit)

    def _values(self, of: Evidence, label: float, column: str) -> pd.Series:
        """The values of the rows of a case, by the columns that tell the rows apart."""
        rows = of.rows(self.benchmark.stem)
        rows = rows[rows["key"] == rows.at[int(label), "key"]].dropna(subset=column)
        return rows.set_index([*self.benchmark.index, "phase"])[column]

    def _by_distance(self, what: str, there, here, apart: float, limit: float) -> Judgement:
        if apart <= limit:
            words = f" within {percent(max(apart, LEAST_SHOWN))}"
            return self._judgement(REPRODUCED, words, what, there, here, limit)
        words = f" by {percent(apart)}: {self._cause()}"
        return self._judgement(DIFFERS, words, what, there, here, limit)

    def _cause(self) -> str:
        return cause({**self.row, "verdict": SLOWER}, self.then, self.now)

    def _environments(self) -> list[Mapping]:
        sides = zip((self.then, self.now), SIDES, strict=True)
        return [of.environments.get(self.row[f"environment_{side}"], {}) for of, side in sides]


def table(found: Sequence[Judgement], machine: str) -> Table:
    """A line for each judgement; the caption names the row if there is only one."""
    frame = pd.DataFrame([vars(one) for one in found]).rename(columns={"words": "said"})
    one_row = frame["row"].nunique() == 1
    columns = [
        Column("row", "row", tuple(map(Cell, frame["row"]))),
        Column("compared", "compared", tuple(map(Cell, frame["compared"]))),
        Column("there", machine, tuple(cells(frame, "there", sig))),
        Column("here", "here", tuple(cells(frame, "here", sig))),
        Column("limit", "limit", tuple(cells(frame, "limit", percent))),
        Column("verdict", "verdict", tuple(map(Cell, frame["said"]))),
    ]
    caption = f"Against {machine}" + (f": {frame['row'].iloc[0]}" if one_row else "")
    return Table(caption, tuple(columns[one_row:]))
