"""Values of axes: of the grids in a configuration, and of cells that a command line names."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Annotated

from pydantic import Field, TypeAdapter, ValidationError

from lmperf.benchmark import Axis, Value
from lmperf.benchmarks import load
from lmperf.config.messages import InvalidValue, asked_of
from lmperf.errors import meant, shown


def canonical(axis: Axis, name: str) -> str:
    """Return the value of an axis that a name or an alias of the value stands for.

    Raises:
        ValueError: the name is unknown, or several aliases begin with it.
    """
    if name in axis.choices:
        return name
    if name in axis.aliases:
        return axis.aliases[name]
    aliases = axis.aliases.items()
    if several := [
        f"{alias} ({value})" for alias, value in aliases if alias.startswith(f"{name}-")
    ]:
        raise ValueError(f"is {shown(name)}, which is ambiguous; write {' or '.join(several)}")
    others = {
        value: [alias for alias, other in aliases if other == value] for value in axis.choices
    }
    names = [f"{value} ({', '.join(more)})" if more else value for value, more in others.items()]
    raise ValueError(f"is {shown(name)}; it must be one of {', '.join(names)}")


def value_of(axis: Axis, given: object) -> Value:
    """Return the value of an axis that a value of the configuration or a text stands for.

    Raises:
        ValueError: the axis cannot have this value, in the grid of a preset or outside it.
    """
    try:
        value = type_of(axis).validate_python(given)
    except ValidationError as error:
        (fault,) = error.errors()
        raise ValueError(f"is {shown(given)}; it must {asked_of(fault)}") from None
    return canonical(axis, value) if axis.choices else value


def type_of(axis: Axis) -> TypeAdapter:
    """Return the pydantic type of the values of an axis, also of those given as texts."""
    if axis.kind is int:
        return TypeAdapter(Annotated[int, Field(ge=axis.least, le=axis.most)])
    return TypeAdapter(Annotated[axis.kind, Field(pattern=axis.pattern)])


def distinct(values: list) -> list:
    if twice := [value for value, count in Counter(values).items() if count > 1]:
        raise ValueError(f"names {shown(twice[0])} twice; it must name each value once")
    return values


def axes_of(stem: str) -> dict[str, Axis]:
    """Name -> axis, for what a configuration may set in the grid of a benchmark."""
    benchmark = load(stem)
    names = tuple(sorted(implementation.name for implementation in benchmark.implementations))
    axes = (*benchmark.axes, Axis("implementation", str, names))
    return {axis.name: axis for axis in axes}


def grid_of(stem: str, given: Mapping[str, list]) -> dict[str, list]:
    """Return the grid of a benchmark with the values that aliases and texts stand for."""
    grid, axes = {}, axes_of(stem)
    for name, values in given.items():
        if name not in axes:
            raise InvalidValue(f"is not a known key; {meant(name, axes, 'axes:')}", stem, name)
        try:
            grid[name] = distinct([value_of(axes[name], value) for value in values])
        except ValueError as error:
            raise InvalidValue(str(error), stem, name) from None
    return grid
