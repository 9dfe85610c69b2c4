"""`lmperf show`: print findings and tables of the evidence, for a terminal or a paper."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from lmperf.commands.options import MACHINE, of_project, say, stem_argument
from lmperf.errors import UserError
from lmperf.evidence.project import Project

if TYPE_CHECKING:  # pandas and matplotlib are slow to import
    from lmperf.reporting.sections import Composed
    from lmperf.results import Table

FORMATS = ("text", "markdown", "csv", "json", "html", "latex")


@click.command(short_help="Print findings and tables of the evidence.")
@stem_argument(type=None, required=False)  # a section without a benchmark is valid, too
@click.option("--table", "wanted", metavar="NAME", help="Only this table: F2, or its title.")
@click.option("--machine", type=MACHINE, help="Another machine that has evidence in report/.")
@click.option("--format", type=click.Choice(FORMATS), default="text", show_default=True)
@of_project
def show(project: Project, stem: str | None, wanted: str | None, machine: str | None, format: str):
    """Print the findings and the first table of every section; with STEM, all its tables.

    \b
    Example:
      lmperf show flash_attention --table F2 --format latex > table.tex
    """
    from lmperf.evidence.review import review, tally
    from lmperf.reporting.formats import FORMATS as forms
    from lmperf.reporting.formats import sentence
    from lmperf.reporting.render import TEMPLATES, machine_evidence
    from lmperf.reporting.sections import compose, section_of, stems

    known = stems(project.root / TEMPLATES)
    if stem is not None and section_of(stem) not in known:
        raise UserError(f"unknown section {stem}; choose one of: {', '.join(known)}")
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
    if wanted is not None:
        parts = _parts(sections, wanted)
        print("\n\n".join(map(forms[format], parts)))
        return
    for section in sections:
        tables = [part for parts in section.parts.values() for part in parts]
        tables = tables if stem else [section.head] if section.head else []
        findings = [f"- {sentence(statement.sentence)}" for statement in section.statements]
        words = ["\n".join([section.title, *findings])] if format == "text" else []
        print("\n\n".join([*words, *map(forms[format], tables)]), end="\n\n")


def _parts(sections: Sequence[Composed], wanted: str) -> Sequence[Table]:
    """The parts of a table."""
    if parts := [part for section in sections for part in section.parts.get(wanted, ())]:
        return parts
    there = dict.fromkeys(name for one in sections for name, parts in one.parts.items() if parts)
    raise UserError(f"--table: unknown table {wanted}; choose one of: {', '.join(there)}")
