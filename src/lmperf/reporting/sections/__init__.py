"""The sections of the write-up: findings, tables and figure of each.

A section is a template ``templates/sections/<stem>.md.j2`` with its text, and optionally a module
of this package with the same stem that declares ``SECTION``. A section without a module shows the
measurements of its benchmark in one table. Title and order come from the benchmark.
"""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

from matplotlib.figure import Figure

from lmperf import benchmarks
from lmperf.reporting import custom
from lmperf.reporting.charts import Spec
from lmperf.reporting.evidence import MachineEvidence
from lmperf.reporting.figures import Pen, draw
from lmperf.reporting.findings import SHORT, Finding, statements
from lmperf.reporting.marks import of_stale_rows
from lmperf.reporting.sections.generic import measurements
from lmperf.reporting.tables import TableGroup, reasons
from lmperf.results import Statement, Table

TEMPLATES = "sections"


@dataclass(frozen=True)
class Section:
    """Declares the findings, tables and figure of a section.

    Attributes:
        findings: in reading order, the most important first.
        head: evidence -> the head table (the one table of the section in the write-up, at most 12
            lines); None without rows.
        tables: the tables of the section's page, in order.
        figure: evidence and pen -> the figure; None if there is nothing to draw.
        also: stems (names) of further benchmarks whose rows the section needs.
        title, order: heading and position, for a section without a benchmark of the same stem.
        in_write_up: whether the write-up shows the section; otherwise it has a page only.
        first: evidence -> tables that the write-up shows before everything else.
        charts: evidence -> specifications of the interactive figure (`lmperf.reporting.charts`).
    """

    findings: tuple[Finding, ...] = ()
    head: Callable[[MachineEvidence], Table | None] | None = None
    tables: tuple[TableGroup, ...] = ()
    figure: Callable[[MachineEvidence, Pen], Figure | None] | None = None
    also: tuple[str, ...] = ()
    title: str | None = None
    order: int = 1000
    in_write_up: bool = True
    first: Callable[[MachineEvidence], Sequence[Table]] | None = None
    charts: Callable[[MachineEvidence], Sequence[Spec]] | None = None


@dataclass(frozen=True)
class Composed:
    """A section with the evidence of one machine; tables and figure are made on first use.

    Attributes:
        benchmarks: stems of the benchmarks that the section shows.
        drawn: whether to draw the figure.
        notes: Markdown of the author's notes that hold (`lmperf.reporting.notes`).
    """

    stem: str
    section: Section
    evidence: MachineEvidence
    benchmarks: Sequence[str]
    drawn: bool
    notes: Sequence[str] = ()

    @property
    def page(self) -> str:
        return f"{self.stem}.md"

    @property
    def title(self) -> str:
        return title_of(self.stem)

    @cached_property
    def measured(self) -> bool:
        """Whether any benchmark that the section shows or needs has rows."""
        stems = (*self.benchmarks, *self.section.also)
        return any(self.evidence.frame(stem) is not None for stem in stems)

    @cached_property
    def statements(self) -> list[Statement]:
        return statements(self.section.findings, self.evidence)

    @cached_property
    def first(self) -> Sequence[Table]:
        made = self.section.first(self.evidence) if self.section.first and self.measured else ()
        return [of_stale_rows(table, self.evidence.stale_keys()) for table in made]

    @cached_property
    def head(self) -> Table | None:
        made = self.section.head(self.evidence) if self.section.head and self.measured else None
        return made and of_stale_rows(made, self.evidence.stale_keys())

    @cached_property
    def parts(self) -> Mapping[str, Sequence[Table]]:
        """Name of a table group (``E1``, or its title) -> the tables of the group."""
        return _Parts(self)

    @cached_property
    def figures(self) -> dict[str, str]:
        """Colour theme -> the figure as SVG; empty if there is nothing to draw."""
        make = self.section.figure
        if make is None or not (self.drawn and self.measured):
            return {}
        return draw(lambda pen: make(self.evidence, pen))

    @cached_property
    def charts(self) -> Sequence[Spec]:
        """The interactive figure; empty if there is nothing to draw."""
        make = self.section.charts
        return make(self.evidence) if make and self.drawn and self.measured else ()

    @property
    def reasons(self) -> str:
        """Why rows of the section's benchmarks are not ok, as text."""
        frames = [self.evidence.frame(stem) for stem in self.benchmarks]
        return "\n".join(text for f in frames if f is not None and (text := reasons(f)))


