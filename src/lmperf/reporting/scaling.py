"""How a quantity grows along an axis, and from where on something pays."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd

from lmperf.reporting.evidence import in_order
from lmperf.reporting.speedup import NO_DIFFERENCE

POINTS = 3


def exponents(frame: pd.DataFrame, x: str, y: str, groups: list[str]) -> pd.Series:
    """Exponent p of y ~ x^p per group, by least squares on logarithms over the POINTS largest x.

    Smaller x are left out because fixed costs (launches, allocator blocks) dominate there. The
    x are those of the whole frame, so that all groups are fitted over the same range; a group that
    lacks one of them, or has a y there that is not positive, has no exponent.
    """
    kept = frame[(frame[y] > 0) & frame[x].isin(sorted(frame[x].unique())[-POINTS:])]
    kept = kept.drop_duplicates([*groups, x], keep="last")
    keys = [kept[name] for name in groups]
    log_x, log_y = np.log(kept[x].astype(float)), np.log(kept[y].astype(float))
    dx = log_x - log_x.groupby(keys).transform("mean")
    dy = log_y - log_y.groupby(keys).transform("mean")
    slope = (dx * dy).groupby(keys).sum() / (dx * dx).groupby(keys).sum()
    return slope[log_x.groupby(keys).size() == POINTS].dropna()


@dataclass(frozen=True)
class Threshold:
    """From which value of an axis on something is faster.

    ``first`` is the first value that pays (None: nowhere); ``steady`` whether every later value
    pays too; ``faster``, ``slower``, ``same`` and ``mixed`` list the values by verdict.
    """

    first: object | None
    steady: bool
    faster: list
    slower: list
    same: list
    mixed: list


def threshold(axis: pd.Series, verdicts: pd.Series) -> Threshold:
    """Judge each value of an axis by the verdict of all its cells; where they differ, as mixed."""
    table = pd.crosstab(axis, verdicts)
    table = table.reindex(columns=["faster", "slower", NO_DIFFERENCE], fill_value=0)
    values = in_order(str(axis.name), axis)
    judged = {value: _common(table.loc[value]) for value in values}
    by_verdict = {
        kind: [v for v in values if judged[v] == kind]
        for kind in ("faster", "slower", "same", "mixed")
    }
    first = by_verdict["faster"][0] if by_verdict["faster"] else None
    later = values[values.index(first) :] if first is not None else []
    steady = all(judged[value] == "faster" for value in later)
    return Threshold(first, steady, **by_verdict)


def _common(counts: pd.Series) -> str:
    kind = counts.idxmax()
    if counts[kind] < counts.sum():
        return "mixed"
    return "same" if kind == NO_DIFFERENCE else kind


@dataclass(frozen=True)
class Start:
    """From which cell on, in order of work, something is faster in every cell.

    ``first`` is that cell's row (None: not even the largest is faster), ``last`` that of the cell
    before it (None: it is the smallest); ``after`` counts the cells from it on, ``before`` those
    that come earlier, ``faster_before`` the faster ones among these.
    """

    first: pd.Series | None
    last: pd.Series | None
    after: int
    before: int
    faster_before: int


def start(rows: pd.DataFrame, work: str = "flops") -> Start:
    """Where the unbroken run of faster cells begins that reaches to the most work."""
    ordered = rows.sort_values(work, kind="stable")
    faster = (ordered["verdict"] == "faster").to_numpy()
    slow = np.flatnonzero(~faster)
    begin = int(slow[-1]) + 1 if len(slow) else 0
    first = ordered.iloc[begin] if begin < len(ordered) else None
    last = ordered.iloc[begin - 1] if begin else None
    return Start(first, last, len(ordered) - begin, begin, int(faster[:begin].sum()))
