"""Compare rows that were measured now with the rows of a machine's evidence: are they reproduced?

A time is reproduced if it differs by no more than the larger of two values: the noise floor of the
benchmark in the evidence (how far two processes of the same code are apart), and the interval of
the ratio of the two times. A time that differs is listed with what else differs: code, software,
clock. Observed values have neither a noise floor nor an interval: bytes, errors and sums may differ
by `LEAST_FLOOR`, times by `UNKNOWN_FLOOR`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from lmperf.benchmark import Benchmark, Timed
from lmperf.errors import UserError
from lmperf.evidence.keys import row_key
from lmperf.evidence.machine import topology_of
from lmperf.names import UNSETTLED, mark_words
from lmperf.reporting import marks
from lmperf.reporting.evidence import MachineEvidence, row_names
from lmperf.reporting.foreign import plain
from lmperf.reporting.machine import FACTS, LEAST_SHOWN
from lmperf.reporting.noise import floors_of, noise_floors
from lmperf.reporting.numbers import absent, finite, listed, percent
from lmperf.reporting.reproduce import cell_of
from lmperf.reporting.rounds import parse_rounds, resolution
from lmperf.reporting.tables import as_cell, from_frame, number_cell, states, status_words
from lmperf.results import Table
from lmperf.statistics import LEAST_FLOOR, UNKNOWN_FLOOR, unpaired

REPRODUCED, DIFFERS, NOT_JUDGED = "reproduced", "differs", "cannot be judged"
# A difference within an interval that reaches further than this says nothing.
WIDEST = 0.10
# Column of a time -> the column of its rounds, and the words for it.
_TIMES = {"median_ms": ("rounds_ms", "time"), "sustained_ms": ("sustained_rounds_ms", "sustained")}
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
# The value there and the value here; None for a value that is not compared.
Values = Sequence[float | None]
NEITHER = (None, None)
# Facts of an environment that may change a time.
_CAUSES = (
    *("driver", "torch", "cuda", "triton", "python", "power_limit_w", "cores", "threads"),
    "settings",
)


@dataclass(frozen=True)
class Judgement:
    """One result of a row, on the other machine and here.

    Attributes:
        row: name of the row.
        what: the time or the column that is compared.
        there, here: the two values; None if one is not compared.
        limit: the largest difference that counts as reproduced, as a fraction; None if not judged.
        verdict: REPRODUCED, DIFFERS or NOT_JUDGED.
        words: the verdict in words, with the difference or the reason.
    """

    row: str
    what: str
    there: float | None
    here: float | None
    limit: float | None
    verdict: str
    words: str


def require_comparable(then: MachineEvidence, stem: str, kind: str) -> None:
    """Check that a machine's evidence can be compared with rows of this machine.

    kind: the kind of this machine's device: cuda, mps or cpu.

    Raises:
        UserError: the evidence has no rows of the benchmark, or is of another kind of device.
    """
    frame = then.frame(stem)
    if frame is None:
        why = then.damaged.get(stem)
        raise UserError(f"--against: {then.name} has no {'intact ' if why else ''}rows of {stem}")
    known = then.facts["environments"]
    facts = [known.get(name, {}) for name in frame["environment"].unique()]
    kinds = {str(of["kind"]): str(of.get("device")) for of in facts if of.get("kind")}
    if kinds and kind not in kinds:
        there = plain(listed([f"{device} ({name})" for name, device in kinds.items()]))
        raise UserError(
            f"--against: {then.name} was measured on another kind of device: {there}; this machine"
            f" measures on {kind}"
        )


def judgements(
    then: MachineEvidence, now: MachineEvidence, benchmark: Benchmark
) -> list[Judgement]:
    """Compare every row that was measured now with the row of the same cell in the evidence."""
    here, there = now.frame(benchmark.stem), then.frame(benchmark.stem)
    floors = noise_floors(there)["floor"] if isinstance(benchmark, Timed) else None
    before, found = _by_name(there), []
    for name, rows in _by_name(here).items():
        if name in before:
            pair = _Pair(name, benchmark, _Side(then, before[name]), _Side(now, rows))
            found += pair.judgements(floors)
        else:
            found.append(_unjudged(name, f"{then.name} has no such row"))
    return found


def table(found: Sequence[Judgement], machine: str) -> Table:
    """A table with a line for each judgement; the caption names the row if there is only one."""
    rows = {one.row for one in found}
    lines = [
        {
            **({"row": one.row} if len(rows) > 1 else {}),
            "compared": one.what,
            "there": number_cell(one.there),
            "here": number_cell(one.here),
            "limit": number_cell(one.limit, percent),
            "verdict": as_cell(one.words),
        }
        for one in found
    ]
    caption = f"Against {machine}" + (f": {rows.pop()}" if len(rows) == 1 else "")
    return from_frame(caption, pd.DataFrame(lines), headers={"there": machine})


def _by_name(frame: pd.DataFrame) -> dict[str, pd.DataFrame]:
    """Name of a case and phase -> its rows."""
    return dict(tuple(frame.groupby(pd.Series(row_names(frame), frame.index), sort=False)))


@dataclass(frozen=True)
class _Side:
    """The rows of one case and phase on one machine; several if nothing is timed."""

    evidence: MachineEvidence
    rows: pd.DataFrame

    @property
    def row(self) -> pd.Series:
        return self.rows.iloc[0]

    @property
    def environment(self) -> Mapping:
        """The facts of the environment that measured the rows; empty if they are not recorded."""
        return self.evidence.facts["environments"].get(self.row["environment"], {})

    @property
    def state(self) -> str | None:
        """Why there is no valid result; None if there is one."""
        return states(self.rows).iloc[0]

    @property
    def status(self) -> str:
        return status_words(self.rows).iloc[0]

    def value(self, column: str) -> float | None:
        return finite(self.row[column])

    def rounds(self, column: str) -> np.ndarray:
        rounds = parse_rounds(self.rows[column])[0]
        return rounds[~np.isnan(rounds)]

    def by_index(self, benchmark: Benchmark, column: str) -> dict[tuple, object]:
        """The values of a column that are not empty, by the columns that tell the rows apart."""
        names = [name for name in benchmark.index if name in self.rows]
        rows = self.rows[self.rows[column].notna()]
        keys = rows[names].astype(str).itertuples(index=False, name=None)
        return dict(zip(keys, rows[column], strict=True))


@dataclass(frozen=True)
class _Pair:
    """One case and phase on both machines."""

    name: str
    benchmark: Benchmark
    there: _Side
    here: _Side

    def judgements(self, floors: pd.Series | None) -> list[Judgement]:
        """The judgement of each result.

        floors: the noise floors of the benchmark (see `noise.floors_of`); None without a clock.
        """
        if why := self._why_not():
            return [_unjudged(self.name, why, *self._values("median_ms"))]
        if self.here.state is not None:
            if self.there.state is not None:
                return [self._agrees("", f"{REPRODUCED}: {self.here.status} again")]
            return [self._differs("", f"{DIFFERS}: {self.here.status} here")]
        if floors is not None:
            return [*self._times(floors)]
        if self.benchmark.is_check:
            return [self._agrees("check", f"{REPRODUCED}: passes again")]
        return [*self._observations()]

    def _why_not(self) -> str:
        """Why the two rows cannot be judged; empty if they can."""
        devices = [side.environment.get("device") for side in (self.there, self.here)]
        if devices[0] != devices[1]:
            return f"other device ({devices[0]}, here {devices[1]})"
        if self.there.state is not None and {self.there.state, self.here.state} != {"oom"}:
            return f"no result there ({self.there.status})"
        steps = getattr(self.benchmark, "clock", None) == "step"
        unsafe = UNSETTLED | {"contradicts"} | (set() if steps else {"host_bound", "capped"})
        noted = [
            f"{mark_words(mark)} {where}"
            for where, side in (("there", self.there), ("here", self.here))
            for mark in marks.marks_of(side.rows).iloc[0]
            if mark in unsafe
        ]
        return f"marked: {listed(noted)}" if noted else ""

    def _times(self, floors: pd.Series) -> Iterator[Judgement]:
        """Yield the judgement of each time that both rows have."""
        (floor,) = floors_of(self.there.rows, floors)
        for column, (rounds, words) in _TIMES.items():
            sides = [side.rounds(rounds) for side in (self.there, self.here)]
            if all(map(len, sides)):
                yield self._time(column, words, sides, floor)

    def _time(self, column: str, what: str, sides: list[np.ndarray], floor: float) -> Judgement:
        values, ratio = self._values(column), unpaired(*sides)
        if ratio.rounds < 2:
            return _unjudged(self.name, "timed in a single round", *values, what)
        step = resolution(*(side[None] for side in sides))[0]
        floor = float(np.nanmax([floor, LEAST_FLOOR, step]))
        reach = max(ratio.high / ratio.ratio, ratio.ratio / ratio.low) - 1
        apart = abs(1 / ratio.ratio - 1)
        if apart <= reach and reach > max(floor, WIDEST):
            why = f"unresolved, the interval reaches {percent(reach, 0)} to either side"
            return _unjudged(self.name, why, *values, what)
        return self._by_distance(what, values, apart, max(floor, reach))

    def _observations(self) -> Iterator[Judgement]:
        """Yield the judgement of each result of a benchmark without a clock.

        Texts are compared one by one, numbers by their sum.
        """
        declared = [column.name for column in self.benchmark.columns]
        for column in RESULTS.get(self.benchmark.stem, declared):
            found = [side.by_index(self.benchmark, column) for side in (self.there, self.here)]
            if not all(found):
                continue
            if self.benchmark.kinds[column] is str:
                yield self._texts(column, *found)
                continue
            one, other = (float(sum(of.values())) for of in found)
            apart = 0.0 if one == other else abs(other / one - 1) if one else float("inf")
            is_time = column.endswith(("_ms", "_us"))
            limit = UNKNOWN_FLOOR if is_time else LEAST_FLOOR
            yield self._by_distance(column, [one, other], apart, limit)

    def _texts(self, column: str, one: Mapping, other: Mapping) -> Judgement:
        names = {**one, **other}
        changed = [name for name in names if one.get(name) != other.get(name)]
        if not changed:
            return self._agrees(column, f"{REPRODUCED}: all {len(names)} are equal")
        words = f"{DIFFERS} in {len(changed)} of {len(names)}: {self._causes()}"
        return self._differs(column, words)

    def _by_distance(self, what: str, values: Values, apart: float, limit: float) -> Judgement:
        if apart <= limit:
            words = f"{REPRODUCED} within {percent(max(apart, LEAST_SHOWN))}"
            return self._agrees(what, words, values, limit)
        words = f"{DIFFERS} by {percent(apart)}: {self._causes()}"
        return self._differs(what, words, values, limit)

    def _agrees(self, what: str, words: str, values: Values = NEITHER, limit=None) -> Judgement:
        return Judgement(self.name, what, *values, limit, REPRODUCED, words)

    def _differs(self, what: str, words: str, values: Values = NEITHER, limit=None) -> Judgement:
        return Judgement(self.name, what, *values, limit, DIFFERS, words)

    def _values(self, column: str) -> Values:
        return self.there.value(column), self.here.value(column)

    def _causes(self) -> str:
        """What else differs between the two measurements, in words."""
        one, other = self.there.environment, self.here.environment
        found = [] if self._is_same_code() else ["other code"]
        found += [
            f"other {FACTS.get(name, name)} ({_fact(one, name)}, here {_fact(other, name)})"
            for name in _CAUSES
            if one.get(name) != other.get(name)
        ]
        clocks = self._values("clock_mhz")
        if None not in clocks and abs(clocks[1] / clocks[0] - 1) > LEAST_FLOOR:
            found.append(f"other clock ({clocks[0]:,.0f} MHz, here {clocks[1]:,.0f})")
        return ", ".join(found) or "with the same code, software and clock"

    def _is_same_code(self) -> bool:
        """Whether today's code gives the key of the row there, in the environment of that row."""
        row = self.there.row
        columns = {name: plain(row[name]) for name in ("implementation", "phase")}
        columns |= cell_of(self.benchmark, row)
        topology = topology_of(self.there.environment)
        return row["key"] == row_key(self.benchmark, columns, row["environment"], topology)


def _unjudged(
    name: str,
    why: str,
    there: float | None = None,
    here: float | None = None,
    what: str = "time",
) -> Judgement:
    return Judgement(name, what, there, here, None, NOT_JUDGED, f"{NOT_JUDGED}: {why}")


def _fact(facts: Mapping, name: str) -> str:
    value = facts.get(name)
    if absent(value):
        return "unknown"
    return f"{value:g}" if isinstance(value, float) else str(value)
