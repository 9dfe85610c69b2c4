"""The rows of evidence behind the cells of a page: what a reader sees after a click on a cell."""

from __future__ import annotations

import json
from collections.abc import Hashable, Mapping
from typing import Any

from markupsafe import Markup

from lmperf.benchmarks import load, stems
from lmperf.names import mark_words
from lmperf.reporting import marks
from lmperf.reporting.evidence import MachineEvidence, row_names
from lmperf.reporting.foreign import plain
from lmperf.reporting.numbers import finite, whole
from lmperf.reporting.reproduce import command
from lmperf.reporting.rounds import median_intervals

# A row is a list of these, in this order.
FIELDS = (
    *("name", "median_ms", "low_ms", "high_ms", "calls", "sustained_ms"),
    *("clock_mhz", "commit", "measured"),
    *("marks", "key", "command"),
)


class Rows:
    """Gives rows of evidence places on a page, and describes them.

    evidence: of the machines whose rows the page shows.
    """

    def __init__(self, *evidence: MachineEvidence):
        self._known = {key: row for each in evidence for key, row in described(each).items()}
        self._places: dict[str, int] = {}

    def place(self, key: str | None) -> int | None:
        """The place of a row on the page; None for a cell that is not of a row of evidence."""
        if key not in self._known:
            return None
        return self._places.setdefault(key, len(self._places))

    def script(self) -> Markup:
        """The rows that have a place, as JSON for a data block of the page."""
        rows = [self._known[key] for key in self._places]
        return data_block([list(FIELDS), *rows])


def data_block(value: Any) -> Markup:
    """JSON for a script element that holds data."""
    text = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    # In a script element nothing but "<" is read as HTML.
    return Markup(text.replace("<", "\\u003c"))


def described(evidence: MachineEvidence) -> Mapping[Hashable, list[Any]]:
    """Key of a row -> its FIELDS, for all rows of a machine that have a key."""
    return evidence.once(("rows of the site",), lambda: _described(evidence))


def _described(evidence: MachineEvidence) -> dict[Hashable, list[Any]]:
    found: dict[Hashable, list[Any]] = {}
    for stem, frame in evidence.present().items():
        if "key" not in frame or stem not in stems():
            continue
        frame = frame[~frame["key"].duplicated() & frame["key"].notna()]
        benchmark, title = load(stem), load(stem).title
        lows, highs = (ends.tolist() for ends in median_intervals(frame))
        parts = (frame.to_dict("records"), row_names(frame), lows, highs, marks.names_of(frame))
        for row, name, low, high, names in zip(*parts, strict=True):
            found[row["key"]] = [
                plain(f"{title}: {name}"),
                *map(finite, (row["median_ms"], low, high)),
                whole(row["repetitions"]),
                finite(row.get("sustained_ms")),
                finite(row["clock_mhz"]),
                plain(str(row["commit"])),
                plain(str(row["measured_at"])),
                ", ".join(map(mark_words, names)),
                plain(str(row["key"])),
                _command(benchmark, row, evidence.machine),
            ]
    return found


def _command(benchmark, row: Mapping, machine: str) -> str | None:
    try:
        return command(benchmark, row, machine)
    except (KeyError, ValueError):  # evidence of a version with other axes or sizes
        return None
