"""Why rows have no result: the reasons, and where each of them holds."""

from __future__ import annotations

from collections.abc import Collection

import pandas as pd

from lmperf.benchmarks import load
from lmperf.names import axis_words, value_words
from lmperf.reporting.evidence import Evidence
from lmperf.reporting.words import Range


def reasons(evidence: Evidence, *stems: str) -> list[dict]:
    """Why rows of these benchmarks have no result, with the number of rows.

    Each also names the axis values at which none of the implementation's rows has a result,
    those of a single row, and how wrong its results are.
    """
    lines = []
    for stem in stems:
        every = evidence.rows(stem).fillna({"reason": ""})
        rows = every[every["state"].notna()]
        for (words, name, reason), group in rows.groupby(["words", "implementation", "reason"]):
            results = every[every["state"].isna() & (every["implementation"] == name)]
            axes = [axis.name for axis in load(stem).axes]
            others = results if len(group) > 1 else results.iloc[:0]
            wrong = group[group["max_error"] > group["error_bound"]]
            error = Range.of(wrong["max_error"]) if len(wrong) else None
            lines.append(
                {"words": words, "implementation": name, "reason": reason}
                | {"rows": len(group), "where": _alone(group, others, axes)}
                | {"error": error, "bound": wrong["error_bound"].max()}
            )
    return lines


def _alone(rows: pd.DataFrame, others: pd.DataFrame, axes: Collection[str]) -> str:
    """The axis values that all rows share and no other row has, in words."""
    is_all = len(rows) > 1 and others.empty  # the implementation has no result at all
    shared = (axis for axis in axes if rows[axis].nunique() == 1 and not is_all)
    values = {axis: rows[axis].iloc[0] for axis in shared}
    return ", ".join(
        f"{axis_words(axis)} {value_words(axis, value)}"
        for axis, value in values.items()
        if not (others[axis] == value).any()
    )
