"""Published figures, as data: one CSV a benchmark, a line a figure as it was printed.

Columns: source, device, the axes of the benchmark (empty where the source does not state them),
implementation, phase, metric, value, spread, unit, note. ``sources.csv`` has author and title of
each source, empty where the source does not state them; the title of a write-up is its first
heading.
"""

from functools import cache
from pathlib import Path

import pandas as pd

from lmperf.names import size_words
from lmperf.reporting.frames import having, required

FOLDER = Path(__file__).parent
SOURCES = "sources"
STEMS = tuple(sorted(path.stem for path in FOLDER.glob("*.csv") if path.stem != SOURCES))


@cache
def figures_of(stem: str) -> pd.DataFrame:
    """The published figures of a benchmark, all columns as text, empty where not stated.

    Sizes have their short names, whatever the source calls them.
    """
    figures = pd.read_csv(FOLDER / f"{stem}.csv", dtype=str, keep_default_na=False)
    return figures.assign(size=figures["size"].map(size_words)) if "size" in figures else figures


def figure(stem: str, **where: str) -> dict[str, str]:
    """The first published figure of a benchmark with these values.

    Raises:
        NotMeasured: there is none.
    """
    figures = required(
        having(figures_of(stem), **where), f"no published figure of {stem} with {where}"
    )
    return figures.iloc[0].to_dict()


@cache
def sources() -> pd.DataFrame:
    """A line for each source with its author and title; empty where not stated."""
    return pd.read_csv(FOLDER / f"{SOURCES}.csv", dtype=str, keep_default_na=False)


def cell_of(figures: pd.DataFrame) -> list[str]:
    """The columns that name a figure's row in the evidence, but its phase."""
    names = list(figures.columns)
    return [n for n in names[names.index("device") + 1 : names.index("metric")] if n != "phase"]
