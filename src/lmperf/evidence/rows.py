"""Rows of evidence: a pydantic model for each benchmark, which refuses what nothing can measure.

The model follows from the declared columns. An empty cell means that the value was not measured, or
that the row is older than the column. `sound` is used wherever rows come from outside: from a
worker, whose implementations could change what it sends, and from files.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from functools import cache
from typing import Annotated, Any, Literal

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    StringConstraints,
    ValidationError,
    create_model,
    model_validator,
)

from lmperf.benchmark import Axis, Benchmark, Column, Timed
from lmperf.config import NAME
from lmperf.errors import shown
from lmperf.gate import UNCHECKED
from lmperf.measuring.sensors import MOST_LOAD
from lmperf.names import STATUSES

# Columns that only a row with the status ok has.
_TIMES = ("median_ms", "low_ms", "high_ms", "rounds_ms", "host_ms", "eager_ms", "device_ms")
_CLOSE = 1 + 1e-6

_Digest = Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{16}$")]
_Text = Annotated[str, StringConstraints(max_length=10_000)]
_Time = Annotated[float, Field(gt=0, allow_inf_nan=False)]
_Times = Annotated[list[_Time], BeforeValidator(lambda text: text.split(";"))]
_Signed = Annotated[float, Field(allow_inf_nan=False)]
_Number = Annotated[float, Field(ge=0, allow_inf_nan=False)]


def _not_negative(error: float) -> float:
    if error < 0:
        raise ValueError("it is negative")
    return error


_Error = Annotated[float, AfterValidator(_not_negative)]  # nan and inf are results
# Narrower types than those of `COMMON_COLUMNS`.
_KNOWN: Mapping[str, Any] = {
    "median_ms": _Time | None,
    "rounds_ms": _Times | None,
    "other_load": Annotated[float, Field(ge=0, le=1)] | None,
    "status": Literal[tuple(STATUSES)],
    "implementation": Annotated[str, StringConstraints(pattern=NAME)],
    "environment": _Digest,
    "key": _Digest,
    "measured_at": datetime,
}


class _Row(BaseModel):
    """The checks of a row that concern several columns."""

    model_config = ConfigDict(extra="ignore")
    must_be_timed: bool = False

    @model_validator(mode="before")
    @classmethod
    def _without_empty_cells(cls, row: Mapping[str, Any]) -> dict[str, Any]:
        return {name: text for name, text in row.items() if text not in ("", None)}

    @model_validator(mode="after")
    def _agrees_with_itself(self) -> _Row:
        for fault in filter(None, (self._in_times(), self._in_errors())):
            raise ValueError(fault)
        return self

    def _in_times(self) -> str:
        if self.status != "ok":
            there = [name for name in _TIMES if getattr(self, name, None) is not None]
            return f"status is {self.status}, but there is a {there[0]}" if there else ""
        if self.must_be_timed and self.median_ms is None:
            return "status is ok, but median_ms is empty"
        low, high = (getattr(self, name, None) for name in ("low_ms", "high_ms"))
        if low and high and not low / _CLOSE <= self.median_ms <= high * _CLOSE:
            return f"median_ms is {self.median_ms:g}, outside {low:g} to {high:g}"
        return ""

    def _in_errors(self) -> str:
        error, bound = self.max_error, self.error_bound
        if (error is None) != (bound is None):
            return "max_error and error_bound are not both there"
        if self.status == "ok" and error is not None and not error <= bound:
            return f"status is ok, but max_error {error:g} is over error_bound {bound:g}"
        if self.status in ("nan", "failed_check") and not (self.reason or error is not None):
            return f"status is {self.status}, but reason is empty"
        return ""


@cache
def _model(of: type[Benchmark]) -> type[_Row]:
    benchmark = of("rows")
    types = {name: _Text | None for name in of.index}
    types |= {column.name: _of_column(column) | None for column in benchmark.declared_columns}
    types |= {**_KNOWN, "phase": Literal[of.phases]}
    types |= {axis.name: _of_axis(axis) | None for axis in of.axes}
    required = {"status", "implementation", "phase", "environment", "key", "measured_at"}
    fields = {name: (kind, ... if name in required else None) for name, kind in types.items()}
    fields["must_be_timed"] = (bool, issubclass(of, Timed))
    return create_model(f"Row_{of.__name__}", __base__=_Row, **fields)


def _of_axis(axis: Axis) -> Any:
    if axis.choices:
        return Literal[axis.choices]
    if axis.kind is int:
        return Annotated[int, Field(ge=axis.least)]
    if axis.pattern:
        return Annotated[str, StringConstraints(pattern=axis.pattern)]
    return axis.kind


def _of_column(column: Column) -> Any:
    if column.kind in (bool, str):
        return {bool: bool, str: _Text}[column.kind]
    if column.name in ("max_error", "pytorch_error") or column.name.startswith("error_"):
        return _Number if column.name == "error_bound" else _Error
    return _Signed if column.signed else _Number


def fault(benchmark: Benchmark, row: Mapping[str, Any]) -> str:
    """Return why nothing can have measured a row of texts; empty if something can."""
    try:
        _model(type(benchmark)).model_validate(row)
    except ValidationError as error:
        first = error.errors()[0]
        words = first["msg"].removeprefix("Value error, ")
        if not first["loc"]:
            return words
        return f"{first['loc'][0]} is {shown(first['input'])}: {words}"
    return ""


def sound(
    benchmark: Benchmark, rows: Sequence[Mapping[str, str]]
) -> tuple[list[dict[str, str]], list[str]]:
    """Return the rows that something can have measured, with their final status.

    The second result has a line for each other row.
    """
    faults = [fault(benchmark, row) for row in rows]
    lines = [
        f"{benchmark.stem}: {shown(' '.join(str(row.get(n)) for n in benchmark.identity))}: {words}"
        for row, words in zip(rows, faults, strict=True)
        if words
    ]
    pairs = zip(rows, faults, strict=True)
    return [as_read(row) for row, words in pairs if not words], lines


def as_read(row: Mapping[str, str]) -> dict[str, str]:
    """Return a row with its final status.

    If a call fits into memory and its check does not, the worker writes the status `failed_check`
    and this reason. Nothing found the result wrong, so the status becomes `unchecked`.
    """
    if row.get("reason") != UNCHECKED:
        return {**row}
    return {**row, "status": "unchecked", "reason": UNCHECKED.partition(": ")[2]}


def is_loaded(row: Mapping[str, str]) -> bool:
    """Whether other processes took so much of the machine that a row's time may not hold.

    On a GPU only a row that waits for the host takes longer beside them.
    """
    waits = row.get("bound") == "host" or not row.get("gpus")
    return waits and float(row.get("other_load") or 0) > MOST_LOAD


def row_name(benchmark: Benchmark, row: Mapping[str, object]) -> str:
    """Return the name of a row in messages: its axes that are not empty, implementation, phase."""
    values = {axis.name: row.get(axis.name) for axis in benchmark.axes}
    axes = ", ".join(f"{name}={value}" for name, value in values.items() if value not in ("", None))
    return f"{axes}: {row['implementation']}, {row['phase']}"
