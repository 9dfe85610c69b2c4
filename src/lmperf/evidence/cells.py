"""Check the cells of CSV evidence with a pydantic type per column, by the benchmark's declaration.

An empty cell means that the value was not measured, or that the row is older than the column. The
columns in `_REQUIRED` and `phase` (which implementation, when and with which code) must not be
empty. Any implementation name is valid: it may be a custom one.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from operator import methodcaller
from typing import Annotated, Literal

from pydantic import BeforeValidator, Field, TypeAdapter, ValidationError
from pydantic_core import PydanticCustomError

from lmperf.benchmark import Axis, Benchmark, Column
from lmperf.names import STATUSES

LONGEST = 10_000
NOT_FINITE = ("nan", "inf")
# Control characters other than tab, line feed and carriage return.
_CONTROL = r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f]"
_UTC = r"(19[7-9]|20[0-9]|21[0-9])[0-9]-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(\+00:00|Z)"


def _spelled(pattern: str, wanted: str) -> BeforeValidator:
    """Return a validator that requires a text to match a pattern.

    pydantic alone would also read " 1" and "1_0" as numbers. `wanted` is the message's text.
    """
    matches = re.compile(pattern).fullmatch

    def check(text: str) -> str:
        if not matches(text):
            raise PydanticCustomError("spelling", "it must be {wanted}", {"wanted": wanted})
        return text

    return BeforeValidator(check)


_DECIMAL = _spelled(r"-?[0-9]+(\.[0-9]+)?([eE][-+]?[0-9]+)?", "a finite number")
_DIGITS = _spelled(r"0|[1-9][0-9]{0,17}", "a whole number")
_LIST = BeforeValidator(lambda text: text.split(";"))
_Signed = Annotated[float, Field(allow_inf_nan=False), _DECIMAL]
_Number = Annotated[float, Field(ge=0, allow_inf_nan=False), _DECIMAL]
_Time = Annotated[float, Field(gt=0, allow_inf_nan=False), _DECIMAL]
_Digest = Annotated[str, _spelled(r"[0-9a-f]{16}", "16 hexadecimal digits")]

_TEXT = TypeAdapter(
    Annotated[str, _spelled(rf"(?s)(?!.*{_CONTROL}).*", "free of control characters")]
)
_FLAG = TypeAdapter(Literal["True", "False"])
_SIGNED, _NUMBER = TypeAdapter(_Signed), TypeAdapter(_Number)
_ERROR = TypeAdapter(Literal[NOT_FINITE] | _Number)
_TIMES = TypeAdapter(Annotated[list[_Time], _LIST])
# Types of columns that every benchmark has, narrower than those in `COMMON_COLUMNS`.
_REQUIRED = {
    "implementation": TypeAdapter(
        Annotated[str, _spelled(r"[a-z][a-z0-9_]*", "a name of a-z, 0-9 and _")]
    ),
    "status": TypeAdapter(Literal[tuple(STATUSES)]),
    "environment": TypeAdapter(_Digest),
    "key": TypeAdapter(_Digest),
    "measured_at": TypeAdapter(
        Annotated[datetime, _spelled(_UTC, "an ISO time in UTC, as 2026-01-02T03:04:05+00:00")]
    ),
}


def _between(least: float, most: float) -> TypeAdapter:
    return TypeAdapter(Annotated[float, Field(ge=least, le=most, allow_inf_nan=False), _DECIMAL])


_OPTIONAL = {
    "median_ms": TypeAdapter(_Time),
    "repetitions": TypeAdapter(Annotated[int, Field(ge=1), _DIGITS]),
    "rounds_ms": _TIMES,
    "again_ms": _TIMES,
    "sustained_rounds_ms": _TIMES,
    **dict.fromkeys(("least_ms", "sustained_ms", "sustained_s"), TypeAdapter(_Time)),
    "sustained_steps": TypeAdapter(Annotated[int, Field(ge=1), _DIGITS]),
    # Limits of what a machine can be: a share, ratios, us of a call, clocks, power and temperature.
    "other_load": _between(0, 1),
    **dict.fromkeys(("reference", "host_reference"), _between(1e-3, 1e3)),
    **dict.fromkeys(("launch_us", "python_us"), _between(1e-3, 1e6)),
    **dict.fromkeys(("clock_mhz", "sustained_mhz"), _between(0, 1e5)),
    **dict.fromkeys(("power_w", "sustained_w"), _between(0, 1e5)),
    "temperature_c": _between(-100, 200),
    "rounds_mhz": TypeAdapter(Annotated[list[Literal[""] | _Number], _LIST]),
    "throttle": TypeAdapter(Annotated[str, _spelled("0x[0-9a-f]{1,16}", "hexadecimal, as 0x4")]),
    "gpus": TypeAdapter(
        Annotated[str, _spelled(r"[\w-]+(;[\w-]+)*", "UUIDs of GPUs, separated by semicolons")]
    ),
}


def cell_faults(
    benchmark: Benchmark, rows: Sequence[Mapping[str, str]]
) -> Iterator[tuple[int, str]]:
    """Yield (index of the row, description) for each cell that does not fit its column's type.

    Each distinct text of a column is validated once, since many rows share their texts.
    """
    longer = (index for index, row in enumerate(rows) if None in row)
    yield from ((index, "has more cells than there are columns") for index in longer)
    required = {*_REQUIRED, "phase"}
    for name, type_ in _types(benchmark).items():
        texts = set(map(methodcaller("get", name), rows))
        faults = {text: _fault(type_, text) for text in texts if text or name in required}
        if any(faults.values()):
            found = ((index, faults.get(row.get(name))) for index, row in enumerate(rows))
            yield from ((index, f"{name} {fault}") for index, fault in found if fault)


def _fault(type_: TypeAdapter, text: str | None) -> str | None:
    """Return what is wrong with a cell, in words that follow the column's name; None if valid."""
    if text is None:
        return "is missing"
    if len(text) > LONGEST:
        return f"has {len(text)} characters; it must have at most {LONGEST}"
    try:
        type_.validate_python(text)
    except ValidationError as error:
        wanted = error.errors()[-1]["msg"].replace("Input should be", "it must be")
        return f"is {quoted(text)}; {wanted}"
    return None


