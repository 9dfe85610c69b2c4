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
from lmperf.reporting.cells import Cell, Table, TableColumn
from lmperf.reporting.columns import cells
from lmperf.reporting.comparison import cause, first_rows
from lmperf.reporting.evidence import Evidence
from lmperf.reporting.frames import having
from lmperf.reporting.pairs import APART, decided, pairs
from lmperf.reporting.untrusted import plain
from lmperf.reporting.words import listed, percent, sig
from lmperf.statistics import LEAST_FLOOR, SLOWER, UNKNOWN_FLOOR

REPRODUCED, DIFFERS, NOT_JUDGED = "reproduced", "differs", "cannot be judged"
# A difference within an interval that reaches further than this says nothing.
WIDEST = 0.10
# A difference below this is shown as this.
LEAST_SHOWN = 0.001


@dataclass(frozen=True)
class Judgement:
    """One result of a row, on the other machine and here.

    Attributes:
        row: name of the row.
        verdict: REPRODUCED, DIFFERS or NOT_JUDGED.
        reason: the words behind the verdict.
        column: the column that is compared; empty for a status.
        there, here: the two values; None or NaN if one is not compared.
        limit: the largest difference that counts as reproduced, as a fraction.
    """

    row: str
    verdict: str
    reason: str
    column: str = ""
    there: float | None = None
    here: float | None = None
    limit: float | None = None

    @property
    def words(self) -> str:
        """The verdict with the difference or the reason."""
        return f"{self.verdict}{self.reason}"


def require_comparable(then: Evidence, stem: str, kind: str) -> None:
    """Check that a machine's evidence can be compared with rows of this machine.

    kind: the kind of this machine's device: cuda, mps or cpu.

    Raises:
        UserError: the evidence has no rows of the benchmark, or is of another kind of device.
    """
    name = then.folder
    if not then.raw.get(stem):
        intact = "intact " if stem in then.damaged else ""
        raise UserError(f"--against: {name} has no {intact}rows of {stem}")
    environments = [then.environments.get(row["environment"], {}) for row in then.raw[stem]]
    devices = {str(e["kind"]): str(e.get("device")) for e in environments if e.get("kind")}
    if devices and kind not in devices:
        there = listed(f"{plain(device)} ({name})" for name, device in devices.items())
        raise UserError(
            f"--against: {name} was measured on another kind of device: {there}; this machine"
            f" measures on {kind}"
        )


def judgements(then: Evidence, now: Evidence, benchmark: Benchmark) -> list[Judgement]:
    """Compare every row that was measured now with the row of the same cell in the evidence."""
    rows = first_rows(now, benchmark.stem)
    both = pairs(rows, first_rows(then, benchmark.stem), ["name"])
    both = decided(both, APART, LEAST_FLOOR)
    pair_of = {row["name"]: row for row in both.to_dict("records")}
    lines = []
    for row in rows.to_dict("records"):
        if pair := pair_of.get(row["name"]):
            lines += _judgements(pair, then, now, benchmark)
        else:
            why = f"{then.machine} has no such row"
            lines.append(Judgement(row["name"], NOT_JUDGED, f": {why}", "time", None, row["ms"]))
    return lines


def _judgements(
    row: Mapping, then: Evidence, now: Evidence, benchmark: Benchmark
) -> Iterator[Judgement]:
    """Yield the judgements of a pair: there is `_base`, here the row itself."""
    again, state = row["state_base"], row["state"]
    if why := _why_not(row, then, now):
        yield Judgement(row["name"], NOT_JUDGED, f": {why}", "time", row["ms_base"], row["ms"])
    elif state:
        words = f": {STATUSES.get(state, state)} {'again' if again else 'here'}"
        yield Judgement(row["name"], REPRODUCED if again else DIFFERS, words)
    elif isinstance(benchmark, Timed):
        yield _of_time(row, _cause(row, then, now))
    elif benchmark.is_check:
        yield Judgement(row["name"], REPRODUCED, ": passes again", "check")
    else:
        yield from _of_observations(row, then, now, benchmark)


