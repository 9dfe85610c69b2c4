"""Published figures beside this machine's rows of the same cells; no check depends on them."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cached_property

import pandas as pd

from lmperf.benchmarks import load
from lmperf.names import axis_words, in_order, value_words
from lmperf.reporting.columns import of_memory
from lmperf.reporting.frames import having
from lmperf.reporting.pairs import pairs
from lmperf.reporting.published import STEMS, cell_of, figures_of, sources
from lmperf.reporting.rows import Rows
from lmperf.reporting.sections import Section
from lmperf.reporting.words import sig

# Quantity of a published figure -> our column, its unit and form.
MEASURED = {
    "time": ("ms", "ms", "sig"),
    "memory before backward": ("saved_mib", "MiB", "sig"),
    "memory": ("saved_mib", "MiB", "sig"),
    "peak memory": ("peak_mib", "MiB", "sig"),
    "sum": ("value", "", "fixed_4"),
}
# Columns that say how large a cell is; the first one with values is used.
WORK = ("flops", "bytes", "predicted_mib")
# Of implementations of one cell the first of these is shown, else the first in reading order.
FIRST = ("triton", "eager")
SHOWN = ["key", "signs", "waits"]  # what tables show of our rows beside numbers
NOT_STATED = "not stated"


class Published(Section):
    """For each benchmark the largest published cells that this machine measured as well."""

    @cached_property
    def by_topic(self) -> list[tuple[str, Rows, str]]:
        """(title of a benchmark, its lines, the filter of our numbers) where there are lines."""
        topics = [(load(stem).title, self._lines(stem)) for stem in STEMS]
        forms = {metric: form for metric, (_, _, form) in MEASURED.items()}
        return [
            (title, lines, forms[lines.frame["metric"].iloc[0]]) for title, lines in topics if lines
        ]

    def _lines(self, stem: str) -> Rows:
        """The largest cell of each source, device and quantity; all cells that have no size."""
        matched, cell = self._matched(stem), cell_of(figures_of(stem))
        group = ["source", "device", "metric", *(cell if not matched["work"].any() else ())]
        largest = []
        for _, rows in matched.groupby(group, sort=False):
            same_cell = (rows[cell] == rows.iloc[0][cell]).all(axis=1)
            largest.append(rows[same_cell].drop_duplicates("phase"))
        lines = pd.concat(largest) if largest else matched
        return self.rows(stem, lines.assign(**_words(lines, cell)))

    def _matched(self, stem: str) -> pd.DataFrame:
        """The published figures whose cell has a row here, the largest cell first.

        `here`: this machine's number. Cells of equal work are ordered by implementation (as in
        FIRST), then by dtype, the last in reading order first.
        """
        figures, rows = figures_of(stem), self.rows(stem).valid.frame
        keys = [*cell_of(figures), "phase"]
        if not {*keys} <= {*rows.columns}:
            return figures.iloc[:0].assign(work=0.0)
        work = next((rows[name] for name in WORK if name in rows and rows[name].notna().any()), 0.0)
        ours = rows[SHOWN].assign(work=work, **rows[keys].map(_text))
        ours = ours.drop_duplicates(keys, keep="last")
        columns = {metric: name for metric, (name, *_) in MEASURED.items() if name in rows}
        numbers = [ours.assign(metric=metric, here=rows[name]) for metric, name in columns.items()]
        both = pairs(figures, pd.concat(numbers).dropna(subset=["here"]), [*keys, "metric"])
        names = [*FIRST, *in_order("implementation", both["implementation"])]
        sizes = both["metric"].str.contains("memory")
        both = pd.concat([both[~sizes], of_memory(both[sizes])]).sort_index()
        numerics = both.get("dtype", pd.Series("", both.index))
        ranks = pd.DataFrame(
            {
                "work": both["work"],
                "name": -both["implementation"].map(names.index),
                "numerics": numerics.map(in_order("dtype", numerics).index),
            }
        )
        return both.loc[ranks.sort_values([*ranks], ascending=False, kind="stable").index]

    @property
    def sources(self) -> Rows:
        """A line for each source with its devices and number of figures."""
        every = pd.concat([figures_of(stem)[["source", "device"]] for stem in STEMS])
        return self.table_rows(
            {
                "source": source.source,
                "author": source.author or NOT_STATED,
                "title": source.title,
                "device": "; ".join(sorted({*figures["device"]} - {NOT_STATED})) or NOT_STATED,
                "figures": len(figures),
            }
            for source in sources().itertuples()
            for figures in [having(every, source=source.source)]
        )


def _text(value) -> str:
    """The value of an axis as the CSV files of published figures write it."""
    whole = isinstance(value, float) and value.is_integer()
    return str(int(value)) if whole else str(value)


def _words(lines: pd.DataFrame, cell: list[str]) -> dict[str, Iterable[str]]:
    """The columns of a line that are words: its device, cell, quantity and published value."""
    units = {
        metric: f"{metric} (here in {unit})" if unit else metric
        for metric, (_, unit, _) in MEASURED.items()
    }
    rows = [row for _, row in lines.iterrows()]
    return {
        "device": lines["device"].replace(NOT_STATED, ""),
        "cell": [
            ", ".join(filter(None, (_axis(name, row[name]) for name in cell))) for row in rows
        ],
        "quantity": [units[row["metric"]] for row in rows],
        "published": [_printed(row["value"], row["unit"]) for row in rows],
    }


def _axis(name: str, value: str) -> str:
    """An axis of a cell in words; nothing for a flag that is false."""
    if name in ("implementation", "dtype"):
        return value_words(name, value)
    flags = {"True": axis_words(name), "False": ""}
    return flags.get(value, f"{axis_words(name)} {value}" if value.isdigit() else value)


def _printed(value: str, unit: str) -> str:
    """A published value with its unit, as it was printed; seconds become milliseconds."""
    if unit == "s":
        return f"{sig(1e3 * float(value))} ms"
    return f"{value} {unit}" if unit and value[-1].isdigit() else value
