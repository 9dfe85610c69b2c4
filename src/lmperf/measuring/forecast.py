"""Estimates how long a run still takes: recorded seconds, scaled to the machine at hand.

`seconds.csv` beside this module holds what each benchmark took on a machine of each kind;
`tools/record_seconds.py` writes it from evidence. The first groups of a run, and the machine's
earlier jobs, show how much faster or slower the machine at hand is.
"""

from __future__ import annotations

import csv
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import accumulate
from pathlib import Path

# Names in the column `group` for the start of a job, and for groups without a line of their own.
START, OTHERS = "start", "others"
# Seconds by which a scale is drawn towards 1, or that of a benchmark towards the machine's: so one
# odd group at the beginning does not decide.
_PRIOR_S = 10.0
# Expected seconds that must be measured before an estimate is given without "about".
_FIRM_S = 60.0

# For each group: the benchmark, the name of the group, and its number of cases.
Groups = Sequence[tuple[str, str, float]]


@cache
def recorded(device: str) -> Mapping[tuple[str, str], float]:
    """Return (stem, group) -> seconds per case, or per job for `START`, on a kind of device."""
    with Path(__file__).with_name("seconds.csv").open() as lines:
        rows = [row for row in csv.DictReader(lines) if row["device"] == device]
    return {(row["benchmark"], row["group"]): float(row["seconds"]) for row in rows}


def expected_s(device: str, groups: Groups) -> list[float] | None:
    """Return the recorded seconds of a job's start and of each of its groups.

    None if one of their benchmarks was never recorded on this kind of device.
    """
    known = recorded(device)
    if any((stem, OTHERS) not in known for stem, *_ in groups):
        return None
    start = known[groups[0][0], START] if groups else 0.0
    per_case = (known.get((stem, name), known[stem, OTHERS]) for stem, name, _ in groups)
    return [start, *(s * cases for s, (*_, cases) in zip(per_case, groups, strict=True))]


@dataclass(frozen=True)
class Left:
    """An estimate of the time left.

    Attributes:
        here_s: seconds until the job ends.
        all_s: seconds until the last job of the run ends.
        late: whether the current group takes longer than expected: the time may be longer.
        firm: whether enough was measured to know how fast this machine is.
    """

    here_s: float
    all_s: float
    late: bool
    firm: bool


class Forecast:
    """The time that a job, and the run that it belongs to, still take.

    Args:
        device: cuda, mps or cpu.
        groups: the groups that this job measures, in order.
        later: the groups of each job that the run starts after this one.
        earlier: actual and expected seconds of earlier jobs on this machine.
        age: seconds that the process ran before this object was made.
        clock: returns monotonic seconds.
    """

    def __init__(
        self,
        device: str,
        groups: Groups,
        later: Sequence[Groups] = (),
        earlier: tuple[float, float] = (0.0, 0.0),
        age: float = 0.0,
        clock: Callable[[], float] = time.monotonic,
    ):
        recorded_here = expected_s(device, groups)
        # Without a record every case counts as one second, and no time is given until one was
        # measured.
        self._is_recorded = recorded_here is not None
        expected = recorded_here or [0.0, *(cases for *_, cases in groups)]
        self._expected = [*accumulate(expected)]  # until 0, 1, 2 ... groups are done
        later_s = [expected_s(device, job) for job in later if job]
        self._later_s = sum(sum(one) for one in later_s if one)
        self._has_later, self._later_is_recorded = bool(later_s), None not in later_s
        self._earlier_s, self._earlier_expected_s = earlier
        self._clock, self._began = clock, clock() - age
        self._done, self._done_s = 0, 0.0

    def expected_until(self, done: int) -> float | None:
        """Return the recorded seconds of the start and of the first groups; None: no record."""
        return self._expected[done] if self._is_recorded else None

    def group_done(self) -> None:
        """Count one more group as measured."""
        self._done, self._done_s = self._done + 1, self._clock() - self._began

    def left(self) -> Left | None:
        """Return the time left; None if nothing is known about this benchmark."""
        now, last = self._clock() - self._began, len(self._expected) - 1
        known, actual = (self._expected[self._done] if self._done else 0.0), self._done_s
        if not (self._is_recorded or known):
            return None
        following = self._expected[min(self._done + 1, last)]
        late = now - actual > self._scales(known, actual)[1] * (following - known)
        if late and self._done < last:
            # Without this the estimate would stand still on a machine that is much slower.
            known, actual = following, now
        machine, here = self._scales(known, actual)
        here_s = max(0.0, here * (self._expected[-1] - known) - (now - actual))
        firm = self._is_recorded and self._earlier_expected_s + known >= _FIRM_S
        return Left(here_s, here_s + machine * self._later_s, late, firm)

    def words(self) -> str:
        """Return `3 min 20 s left here, 21 min in all`; empty if nothing is known."""
        found, is_last = self.left(), self._done == len(self._expected) - 1
        if found is None or (is_last and not self._has_later):
            return ""
        about = "at least " if found.late and not is_last else "" if found.firm else "about "
        in_all = f"{about if self._later_is_recorded else 'at least '}{duration(found.all_s)}"
        if is_last:
            return f"{in_all} left in all"
        here = f"{about}{duration(found.here_s)} left" if found.here_s else "longer than expected"
        return f"{here} here, {in_all} in all" if self._has_later else here

    def _scales(self, expected: float, actual: float) -> tuple[float, float]:
        """Return actual over expected seconds: of this machine, and of this benchmark on it.

        expected, actual: seconds of what this job has measured.
        """
        if not self._is_recorded:
            machine = _drawn(self._earlier_s, self._earlier_expected_s, 1.0)
            return machine, actual / expected
        machine = _drawn(self._earlier_s + actual, self._earlier_expected_s + expected, 1.0)
        return machine, _drawn(actual, expected, machine)


def _drawn(actual: float, expected: float, towards: float) -> float:
    return (actual + towards * _PRIOR_S) / (expected + _PRIOR_S)


def duration(seconds: float) -> str:
    """Return seconds as `40 s`, `3 min 20 s`, `21 min` or `1 h 9 min`, rounded for a reader."""
    if seconds < 57.5:
        return f"{max(5, 5 * round(seconds / 5))} s"
    if seconds < 595:
        minutes, rest = divmod(10 * round(seconds / 10), 60)
        return f"{minutes} min {rest} s" if rest else f"{minutes} min"
    hours, minutes = divmod(round(seconds / 60), 60)
    words = [f"{hours} h"] * bool(hours) + [f"{minutes} min"] * bool(minutes)
    return " ".join(words)
