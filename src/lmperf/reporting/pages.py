"""The files of a report: write-up and pages of each machine, and the overview of all machines."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from pathlib import Path

from lmperf.names import size_in_full
from lmperf.reporting import (
    coverage,
    glossary,
    machine,
    other_machines,
    repeatability,
    reproduce,
    trust,
)
from lmperf.reporting.compared_machines import compared
from lmperf.reporting.evidence import MachineEvidence
from lmperf.reporting.findings import SECTION, SHORT, TRUST
from lmperf.reporting.foreign import in_markdown
from lmperf.reporting.health import (
    health_of,
    limits_of,
    mostly_unresolved,
    notices_of,
    unmeasured,
    unresolved,
    unsupported_reasons,
)
from lmperf.reporting.index_of_tables import index_of
from lmperf.reporting.markdown import markdown
from lmperf.reporting.other_machines import machines_lines, side_by_side_steps
from lmperf.reporting.sections import Composed, compose, stems
from lmperf.reporting.tables import TableGroup, with_status_notes
from lmperf.reporting.templates import load_templates
from lmperf.results import Column, Table

WRITE_UP = "report.md"
FIGURES = "figures"
# A longer note of the author is on the page of its section only.
SHORT_NOTE_WORDS = 60
# Makes Markdown from a table, as `markdown` does.
Form = Callable[..., str]


def composed(evidence: MachineEvidence, templates: Path, drawn: bool = True) -> list[Composed]:
    """All sections of the report for this evidence.

    drawn: whether the sections draw their figures.
    """
    return [compose(stem, evidence, drawn) for stem in stems(templates)]


def machine_files(
    evidence: MachineEvidence, sections: Sequence[Composed], templates: Path
) -> dict[str, str]:
    """File name -> text of all files in ``report/<machine>``."""
    files = {WRITE_UP: write_up(evidence, sections, templates)}
    for section in sections:
        if has_page(evidence, section):
            files[section.page] = page(evidence, section, templates)
        for theme, svg in section.figures.items():
            files[figure_name(section.stem, theme)] = svg
    return files


def has_page(evidence: MachineEvidence, section: Composed) -> bool:
    """Whether a section has more to show than that nothing of it was measured."""
    notices = notices_of(evidence, section.benchmarks)
    is_left_out = {*section.benchmarks} <= {*evidence.unmeasured}
    return section.measured or (any(notices.values()) and not is_left_out)


def overview_files(
    evidences: Sequence[MachineEvidence],
    here: str,
    sections: Sequence[Composed],
    templates: Path,
    reason: str | None = None,
) -> dict[str, str]:
    """File name -> text of the files in ``report``: write-up of this machine, page of all machines.

    Args:
        evidences: every machine that has rows to show.
        here: slug of this machine.
        sections: the sections of this machine; empty if the machine has no evidence.
        reason: why this machine was not measured, in words; None if unknown or measured.
    """
    this = next((evidence for evidence in evidences if evidence.machine == here), None)
    if this is not None:
        text = write_up(this, sections, templates, f"{this.link}/", evidences)
    else:
        template = load_templates(templates).get_template("unmeasured.md.j2")
        lines = _markdown(machines_lines(evidences))
        text = template.render(here=here, reason=reason, machines=lines)
    files = {WRITE_UP: tidy(text)}
    if len(evidences) > 1:
        values, made = compared(evidences, markdown), load_templates(templates)
        files[other_machines.PAGE] = tidy(made.get_template("machines.md.j2").render(values))
        # A page of its own for each pair: forges do not show pages of several hundred kB.
        for pair in values["pairs"]:
            if pair["tables"]:
                files[pair["page"]] = tidy(made.get_template("machine_pair.md.j2").render(pair))
    return files


def write_up(
    evidence: MachineEvidence,
    sections: Sequence[Composed],
    templates: Path,
    root: str = "",
    others: Sequence[MachineEvidence] = (),
    form: Form = markdown,
) -> str:
    """The Markdown of a machine's write-up (`report.md`).

    Args:
        root: prefix of the links in the write-up: empty, or the folder of the machine.
        others: all machines with evidence, for the section that compares machines.
        form: makes Markdown from a table.
    """
    states = other_machines.indexed(coverage.states(evidence, sections), others)
    several = [other for other in others if other.machine != evidence.machine]
    shown = [section for section in sections if section.section.in_write_up and section.measured]
    first = [table for section in sections for table in section.first]
    first, heads = _split(_finished([*first, *(section.head for section in shown)]), len(first))
    health = health_of(evidence)
    values = {
        **_about(evidence, root),
        "trust": trust.sentences(
            health,
            [*_said(sections, TRUST), *repeatability.further(evidence)],
            unresolved(sections),
            mostly_unresolved(sections),
        ),
        "at_work": evidence.at_work,
        "allowed": evidence.allowed,
        "despite": evidence.despite,
        "first": [form(table, fold=None) for table in first],
        "short": [
            {"sentence": s.sentence, "title": section.title, "page": root + section.page}
            for section in sections
            for s in section.statements
            if s.place == SHORT
        ],
        "sections": [
            _in_write_up(evidence, section, head, templates, root, form)
            for section, head in zip(shown, heads, strict=True)
        ],
        "method": machine.method(evidence),
        "limits": limits_of(evidence),
        "unsupported": unsupported_reasons(evidence),
        "unmeasured": unmeasured(evidence),
        "index": index_of(states, root),
        "further": [
            {"title": section.title, "page": root + section.page}
            for section in sections
            if section.measured and not section.section.in_write_up
        ],
        "others": _markdown(machines_lines(several), form) if several else "",
        "steps": _markdown(side_by_side_steps(others), form) if several else "",
    }
    template = load_templates(templates).get_template("report.md.j2")
    titles_only = {
        "index": [],
        "limits": [],
        "unsupported": [],
        "unmeasured": unmeasured(MachineEvidence("")),
    }
    used = glossary.terms(template.render(**{**values, **titles_only}, glossary={}))
    return tidy(template.render(**values, glossary=used))


def _said(sections: Sequence[Composed], place: str) -> list[str]:
    return [s.sentence for section in sections for s in section.statements if s.place == place]


def page(
    evidence: MachineEvidence, section: Composed, templates: Path, form: Form = markdown
) -> str:
    """The Markdown of a section's page: findings, figure and every table.

    form: makes Markdown from a table.
    """
    shown = iter(_finished(part for lines in section.parts.values() for part in lines))
    parts = {name: [next(shown) for _ in lines] for name, lines in section.parts.items()}
    tables = [
        {
            "name": group.name,
            "heading": group.heading,
            "text": _with_commands(evidence, section.stem, group, parts[group.name], form),
        }
        for group in section.section.tables
        if parts[group.name]
    ]
    text = (
        load_templates(templates)
        .get_template(f"sections/{section.stem}.md.j2")
        .render(
            **_about(evidence, ""),
            title=section.title,
            findings=[s.sentence for s in section.statements],
            notes=section.notes,
            figure=_figure(section, ""),
            table={table["name"]: table["text"] for table in tables},
            tables=tables,
            reasons=section.reasons,
            notices=notices_of(evidence, section.benchmarks),
            measured=section.measured,
            method=machine.method(evidence),
        )
    )
    return tidy(text)


def _with_commands(
    evidence: MachineEvidence, stem: str, group: TableGroup, tables: Sequence[Table], form: Form
) -> str:
    """The tables of a group as Markdown, with commands that measure one of their cells again."""
    lines = reproduce.lines(evidence, stem, group, tables)
    both = (text for pair in zip(map(form, tables), lines, strict=True) for text in pair)
    return "\n\n".join(filter(None, both))


def figure_name(stem: str, theme: str) -> str:
    """The path of a section's figure below the folder of its machine."""
    return f"{FIGURES}/{stem}-{theme}.svg"


