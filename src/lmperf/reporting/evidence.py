"""Evidence of one machine as a report reads it: data frames of rows, sorted for reading."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import pandas as pd

from lmperf.benchmark import COMMON_COLUMNS
from lmperf.benchmarks import load, stems
from lmperf.evidence import plausible, repeatability
from lmperf.names import in_order, size_words
from lmperf.reporting import foreign
from lmperf.reporting.facts import facts_of

# A mark of earlier versions: the time limit ended a group before all its pairs were decided.
FORMER_MARK = "time_cap"
TRUTHS = {"true": True, "1": True, "false": False, "0": False}


@dataclass
class MachineEvidence:
    """Evidence of one machine: rows and facts, and which rows are stale, missing or damaged.

    A stem is the name of a benchmark's module and of its file `evidence/<stem>.csv`.

    Attributes:
        machine: the name of the machine's directory below `report/`.
        facts: the content of machine.json (see ``facts_of``).
        frames: stem -> rows of the benchmark (see ``typed_rows``). A frame has a column ``stale``
            if some of its rows are stale.
        stale: stem -> one-line names of the stale rows: code or environment has changed since.
        damaged: stem -> why the report withholds the rows of this benchmark.
        lost: file of no benchmark (`machine`, `cost`) -> why the report does not use it.
        missing: stem -> names of the configured cells without a row.
        lacking: stem -> these cells as a data frame of axes, implementation and phase.
        left_out: stem -> why the configuration asks for none or only a part of the benchmark.
        cost: a row for each job that measured; None if no job recorded its cost.
        at_work: which rows may not hold, in words, if too many were measured while the machine
            was at work; empty if not.
        allowed: why these rows are published all the same, if somebody has said so.
        despite: what is wrong with rows that are published all the same, and why, in words.
        repeats: stem -> the rows of a benchmark that were measured a second time (table R1).
        derived: the cache of ``once``.
    """

    machine: str
    facts: dict = field(default_factory=dict)
    frames: dict[str, pd.DataFrame] = field(default_factory=dict)
    stale: dict[str, list[str]] = field(default_factory=dict)
    damaged: dict[str, str] = field(default_factory=dict)
    lost: dict[str, str] = field(default_factory=dict)
    missing: dict[str, list[str]] = field(default_factory=dict)
    lacking: dict[str, pd.DataFrame] = field(default_factory=dict)
    left_out: dict[str, str] = field(default_factory=dict)
    cost: pd.DataFrame | None = None
    at_work: str = ""
    allowed: str = ""
    despite: str = ""
    repeats: dict[str, pd.DataFrame] = field(default_factory=dict)
    derived: dict = field(default_factory=dict, init=False, repr=False, compare=False)

    def __post_init__(self):
        """Neutralise all text (`lmperf.reporting.foreign`): strangers may have written it."""
        self.facts = facts_of(self.facts)
        self.frames = {stem: _taken(frame) for stem, frame in self.frames.items()}
        self.repeats = {stem: _taken(frame) for stem, frame in self.repeats.items()}
        self.lacking = {stem: _taken(rows) for stem, rows in self.lacking.items()}
        for named in ("stale", "damaged", "lost", "missing", "left_out", "allowed", "despite"):
            setattr(self, named, foreign.deep(foreign.taken, getattr(self, named)))

    @property
    def name(self) -> str:
        """The machine's name, neutralised for output in any format (see ``foreign.taken``)."""
        return foreign.taken(self.machine)

    @property
    def link(self) -> str:
        """The name of the machine's directory, quoted for use in a link."""
        return foreign.link(self.machine)

    def once(self, key: tuple, make: Callable):
        """The result of ``make()``, cached under ``key``; the rows must not change afterwards."""
        if key not in self.derived:
            self.derived[key] = make()
        return self.derived[key]

    def frame(self, stem: str) -> pd.DataFrame | None:
        """The rows of a benchmark in reading order; None if it has none or its file is damaged."""
        frame = self.frames.get(stem)
        if frame is None or stem in self.damaged or frame.empty:
            return None
        return self.once(("frame", stem), lambda: self._read(completed(frame, stem)))

    def repeated(self, stem: str) -> pd.DataFrame:
        """The rows of a benchmark that were measured a second time, in reading order."""
        frame = self.repeats[stem]
        return self.once(("repeated", stem), lambda: self._read(completed(frame, stem)))

    def _read(self, frame: pd.DataFrame) -> pd.DataFrame:
        """The rows in reading order, with ``floor_ms``: the least possible time on this machine."""
        frame = in_reading_order(frame)
        limits = self.once(("limits",), self._limits)
        if not limits:
            return frame.assign(floor_ms=0.0)
        rows = frame[[name for name in frame if name in plausible.NEEDED]].to_dict("records")
        return frame.assign(floor_ms=[plausible.floor_ms(limits, row) for row in rows])

    def _limits(self) -> dict[str, plausible.Limits]:
        rows = self.frames.get("ceilings") if "ceilings" not in self.damaged else None
        known = [] if rows is None else rows.to_dict("records")
        return plausible.limits_of(known, self.facts.get("environments") or {})

    @property
    def unmeasured(self) -> list[str]:
        """The stems of the configured benchmarks that have no row of any kind."""
        known = {*self.present(), *self.stale, *self.damaged, repeatability.STEM}
        return [stem for stem in self.missing if stem not in known]

    def environment_names(self) -> set[str]:
        """Names of the environments that measured the rows of all undamaged benchmarks."""
        shown = [rows for stem, rows in self.frames.items() if stem not in self.damaged]
        named = [rows["environment"].dropna() for rows in shown if "environment" in rows]
        return {name for names in named for name in names.unique()}

    def stale_keys(self) -> frozenset[str]:
        """The keys of all stale rows."""
        return self.once(("stale keys",), self._stale_keys)

    def _stale_keys(self) -> frozenset[str]:
        frames = [frame for frame in self.present().values() if "stale" in frame]
        return frozenset(key for frame in frames for key in frame["key"][frame["stale"]].dropna())

    @property
    def row_count(self) -> int:
        """The number of rows of all benchmarks."""
        return sum(map(len, self.frames.values()))

    def present(self) -> dict[str, pd.DataFrame]:
        """Stem -> rows (see ``frame``), for every benchmark that has undamaged rows."""
        return dict(self.once(("present",), self._present))

    def _present(self) -> dict[str, pd.DataFrame]:
        found = {stem: self.frame(stem) for stem in self.frames}
        return {stem: frame for stem, frame in found.items() if frame is not None}


