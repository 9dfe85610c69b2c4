"""`lmperf show`: print sentences and tables of the evidence, for a terminal or a paper."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from lmperf.benchmarks import load, stems
from lmperf.commands.options import (
    force_option,
    of_project,
    print_tables,
    say,
    say_replaced,
    stem_argument,
)
from lmperf.config.machine_names import slug
from lmperf.errors import UserError, meant
from lmperf.evidence.project import Project

if TYPE_CHECKING:  # pandas is slow to import
    from lmperf.reporting.cells import Table
    from lmperf.reporting.evidence import Evidence
    from lmperf.reporting.render import Page

# Format -> suffix of the files that --output writes.
SUFFIXES = {
    **{"text": ".txt", "markdown": ".md", "csv": ".csv"},
    **{"json": ".json", "html": ".html", "latex": ".tex", "typst": ".typ"},
}


@click.command(short_help="Print sentences and tables of the evidence.")
@stem_argument(type=None, required=False)  # a page without a benchmark is valid, too
@click.option("--table", "wanted", metavar="NAME", help="Only this table: F2, or its title.")
@click.option("--number", metavar="WORDS", help="The rows that a printed number is of, as 35.0.")
@click.option("--machine", type=slug, metavar="MACHINE", help="Another machine in report/.")
@click.option("--format", type=click.Choice(list(SUFFIXES)), default="text", show_default=True)
@click.option(
    "--output",
    type=click.Path(file_okay=False, path_type=Path),
    metavar="DIR",
    help="Write every table to a file of its own in DIR: F2-1.csv, F2-2.csv, ...",
)
@force_option
@of_project
def show(
    project: Project,
    stem: str | None,
    wanted: str | None,
    number: str | None,
    machine: str | None,
    format: str,
    output: Path | None,
    force: bool,
):
    """Print the tables of the write-up; with STEM, the sentences and all tables of its page.

    Several tables are printed one after the other with an empty line between them. As CSV each has
    a header line of its own, so that a program reads them more easily from the files of --output.

    CSV and JSON hold unrounded numbers under stable column names. For a cell without a number the
    column NAME.state says why.

    \b
    Examples:
      lmperf show flash_attention --table F2 --format latex > table.tex
      lmperf show --format csv --output tables
      lmperf show --number '35.0 ms'
    """
    from lmperf.reporting.files import write_files
    from lmperf.reporting.formats import FORMATS
    from lmperf.reporting.pages import REPORT, page_names
    from lmperf.reporting.render import Page
    from lmperf.reporting.report import evidence_of

    whose, own = machine or project.machine.slug, project.own_templates
    evidence = evidence_of(project, whose)
    pages_there = [REPORT, *page_names(own, evidence)]
    name = load(stem).section or stem if stem in stems() else stem
    if name is not None and name not in pages_there:
        if stem in stems():
            raise UserError(f"{whose} has no evidence of {stem}; run: lmperf measure {stem}")
        raise UserError(f"unknown page {stem}; {meant(stem, pages_there)}")
    if number is not None:
        if wanted is not None or output is not None or format != "text":
            raise UserError("--number prints rows: leave --table, --format and --output out")
        print("\n".join(_behind(project, evidence, name, number)))
        return
    names = [name] if name else pages_there if wanted or output else [REPORT]
    pages = [Page(page_name, evidence, own=own) for page_name in names]
    for page in pages:
        page.render(pages={})
    tables = (
        _named(pages, wanted)
        if wanted is not None
        else [table for page in pages for table in page.tables]
    )
    if output is not None:
        texts = {name: f"{FORMATS[format](table)}\n" for name, table in _files(tables)}
        files = {output / f"{name}{SUFFIXES[format]}": text for name, text in texts.items()}
        say_replaced(write_files(files, "choose another folder, or add --force", force))
        say(f"wrote {len(files):,} tables to {output}")
        return
    if format == "text" and wanted is None:
        for page in filter(lambda page: page.said, pages):
            print("\n".join(f"- {sentence}" for sentence in page.said), end="\n\n")
    printing = print_tables if format == "text" else print
    printing("\n\n".join(map(FORMATS[format], tables)))


def _behind(project: Project, evidence: Evidence, page: str | None, number: str) -> Iterator[str]:
    """A line for each place that prints a number so, and for each row that it is of.

    Raises:
        UserError: no page, or not the one that is asked for, prints such a number.
    """
    from lmperf.evidence.rows import row_name
    from lmperf.reporting.files import NUMBERS
    from lmperf.reporting.revisions import numbers_of
    from lmperf.reporting.untrusted import plain
    from lmperf.reporting.words import absent, sig

    entries = [
        entry
        for entry in numbers_of(evidence.folder, project.report_directory)
        if number in entry.spellings and page in (None, entry.page)
    ]
    if not entries:
        there = project.report_directory / evidence.folder / NUMBERS
        raise UserError(f"--number: no page prints {number}; all numbers are in {there}")
    names = {}
    for stem in evidence.stems:
        for row in evidence.rows(stem).to_dict("records"):
            ms = "" if absent(row["ms"]) else f", {sig(row['ms'])} ms"
            names[row["key"]] = f"{stem}: {row_name(load(stem), row)}{ms}"
    for entry in entries:
        yield f"{entry.page}: {entry.value} {entry.unit}".rstrip() + f": {entry.where}"
        yield from (f"  {key}  {plain(names.get(key, 'not here'))}" for key in entry.rows.split())


def _named(pages: Sequence[Page], wanted: str) -> list[Table]:
    """The tables numbered or titled ``wanted``.

    Raises:
        UserError: no page has such a table.
    """
    tables = [table for page in pages for table in page.tables]
    if named := [table for table in tables if wanted in (table.id, table.title, table.caption)]:
        return named
    there = dict.fromkeys(table.id or table.title or table.caption for table in tables)
    raise UserError(f"--table: unknown table {wanted}; {meant(wanted, there)}")


def _files(tables: Sequence[Table]) -> list[tuple[str, Table]]:
    """(File name without suffix, table): ``F2-1``, or the title and a number."""
    counts: dict[str, int] = {}
    files = []
    for table in tables:
        words = re.findall("[a-z0-9]+", (table.title or table.caption).lower())
        name = table.id or "-".join(words)[:40].strip("-") or "table"
        counts[name] = counts.get(name, 0) + 1
        files.append((f"{name}-{counts[name]}", table))
    return files
