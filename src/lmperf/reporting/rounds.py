"""The rounds of a time: its samples, one for each time that all rows of a group were timed."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd

from lmperf.evidence.plausible import EVENT_STEP_MS
from lmperf.reporting.numbers import Spread, listed, percent, ranged
from lmperf.statistics import median_interval, medians, order_statistics


def parse_rounds(column: pd.Series) -> np.ndarray:
    """Parse texts such as ``"1.0;1.1"`` into an array [rows, most rounds], padded with NaN."""
    text = column.fillna("").astype(str)
    counts = np.array([row.count(";") + 1 if row else 0 for row in text], dtype=int)
    matrix = np.full((len(text), max(counts.max(initial=0), 1)), np.nan)
    joined = ";".join(text[counts > 0])
    if joined:
        matrix[np.arange(matrix.shape[1]) < counts[:, None]] = np.fromstring(joined, sep=";")
    return matrix


def median_intervals(frame: pd.DataFrame) -> tuple[np.ndarray, np.ndarray]:
    """Ends (ms) of the confidence interval of each row's median time, from its rounds."""
    return median_interval(parse_rounds(frame["rounds_ms"]))


def same_width(a: np.ndarray, b: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    width = min(a.shape[1], b.shape[1])
    return a[:, :width], b[:, :width]


def round_counts(frame: pd.DataFrame) -> np.ndarray:
    return (~np.isnan(parse_rounds(frame["rounds_ms"]))).sum(axis=1)


def round_numbers(frame: pd.DataFrame) -> list[int]:
    """The distinct numbers of rounds with which the rows were timed, ascending."""
    text = frame["rounds_ms"].dropna().astype(str)
    return sorted(int(n) for n in (text.str.count(";") + 1).unique())


def rounds_words(counts: Sequence[int]) -> str:
    """Numbers of rounds in words: ``6``, ``6 and 12``; four or more as ``6 to 20``."""
    return listed(counts) if len(counts) < 4 else f"{min(counts)} to {max(counts)}"


def interval_sentence(counts: Sequence[int]) -> str:
    """Words for the kind and coverage of the confidence intervals that these round counts give."""
    several = [n for n in counts if n > 1]
    if not several:
        return "with one round there is no interval, so that every comparison is unresolved"
    found = [order_statistics(n) for n in several]
    kinds = {
        "the range": [n for n, (low, _, _) in zip(several, found, strict=True) if low == 0],
        "inner order statistics": [n for n, (low, _, _) in zip(several, found, strict=True) if low],
    }
    words = [f"{kind} of {rounds_words(of)} rounds" for kind, of in kinds.items() if of]
    sure = ranged(Spread.of(coverage for _, _, coverage in found), percent)
    return f"{', '.join(words)}, {sure} sure to cover the true median"


def resolution(*sides: np.ndarray) -> np.ndarray:
    """The step of the event timer as a fraction of the shorter of two times, for each row."""
    shorter = np.fmin(*(medians(side) for side in sides))
    return np.nan_to_num(np.divide(EVENT_STEP_MS, shorter))
