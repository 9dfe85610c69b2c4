"""`lmperf show`: print findings and tables of the evidence, for a terminal or a paper."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from lmperf.commands.options import MACHINE, Choice, of_project, say, stem_argument
from lmperf.errors import UserError, meant
from lmperf.evidence.project import Project

if TYPE_CHECKING:  # pandas and matplotlib are slow to import
    from lmperf.reporting.sections import Composed
    from lmperf.results import Table

# Format -> suffix of the files that --output writes.
SUFFIXES = {
    **{"text": ".txt", "markdown": ".md", "csv": ".csv"},
    **{"json": ".json", "html": ".html", "latex": ".tex"},
}


@click.command(short_help="Print findings and tables of the evidence.")
@stem_argument(type=None, required=False)  # a section without a benchmark is valid, too
@click.option("--table", "wanted", metavar="NAME", help="Only this table: F2, or its title.")
@click.option("--machine", type=MACHINE, help="Another machine that has evidence in report/.")
@click.option("--format", type=Choice(list(SUFFIXES)), default="text", show_default=True)
@click.option(
    "--output",
    type=click.Path(file_okay=False, path_type=Path),
    metavar="DIR",
    help="Write every table to a file of its own in DIR: F2-1.csv, F2-2.csv, ...",
)
@of_project
def show(
    project: Project,
    stem: str | None,
    wanted: str | None,
    machine: str | None,
    format: str,
    output: Path | None,
):
    """Print the findings and the first table of every section; with STEM, all its tables.

    Several tables are printed one after the other with an empty line between them. As CSV each has
    a header line of its own, so that a program reads them more easily from the files of --output.

    CSV and JSON hold unrounded numbers under stable column names. For a cell without a number the
    column NAME.state says why: a status of the row, not_configured, not_measured, ...

    \b
    Examples:
      lmperf show flash_attention --table F2 --format latex > table.tex
      lmperf show --format csv --output tables
    """
    from lmperf.evidence.review import review, tally
    from lmperf.reporting.absence import with_reasons
    from lmperf.reporting.formats import FORMATS, sentence
    from lmperf.reporting.render import machine_evidence
    from lmperf.reporting.sections import compose, section_of, stems

    known = stems(project.templates)
    if stem is not None and section_of(stem) not in known:
        raise UserError(f"unknown section {stem}; {meant(stem, known)}")
    whose = machine or project.machine.slug
    reviewed = review(project, whose)
    evidence = machine_evidence(project, reviewed)
    chosen = [section_of(stem)] if stem else known
    sections = [compose(one, evidence, drawn=False) for one in chosen]
    sections = [section for section in sections if section.measured]
    if not sections:
        raise UserError(f"{whose} has no evidence of {stem}; run: lmperf measure {stem}")
    shown = {name for section in sections for name in section.benchmarks}
    for line in tally([cause for cause in reviewed.causes() if cause.stem in shown]):
        say(line)

    def formatted(table: Table) -> str:
        return FORMATS[format](with_reasons(table, evidence))

    if wanted is not None:
        parts = _parts(sections, wanted)
    if output is not None:
        tables = _by_file_name(sections, wanted)
        _write(output, {name + SUFFIXES[format]: formatted(one) for name, one in tables.items()})
        return
    if wanted is not None:
        print("\n\n".join(map(formatted, parts)))
        return
    for section in sections:
        tables = [part for parts in section.parts.values() for part in parts]
        tables = tables if stem else [section.head] if section.head else []
        findings = [f"- {sentence(statement.sentence)}" for statement in section.statements]
        words = ["\n".join([section.title, *findings])] if format == "text" else []
        print("\n\n".join([*words, *map(formatted, tables)]), end="\n\n")


def _by_file_name(sections: Sequence[Composed], wanted: str | None) -> dict[str, Table]:
    """File name without suffix -> table; the name is ``F2-1``, or section and title.

    wanted: write only the tables of this number or title; None writes all.
    """
    found = {}
    for section in sections:
        for group in section.section.tables:
            if wanted in (None, group.name):
                name = group.id or f"{section.stem}-{group.anchor}"
                for number, part in enumerate(section.parts[group.name], 1):
                    found[f"{name}-{number}"] = part
    return found


def _write(directory: Path, files: Mapping[str, str]) -> None:
    try:
        directory.mkdir(parents=True, exist_ok=True)
        for name, text in files.items():
            (directory / name).write_text(text + "\n")
    except OSError as error:
        why = (error.strerror or str(error)).lower()
        raise UserError(f"--output: {error.filename} cannot be written: {why}") from None
    say(f"wrote {len(files):,} tables to {directory}")


def _parts(sections: Sequence[Composed], wanted: str) -> Sequence[Table]:
    """The tables numbered or titled ``wanted``; raises UserError if no section has such a table."""
    if parts := [part for section in sections for part in section.parts.get(wanted, ())]:
        return parts
    there = dict.fromkeys(name for one in sections for name, parts in one.parts.items() if parts)
    raise UserError(f"--table: unknown table {wanted}; {meant(wanted, there)}")