def _why_not(row: Mapping, then: Evidence, now: Evidence) -> str:
    """Why the two rows cannot be judged; empty if they can."""
    there = then.environments.get(row["environment_base"], {}).get("device")
    here = now.environments.get(row["environment"], {}).get("device")
    if there != here:
        return f"other device ({there}, here {here})"
    state = row["state_base"]
    if state and {state, row["state"]} != {"oom"}:
        return f"no result there ({STATUSES.get(state, row['words_base'])})"
    sides = {"there": row["signs_base"], "here": row["signs"]}
    loaded = [side for side, signs in sides.items() if "loaded" in signs]
    return f"measured beside other load {listed(loaded)}" if loaded else ""


def _cause(row: Mapping, then: Evidence, now: Evidence) -> str:
    """Why a row differs, in words.

    Keys differ between environments; whether the code has changed is known: the row is stale.
    """
    key = row["key_base"] if "stale" in row["signs_base"] else row["key"]
    return cause({**row, "key_base": key, "verdict": SLOWER}, then, now)


def _of_time(row: Mapping, why: str) -> Judgement:
    ratio, values = row["ratio"], ("time", row["ms_base"], row["ms"])
    if row["rounds"] < 2:
        return Judgement(row["name"], NOT_JUDGED, ": timed in a single round", *values)
    reach, apart = max(row["high"] / ratio, ratio / row["low"]) - 1, abs(1 / ratio - 1)
    if apart <= reach and reach > max(row["floor"], WIDEST):
        words = f": unresolved, the interval reaches {percent(reach, 0)} to either side"
        return Judgement(row["name"], NOT_JUDGED, words, *values)
    return _by_distance(row, *values, apart, max(row["floor"], reach), why)


def _of_observations(
    row: Mapping, then: Evidence, now: Evidence, benchmark: Benchmark
) -> Iterator[Judgement]:
    """Yield the judgement of each result: texts are compared one by one, numbers by sums."""
    why = _cause(row, then, now)
    for column in benchmark.result_columns:
        there = _observed(then, benchmark, row["key_base"], column)
        here = _observed(now, benchmark, row["key"], column)
        if there.empty or here.empty:
            continue
        if benchmark.kinds[column] is str:
            there, here = there.align(here)
            changed, equal = int((there != here).sum()), f": all {len(there)} are equal"
            words = f" in {changed} of {len(there)}: {why}" if changed else equal
            yield Judgement(row["name"], DIFFERS if changed else REPRODUCED, words, column)
        else:
            sums = float(there.sum()), float(here.sum())
            apart = 0.0 if sums[0] == sums[1] else abs(np.divide(*sums[::-1]) - 1)
            limit = UNKNOWN_FLOOR if column.endswith(("_ms", "_us")) else LEAST_FLOOR
            yield _by_distance(row, column, *sums, apart, limit, why)


def _observed(evidence: Evidence, benchmark: Benchmark, key: str, column: str) -> pd.Series:
    """The values of the rows of a case, by the columns that tell the rows apart."""
    rows = having(evidence.rows(benchmark.stem), key=key).dropna(subset=column)
    return rows.set_index([*benchmark.index, "phase"])[column]


def _by_distance(
    row: Mapping, column: str, there, here, apart: float, limit: float, why: str
) -> Judgement:
    if apart <= limit:
        verdict, words = REPRODUCED, f" within {percent(max(apart, LEAST_SHOWN))}"
    else:
        verdict, words = DIFFERS, f" by {percent(apart)}: {why}"
    return Judgement(row["name"], verdict, words, column, there, here, limit)


def table(judgements: Sequence[Judgement], machine: str) -> Table:
    """A line for each judgement; the caption names the row if there is only one."""
    frame = pd.DataFrame(map(vars, judgements))
    one_row = frame["row"].nunique() == 1
    columns = [
        TableColumn("row", "row", tuple(map(Cell, frame["row"]))),
        TableColumn("compared", "compared", tuple(map(Cell, frame["column"]))),
        TableColumn("there", machine, tuple(cells(frame, "there", sig))),
        TableColumn("here", "here", tuple(cells(frame, "here", sig))),
        TableColumn("limit", "limit", tuple(cells(frame, "limit", percent))),
        TableColumn("verdict", "verdict", tuple(Cell(judgement.words) for judgement in judgements)),
    ]
    caption = f"Against {machine}" + (f": {frame['row'].iloc[0]}" if one_row else "")
    return Table(caption, tuple(columns[one_row:]))