def _types(benchmark: Benchmark) -> dict[str, TypeAdapter]:
    """Column -> its pydantic type. A column that the benchmark does not declare is not checked."""
    index = dict.fromkeys(benchmark.index, _TEXT)
    declared = {column.name: _of_column(column) for column in benchmark.declared_columns}
    axes = {axis.name: _of_axis(axis) for axis in benchmark.axes}
    phase = {"phase": TypeAdapter(Literal[benchmark.phases])}
    return {**index, **declared, **_REQUIRED, **_OPTIONAL, **phase, **axes}


def _of_axis(axis: Axis) -> TypeAdapter:
    if axis.choices:
        return TypeAdapter(Literal[axis.choices])
    if axis.kind is int:
        return TypeAdapter(Annotated[int, Field(ge=axis.least), _DIGITS])
    if axis.pattern:
        return TypeAdapter(Annotated[str, _spelled(axis.pattern, f"like {axis.pattern}")])
    return {bool: _FLAG, str: _TEXT}[axis.kind]


def _of_column(column: Column) -> TypeAdapter:
    if is_error(column.name):
        return _ERROR
    number = _SIGNED if column.signed else _NUMBER
    return {bool: _FLAG, str: _TEXT, int: number, float: number}[column.kind]


def is_error(name: str) -> bool:
    """Whether a column holds a numerical error, which may be nan or inf."""
    return name in ("max_error", "pytorch_error") or (
        name.startswith("error_") and name != "error_bound"
    )


def quoted(text: str) -> str:
    """Quote a text for a message: on one line, at most 60 characters of it."""
    return repr(text if len(text) <= 60 else text[:57] + "...")


def numbers_in(text: str) -> list[float]:
    """Return the numbers in a cell such as "1.5;;2"; empty parts (unknown values) are dropped."""
    return list(map(float, filter(None, text.split(";"))))
