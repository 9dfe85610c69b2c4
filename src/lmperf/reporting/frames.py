"""Selections of rows of a data frame, and the order in which people read them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence, Sized
from typing import TypeVar

import numpy as np
import pandas as pd

from lmperf.names import in_order
from lmperf.reporting.words import NotMeasured

# Without this, pandas would store text differently where pyarrow is installed.
pd.set_option("mode.string_storage", "python")
Values = TypeVar("Values", bound=Sized)
FIRST, LAST = 0, -1  # places of the values of an axis in reading order


def having(frame: pd.DataFrame, **where) -> pd.DataFrame:
    """The rows with these values; a list or tuple means any of them."""
    keep = np.ones(len(frame), dtype=bool)
    for name, value in where.items():
        values = value if isinstance(value, list | tuple) else [value]
        keep &= frame[name].isin(values).to_numpy()
    return frame[keep]


def at(frame: pd.DataFrame, **places: int) -> pd.DataFrame:
    """The rows with the FIRST or LAST value of some axes in reading order, one after the other."""
    for axis, place in places.items():
        values = in_order(axis, frame[axis])
        frame = having(frame, **{axis: values[place] if values else []})
    return frame


def matching(rows: pd.DataFrame, others: pd.DataFrame, names: Sequence[str]) -> pd.DataFrame:
    """Of each row the first of some others with the same values of some columns.

    Labelled like the rows; NaN where there is no such row.
    """
    first = others.drop_duplicates([*names]).reset_index(drop=True)
    cells = rows[[*names]].merge(first[[*names]].assign(place=first.index), "left", [*names])
    return first.reindex(cells["place"]).set_axis(rows.index)


def are_within(rows: pd.DataFrame, others: pd.DataFrame, names: Sequence[str]) -> pd.Series:
    """Which rows have the values of any of some others in some columns."""
    cells = [pd.MultiIndex.from_frame(frame[[*names]]) for frame in (rows, others)]
    return pd.Series(cells[0].isin(cells[1]), rows.index)


def sorted_for_reading(frame: pd.DataFrame, names: Sequence[str]) -> pd.DataFrame:
    """The rows in the order of `lmperf.names`; shapes by their numbers of elements.

    A categorical column has the order of its categories.
    """
    ranks = {n: {v: i for i, v in enumerate(ordered(n, frame[n]))} for n in names if n in frame}
    return frame.sort_values([*ranks], key=lambda axis: axis.map(ranks[axis.name]), kind="stable")


def ordered(name: str, values: pd.Series) -> list:
    """The distinct values of a column in reading order; shapes by their numbers of elements."""
    if isinstance(values.dtype, pd.CategoricalDtype):
        return [*values.cat.categories]
    distinct = in_order(name, values)
    if name != "shape":
        return distinct
    parts = {value: str(value).split("x") for value in distinct}
    elements = {
        k: np.prod([*map(float, v)]) for k, v in parts.items() if all(map(str.isdecimal, v))
    }
    return sorted(distinct, key=lambda value: (elements.get(value, np.inf), str(value)))


def parts(
    frame: pd.DataFrame, *names: str, ordered: bool = True
) -> Iterator[tuple[tuple, pd.DataFrame]]:
    """The rows by their values in some columns, in reading order or as they are given."""
    if not names:
        yield (), frame
        return
    frame = sorted_for_reading(frame, names) if ordered else frame
    yield from frame.groupby(list(names), sort=False, dropna=False)


def required(values: Values, why: str) -> Values:
    """The values: rows, or a list or dict of something.

    Raises:
        NotMeasured: there are none; the message says why.
    """
    if not len(values):
        raise NotMeasured(why)
    return values


def shared_value(values: pd.Series):
    """The value that all rows share.

    Raises:
        NotMeasured: there is none.
    """
    distinct = values.dropna().unique()
    if len(distinct) != 1:
        raise NotMeasured(f"{len(distinct)} values of {values.name}")
    return distinct[0]