def _taken(frame: pd.DataFrame) -> pd.DataFrame:
    """The rows with text neutralised by ``foreign.taken_frame`` and sizes as short names."""
    frame = foreign.taken_frame(frame)
    return frame.assign(size=frame["size"].map(size_words)) if "size" in frame else frame


def typed_rows(
    rows: Sequence[Mapping[str, str]], kinds: Mapping[str, type], source: str
) -> pd.DataFrame:
    """Rows of text as a data frame whose columns have their declared types; empty text is NaN.

    An undeclared column is numeric if all its values are numbers, else text.

    Args:
        rows: column -> text.
        kinds: column -> str, bool or a type of number.
        source: the file or benchmark that the rows are from, for the error message.

    Raises:
        ValueError: a text in a column of numbers or truth values cannot be parsed.
    """
    raw = pd.DataFrame(rows, dtype=object)
    raw = raw.mask(raw == "")
    columns = {name: _typed(source, raw[name], kinds.get(name)) for name in raw.columns}
    return pd.DataFrame(columns, columns=raw.columns)


def _typed(source: str, column: pd.Series, kind: type | None) -> pd.Series:
    if kind is str:
        return column.astype(object)
    if kind is bool:
        return _truths(source, column)
    numbers = pd.to_numeric(column, errors="coerce")
    others = column[numbers.isna() & column.notna()]
    if (others.str.lower() == "nan").all():
        return numbers
    if kind is not None:
        raise ValueError(f"{source}: column {column.name!r} has a value that is not a number")
    return column


