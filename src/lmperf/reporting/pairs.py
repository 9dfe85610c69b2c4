"""Rows of two sides by cell: how many times as fast the left one is, and whether that is decided.

Implementations on a page, two results and a row measured again are compared by `pairs` and
`decided`; `lmperf.statistics` has the mathematics. The right side is what the left one is compared
with: its columns have the suffix `_base`, and a ratio is base / left, above 1 the left is faster.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd

from lmperf.evidence.plausible import EVENT_STEP_MS
from lmperf.statistics import FALSE_DISCOVERY, Ratio, adjusted, medians, paired, unpaired, verdict

# How rows are compared: all by the ratios of each round; all by their medians; those of one
# machine's run by what was measured: see `decided`.
IN_TURN, APART, ONE_RUN = "in turn", "apart", "one run"
BOTH = ("", "_base")


def pairs(
    left: pd.DataFrame, right: pd.DataFrame, on: Sequence[str], suffix: str = "_base"
) -> pd.DataFrame:
    """The rows of the left side that have a row on the right one, labelled like the left rows.

    on: columns that tell a cell. suffix: of all other columns of the right side.
    """
    both = left.reset_index(names="label").merge(right, on=[*on], suffixes=("", suffix))
    return both.set_index("label").rename_axis(None)


def rounds(texts: pd.Series) -> np.ndarray:
    """Texts such as ``1.0;1.1`` as [rows, most rounds], padded with NaN."""
    return texts.astype(object).str.split(";", expand=True).astype(float).to_numpy()


def base_of(rows: pd.DataFrame) -> pd.DataFrame:
    """The right side of pairs: its columns without their suffix."""
    return rows[[name for name in rows if name.endswith("_base")]].rename(
        columns=lambda name: name.removesuffix("_base")
    )


def have_times(rows: pd.DataFrame) -> pd.Series:
    """Which pairs have a result and times on both sides."""
    lacking = rows[[f"state{side}" for side in BOTH]].notna().any(axis=1)
    return ~lacking & rows[[f"rounds_ms{side}" for side in BOTH]].notna().all(axis=1)


def decided(rows: pd.DataFrame, how: str, at_least: float = 0.0, unit: str = "") -> pd.DataFrame:
    """The pairs with their ratios and verdicts.

    Adds ratio, low, high, p (adjusted over all pairs), rounds, floor and verdict; NaN or None where
    a pair is not compared. Pairs of which a row does not hold, or waited for the CPU, are
    unresolved.

    rows: with the columns of `Evidence.comparable` on both sides.
    how: IN_TURN, APART, or ONE_RUN: two train steps of one GPU are compared by their stretches,
        other rows by the rounds that were timed in turn, all others not at all.
    at_least: the least difference that counts, as a fraction.
    unit: a column that the times are multiplied by, as `clock_mhz` for cycles.
    """
    ratios = _estimated(rows, how, unit)
    sound = is_sound(rows)
    ratios["p"] = adjusted(ratios["p"].where(sound))
    floor = ratios["step"].clip(lower=at_least)
    # Differences of two versions that were timed in turn are confirmed, so these need no floor.
    floor = floor if how == IN_TURN else np.fmax(floor, _floor(rows, how))
    verdicts = verdict(
        Ratio(*(ratios[name].to_numpy() for name in ("ratio", "low", "high", "p", "rounds"))),
        floor.to_numpy(),
        ratios["p"].to_numpy() <= FALSE_DISCOVERY,
        ~sound.to_numpy(),
    )
    verdicts = pd.Series(verdicts, rows.index, dtype=object).where(ratios["ratio"].notna())
    return rows.assign(**ratios.drop(columns="step"), floor=floor, verdict=verdicts)


def is_sound(rows: pd.DataFrame) -> pd.Series:
    """Whether both rows of a pair hold, and neither waited for the CPU."""
    holds, waits = rows[["holds", "holds_base"]], rows[["waits", "waits_base"]]
    return (holds.all(axis=1) & ~waits.any(axis=1)).astype(bool)


def _estimated(rows: pd.DataFrame, how: str, unit: str) -> pd.DataFrame:
    """Ratio, low, high, p and rounds of each pair, and `step`: the clock's step as a fraction."""
    timed = have_times(rows)
    apart = timed & (_one_gpu(rows) if how == ONE_RUN else how == APART)
    in_turn = timed & ~apart & (_one_group(rows) if how == ONE_RUN else how == IN_TURN)
    ratios = [_ratios(rows[apart], unpaired, unit), _ratios(rows[in_turn], paired, unit)]
    return pd.concat(ratios).reindex(rows.index)


def _ratios(rows: pd.DataFrame, estimate, unit: str) -> pd.DataFrame:
    sides = [rounds(rows[f"rounds_ms{side}"]) for side in reversed(BOTH)]
    step = EVENT_STEP_MS / np.fmin(*map(medians, sides))
    if unit:
        units = [rows[f"{unit}{side}"].to_numpy()[:, None] for side in reversed(BOTH)]
        sides = [times * of_row for times, of_row in zip(sides, units, strict=True)]
    if estimate is paired:
        width = min(side.shape[1] for side in sides)
        sides = [side[:, :width] for side in sides]
    return pd.DataFrame(vars(estimate(*sides)) | {"step": step}, rows.index, dtype=float)


def _one_gpu(rows: pd.DataFrame) -> pd.Series:
    """Whether two rows are train steps of one GPU and environment."""
    same = rows["gpus"].fillna("") == rows["gpus_base"].fillna("")
    same &= rows["environment"] == rows["environment_base"]
    return same & (rows["phase"] == "train_step")


def _one_group(rows: pd.DataFrame) -> pd.Series:
    """Whether the rounds of two rows were timed in turn."""
    rounds_of = [rows[f"rounds_ms{side}"].str.count(";") for side in BOTH]
    return (rows["together"] == rows["together_base"]) & (rounds_of[0] == rounds_of[1])


def _floor(rows: pd.DataFrame, how: str) -> pd.Series:
    """The noise floor of speed-ups of one run; else the larger one of times.

    Of times, one that the pairs of either side tell comes before an assumed one.
    """
    if how == ONE_RUN:
        return rows[[f"speedup_floor{side}" for side in BOTH]].astype(float).max(axis=1)
    floors = rows[["floor", "floor_base"]].astype(float)
    assumed = rows[["is_assumed", "is_assumed_base"]].to_numpy(dtype=bool)
    return floors.mask(assumed).max(axis=1).fillna(floors.max(axis=1))
