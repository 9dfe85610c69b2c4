"""What one cell of evidence may hold: a rule for each column, from what the benchmark declares.

An empty cell was not measured, or is of before the column was there. Only what names a row, and
says where, when and by which code it was measured, is never empty. An implementation need not be
known: it may be a user's own.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from operator import methodcaller

from lmperf.benchmark import Axis, Benchmark, Column
from lmperf.names import STATUSES

LONGEST = 10_000
NOT_FINITE = ("nan", "inf")
# What breaks a line, or a terminal, and is not white space of a text.
_CONTROL = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f]")
_NUMBER = re.compile(r"-?[0-9]+(\.[0-9]+)?([eE][-+]?[0-9]+)?")
_NUMBERS = re.compile(rf"{_NUMBER.pattern}(;{_NUMBER.pattern})*")
_WHOLE = re.compile(r"0|[1-9][0-9]{0,17}")
_TIME = re.compile(r"(19[7-9]|20[0-9]|21[0-9])[0-9]-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(\+00:00|Z)")


@dataclass(frozen=True)
class Rule:
    """Whether a text is right for its column, and in words what would be."""

    holds: Callable[[str], object]
    wanted: str
    required: bool = False

    def broken_by(self, text: str | None) -> str | None:
        """What is wrong with a cell, in words that follow the name of its column; else None."""
        if not text and not self.required:
            return None
        if text is None:
            return "is missing"
        if len(text) > LONGEST:
            return f"has {len(text)} characters; at most {LONGEST} can be right"
        return None if self.holds(text) else f"is {shown(text)}; it must be {self.wanted}"


def cell_faults(
    benchmark: Benchmark, rows: Sequence[Mapping[str, str]]
) -> Iterator[tuple[int, str]]:
    """Cells that break the rule of their column: the index of the row, and what is wrong.

    Many rows share their cells: each text of a column is looked at once.
    """
    longer = (index for index, row in enumerate(rows) if None in row)
    yield from ((index, "has more cells than there are columns") for index in longer)
    for name, rule in rules_of(benchmark).items():
        texts = set(map(methodcaller("get", name), rows))
        broken = {text: words for text in texts if (words := rule.broken_by(text))}
        if broken:
            cells = enumerate(row.get(name) for row in rows)
            yield from ((n, f"{name} {broken[text]}") for n, text in cells if text in broken)


def rules_of(benchmark: Benchmark) -> dict[str, Rule]:
    """The rule of every column that is read; columns that nobody declares are not shown either."""
    index = {name: _TEXT for name in benchmark.index}
    declared = {column.name: _of_column(column) for column in benchmark.declared_columns}
    axes = {axis.name: _of_axis(axis) for axis in benchmark.axes}
    return {**index, **declared, **_COMMON, "phase": _one_of(benchmark.phases, True), **axes}


def is_error(name: str) -> bool:
    """Whether a column holds an error, which is not finite where the result is not."""
    return name in ("max_error", "pytorch_error") or (
        name.startswith("error_") and name != "error_bound"
    )


def shown(text: str) -> str:
    """A text as a message shows it: on one line, and not all of a long one."""
    return repr(text if len(text) <= 60 else text[:57] + "...")


def numbers_in(text: str) -> list[float]:
    """The numbers of a cell that holds several, without those that are not known."""
    return list(map(float, filter(None, text.split(";"))))


def _is_number(text: str) -> bool:
    return bool(_NUMBER.fullmatch(text)) and 0 <= float(text) < math.inf


def _is_signed_number(text: str) -> bool:
    return bool(_NUMBER.fullmatch(text)) and math.isfinite(float(text))


def _are_times(text: str) -> bool:
    if not _NUMBERS.fullmatch(text):
        return False
    times = numbers_in(text)
    return min(times) > 0 and max(times) < math.inf


def _is_whole(text: str, least: int = 0) -> bool:
    return bool(_WHOLE.fullmatch(text)) and int(text) >= least


def _is_time(text: str) -> bool:
    if not _TIME.fullmatch(text):
        return False
    try:
        datetime.fromisoformat(text)
    except ValueError:  # a 31st of February
        return False
    return True


def _one_of(names: Iterable[str], required: bool = False) -> Rule:
    names = tuple(names)
    return Rule(frozenset(names).__contains__, f"one of {', '.join(names)}", required)


def _of_axis(axis: Axis) -> Rule:
    if axis.choices:
        return _one_of(axis.choices)
    if axis.kind is int:
        return Rule(lambda text: _is_whole(text, axis.least), f"a whole number from {axis.least}")
    if axis.kind is bool:
        return _FLAG
    if axis.pattern:
        return Rule(re.compile(axis.pattern).fullmatch, f"like {axis.pattern}")
    return _TEXT


def _of_column(column: Column) -> Rule:
    if is_error(column.name):
        return _ERROR
    number = _SIGNED if column.signed else _POSITIVE
    return {bool: _FLAG, str: _TEXT}.get(column.kind, number)


_TEXT = Rule(lambda text: not _CONTROL.search(text), "free of control characters")
_FLAG = _one_of(("True", "False"))
_SIGNED = Rule(_is_signed_number, "a finite number")
_POSITIVE = Rule(_is_number, "a finite number, not below zero")
_TIMES = Rule(_are_times, "times above zero with ; between them")
_CLOCKS = Rule(
    lambda text: all(not part or _is_number(part) for part in text.split(";")),
    "clocks with ; between them",
)
_ERROR = Rule(lambda text: text in NOT_FINITE or _is_number(text), "a number, not below zero")
_DIGEST = Rule(re.compile(r"[0-9a-f]{16}").fullmatch, "16 hexadecimal digits", True)
# The columns of every benchmark that hold more than their kind says.
_COMMON = {
    "implementation": Rule(
        re.compile(r"[a-z][a-z0-9_]*").fullmatch,
        "a name of small letters, digits and _",
        True,
    ),
    "status": _one_of(STATUSES, True),
    "median_ms": Rule(
        lambda text: _is_number(text) and float(text) > 0, "a finite number above zero"
    ),
    "repetitions": Rule(lambda text: _is_whole(text, 1), "a whole number from 1"),
    "rounds_ms": _TIMES,
    "again_ms": _TIMES,
    "rounds_mhz": _CLOCKS,
    "throttle": Rule(re.compile(r"0x[0-9a-f]{1,16}").fullmatch, "hexadecimal, as 0x4"),
    "environment": _DIGEST,
    "key": _DIGEST,
    "measured_at": Rule(_is_time, "an ISO time in UTC, as 2026-01-02T03:04:05+00:00", True),
}