def _truths(source: str, column: pd.Series) -> pd.Series:
    values = column.str.lower().map(TRUTHS)
    if (values.isna() & column.notna()).any():
        raise ValueError(
            f"{source}: column {column.name!r} has a value that is neither True nor False"
        )
    return values.astype(bool) if values.notna().all() else values.astype(object)


def completed(frame: pd.DataFrame, stem: str) -> pd.DataFrame:
    """The rows with every column that the benchmark declares, and without marks of the past.

    If no case of a benchmark could run, its rows lack the columns of measured values: they are
    added empty.
    """
    if "marks" in frame:
        frame = frame.assign(marks=frame["marks"].map(_present_marks, na_action="ignore"))
    declared = load(stem).columns if stem in stems() else ()
    lacking = [c for c in (*COMMON_COLUMNS, *declared) if c.name not in frame.columns]
    empty = pd.Series(None, range(len(frame)), object)
    added = {c.name: empty if c.kind in (str, bool) else np.nan for c in lacking}
    texts = dict.fromkeys(frame.select_dtypes("str"), object)
    # The copy consolidates columns of one dtype, which makes every later row selection faster.
    return frame.reset_index(drop=True).astype(texts).assign(**added).copy()


def _present_marks(marks: str) -> str | None:
    kept = [mark for mark in str(marks).split(";") if mark != FORMER_MARK]
    return ";".join(kept) or None


def axes(frame: pd.DataFrame) -> list[str]:
    """The axes of a benchmark: the columns before ``implementation``."""
    columns = list(frame.columns)
    return columns[: columns.index("implementation")]


def in_reading_order(frame: pd.DataFrame, first: Sequence[str] = ()) -> pd.DataFrame:
    """Rows sorted by ``first``, axes, implementation, phase; values in order of `names.ORDERS`.

    Shapes are sorted by their numbers of elements: 512 before 4x16x16.
    """
    keys = list(dict.fromkeys([*first, *axes(frame), "implementation", "phase"]))
    ranks = [_ranks(frame[name]) for name in reversed(keys)]
    return frame.iloc[np.lexsort(ranks)]


def _ranks(column: pd.Series) -> np.ndarray:
    codes, values = pd.factorize(column)
    ordered = in_order(str(column.name), values)
    if column.name == "shape":
        ordered = sorted(ordered, key=_elements)
    places = {value: place for place, value in enumerate(ordered)}
    return np.array([*map(places.get, values), -1])[
        codes
    ]  # factorize gives empty values the code -1


def _elements(shape) -> tuple[float, str]:
    lengths = str(shape).split("x")
    known = all(map(str.isdecimal, lengths))
    return math.prod(map(int, lengths)) if known else math.inf, str(shape)


def having(frame: pd.DataFrame, **columns) -> pd.DataFrame:
    """The rows that have these values in these columns; a list, tuple or set means any of them."""
    wanted = np.ones(len(frame), dtype=bool)
    for name, value in columns.items():
        several = isinstance(value, list | tuple | set)
        has = frame[name].isin(list(value)) if several else frame[name] == value
        wanted &= has.to_numpy(dtype=bool)
    return frame[wanted]


def groups(frame: pd.DataFrame, *names: str) -> Iterator[tuple]:
    """Yield ``(value, ..., rows)`` for each combination of values with rows, in reading order."""
    for values in itertools.product(*(in_order(name, frame[name]) for name in names)):
        rows = having(frame, **dict(zip(names, values, strict=True)))
        if len(rows):
            yield *values, rows


def row_names(frame: pd.DataFrame) -> list[str]:
    """A one-line name for each row: ``seq_len=128, dtype=float32, eager, forward``."""
    names = axes(frame)
    cells = (
        ", ".join(f"{n}={_plain(v)}" for n, v in zip(names, row, strict=True) if not _absent(v))
        for row in frame[names].itertuples(index=False)
    )
    rest = zip(cells, frame["implementation"], frame["phase"], strict=True)
    return [", ".join(part for part in parts if part) for parts in rest]


def _absent(value) -> bool:
    return value is None or value != value


def _plain(value) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)