class _Parts(Mapping[str, Sequence[Table]]):
    """A mapping from the name of a table group to its tables, which are made on first use."""

    def __init__(self, composed: Composed):
        self._composed = composed
        self._tables = {table.name: table for table in composed.section.tables}
        self._made: dict[str, Sequence[Table]] = {}

    def __getitem__(self, name: str) -> Sequence[Table]:
        table, of = self._tables[name], self._composed
        if name not in self._made:
            self._made[name] = _made(table, of.evidence, of.stem) if of.measured else []
        return self._made[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._tables)

    def __len__(self) -> int:
        return len(self._tables)


def stems(templates: Path) -> list[str]:
    """The stems of the sections that have a template, in the order of the report."""
    found = [path.name.removesuffix(".md.j2") for path in (templates / TEMPLATES).glob("*.md.j2")]
    return sorted(found, key=lambda stem: (_order(stem), stem))


def declared(stem: str) -> Section:
    """The ``SECTION`` of a section's module, or the generic section without a module."""
    name = f"{__name__}.{stem}"
    if importlib.util.find_spec(name):
        return importlib.import_module(name).SECTION
    return Section(
        head=lambda evidence: measurements(evidence, stem, most=12),
        tables=(TableGroup("", "Measurements", lambda evidence: [measurements(evidence, stem)]),),
    )


def title_of(stem: str) -> str:
    """The heading of a section: the title of its benchmark, else its own title or stem."""
    if stem in benchmarks.stems():
        return benchmarks.load(stem).title
    return declared(stem).title or stem


def section_of(stem: str) -> str:
    """The stem of the section that shows a benchmark; the stem itself if it is a section."""
    return (benchmarks.load(stem).section or stem) if stem in benchmarks.stems() else stem


def benchmarks_of(stem: str) -> list[str]:
    """The stems of a section's benchmarks: its own first, then those that declare the section."""
    known = [name for name in benchmarks.stems() if section_of(name) == stem]
    return sorted(known, key=lambda name: (name != stem, name))


def compose(stem: str, evidence: MachineEvidence, drawn: bool = True) -> Composed:
    """The section with this evidence; ``drawn``: whether to draw its figure."""
    benchmarks = benchmarks_of(stem)
    section = _with_custom(declared(stem), evidence, benchmarks)
    return Composed(stem, section, evidence, benchmarks, drawn)


def _with_custom(section: Section, evidence: MachineEvidence, stems: Sequence[str]) -> Section:
    """The section with findings and tables on custom implementations and peers added.

    Findings on custom implementations precede the section's own findings, those on peers follow.
    """
    known = [(stem, name) for stem in stems for name in custom.names(evidence, stem)]
    if not known:
        return section
    findings = [custom.finding(*one) for one in known]
    return replace(
        section,
        findings=(
            *(one for one in findings if one.place == SHORT),
            *section.findings,
            *(one for one in findings if one.place != SHORT),
        ),
        tables=(
            *section.tables,
            *(custom.table(stem) for stem in dict.fromkeys(s for s, _ in known)),
        ),
    )


def _order(stem: str) -> int:
    return benchmarks.load(stem).order if stem in benchmarks.stems() else declared(stem).order


def _made(group: TableGroup, evidence: MachineEvidence, stem: str) -> list[Table]:
    """The tables of a group; none if the group is numbered and its benchmark has no rows."""
    stem = group.owed.stem or stem
    if group.id and stem in benchmarks.stems() and evidence.frame(stem) is None:
        return []
    made = [part for part in group.make(evidence) if part is not None]
    return [of_stale_rows(replace(part, id=group.id), evidence.stale_keys()) for part in made]
