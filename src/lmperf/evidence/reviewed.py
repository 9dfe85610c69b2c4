"""What a review of a machine's evidence has found: rows, faults, and why `verify` fails."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from lmperf.benchmark import Benchmark
from lmperf.benchmarks import load
from lmperf.evidence import at_work, consistent, plausible
from lmperf.evidence.at_work import AtWork
from lmperf.evidence.facts import Facts
from lmperf.evidence.plan import row_name
from lmperf.evidence.store import Row

# Kinds of faults that make `verify` fail, in the order in which `verify` lists them. Running out of
# memory is a valid result, so "out of memory" is absent.
OF_ROWS = ("red gate", "failed", plausible.KIND, consistent.KIND, "missing", "stale")


@dataclass(frozen=True)
class Cause:
    """The names of the rows of one benchmark that fail `verify` for the same reason.

    Attributes:
        summary: what to print of the rows together; empty: their number and the first name.
    """

    machine: str
    stem: str
    kind: str
    names: tuple[str, ...]
    summary: str = ""

    def __str__(self) -> str:
        words = f"{self.machine}/{self.stem}: {self.kind}: "
        if self.summary:
            return words + self.summary
        if len(self.names) == 1:
            return words + self.names[0]
        return f"{words}{len(self.names)} rows, the first {self.names[0]}"

    @property
    def lines(self) -> list[str]:
        """One line of text for each row, as `verify --verbose` prints them."""
        return [f"{self.machine}/{self.stem}: {self.kind}: {name}" for name in self.names]


@dataclass
class Review:
    """The evidence of one machine and what is wrong with it.

    Attributes:
        lost: `machine` or `cost` (files of no benchmark) -> how that file is damaged.
        damaged: stem of a benchmark -> how its evidence is damaged.
        rows: stem -> the rows that the report shows, stale rows included.
        lacking: stem -> axis values, implementation and phase of each missing row.
        unknown: files of evidence whose name is that of no benchmark.
        faults: kind of fault -> stem -> names of the rows with that fault.
        at_work: the rows that were measured while the machine was at work.
        cost: one row per measuring job with its seconds by kind of work.
        repeats: stem -> the rows of a benchmark that were measured a second time.
    """

    machine: str
    facts: Facts
    lost: dict[str, str] = field(default_factory=dict)
    damaged: dict[str, str] = field(default_factory=dict)
    rows: dict[str, list[Row]] = field(default_factory=dict)
    lacking: dict[str, list[dict]] = field(default_factory=dict)
    unknown: list[str] = field(default_factory=list)
    faults: dict[str, dict[str, list[str]]] = field(default_factory=lambda: defaultdict(dict))
    at_work: AtWork = field(default_factory=AtWork)
    cost: list[Row] = field(default_factory=list)
    repeats: dict[str, list[Row]] = field(default_factory=dict)

    @property
    def stale(self) -> dict[str, list[str]]:
        """Stem -> names of the rows whose key differs from the key that they would get today."""
        return self.faults["stale"]

    @property
    def missing(self) -> dict[str, list[str]]:
        """Stem -> names of the missing rows."""
        return self.faults["missing"]

    def add(self, kind: str, benchmark: Benchmark, rows: Iterable[Mapping[str, object]]) -> None:
        """Record the names of rows with a fault; rows of one case and phase share one name."""
        self.add_names(kind, benchmark.stem, (row_name(benchmark, row) for row in rows))

    def add_names(self, kind: str, stem: str, names: Iterable[str]) -> None:
        """Record names of rows with a fault, each name once."""
        if distinct := list(dict.fromkeys(names)):
            self.faults[kind][stem] = distinct

    def causes(self) -> Iterator[Cause]:
        """Yield the causes for which `verify` fails on this machine's evidence."""
        for stem, reason in (self.lost | self.damaged).items():
            yield Cause(self.machine, stem, "damaged", (reason,))
        for path in self.unknown:
            words = f"{path} is of no benchmark; lmperf prune {self.machine} removes it"
            yield Cause(self.machine, Path(path).stem, "unknown", (words,))
        yield from self.of_rows()
        for stem in self.at_work.too_many if not self.at_work.is_fit else ():
            benchmark, rows = load(stem), self.at_work.rows[stem]
            names = tuple(row_name(benchmark, row) for row in rows)
            yield Cause(
                self.machine, stem, at_work.KIND, names, summary=self.at_work.words_of(stem)
            )

    def of_rows(self) -> Iterator[Cause]:
        """Yield the causes that lie in single rows, except the load of the machine."""
        for kind in OF_ROWS:
            yield from self.of_kind(kind)

    def of_kind(self, kind: str) -> Iterator[Cause]:
        """Yield one cause per benchmark that has rows with this kind of fault."""
        for stem, names in self.faults[kind].items():
            yield Cause(self.machine, stem, kind, tuple(names))