def tidy(text: str) -> str:
    """The finished Markdown: untrusted text escaped, no two empty lines in a row."""
    text = "\n".join(line.rstrip() for line in text.splitlines())
    return in_markdown(re.sub(r"\n{3,}", "\n\n", text).strip() + "\n")


def question(stem: str, templates: Path) -> str:
    """The question that a section answers: the block ``question`` of the section's template."""
    template = load_templates(templates).get_template(f"sections/{stem}.md.j2")
    block = template.blocks.get("question")
    return "".join(block(template.new_context())).strip() if block else ""


def _in_write_up(
    evidence: MachineEvidence,
    section: Composed,
    head: Table | None,
    templates: Path,
    root: str,
    form: Form,
) -> dict:
    return {
        "health": health_of(evidence, section.benchmarks, [section]),
        "title": section.title,
        "question": question(section.stem, templates),
        "page": root + section.page,
        "findings": [s.sentence for s in section.statements if s.place == SECTION],
        "head": _markdown(head, form, fold=None),
        "notes": [note for note in section.notes if len(note.split()) <= SHORT_NOTE_WORDS],
        "figure": _figure(section, root),
    }


def _split(tables: Sequence[Table | None], at: int) -> tuple[list, list]:
    return list(tables[:at]), list(tables[at:])


def _finished(tables: Iterable[Table | None]) -> list[Table | None]:
    """The tables with notes on statuses; the first one with sizes gives them as "small (0.13B)"."""
    found = [table and with_status_notes(table) for table in tables]
    for number, table in enumerate(found):
        if table is not None and any(column.name == "size" for column in table.columns):
            found[number] = replace(table, columns=tuple(map(_in_full, table.columns)))
            break
    return found


def _in_full(column: Column) -> Column:
    if column.name != "size":
        return column
    cells = (replace(cell, words=size_in_full(cell.words)) for cell in column.cells)
    return replace(column, cells=tuple(cells))


def _figure(section: Composed, root: str) -> dict | None:
    if not section.figures:
        return None
    names = {theme: root + figure_name(section.stem, theme) for theme in section.figures}
    return {"title": section.title, **names}


def _about(evidence: MachineEvidence, root: str) -> dict:
    return {
        "device": machine.device_words(evidence),
        "facts": machine.newest(evidence),
        "machine_line": machine.facts_line(evidence),
        "root": root,
    }


def _markdown(table: Table | None, form: Form = markdown, **options) -> str:
    return form(table, **options) if table is not None else ""
