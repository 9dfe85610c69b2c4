"""Render the report of a machine and the index over all machines."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Sequence
from pathlib import Path

from lmperf.reporting import coverage, machine
from lmperf.reporting.claims import CONTRADICTED, MISSING, TRUE, judge
from lmperf.reporting.comparison import CLAIMS as COMPARED
from lmperf.reporting.comparison import ceilings_table, cells_tables, machines_table
from lmperf.reporting.environment import environment
from lmperf.reporting.evidence import MachineEvidence
from lmperf.reporting.sections import Section, judgements, owner, section, stems

# How wide a figure is beside the sentences of the summary.
BESIDE = "45%"


def render_machine(evidence: MachineEvidence, directory: Path, templates: Path) -> None:
    """Write ``directory/report.md`` and ``directory/figures/*.svg`` from the evidence.

    The same evidence gives the same bytes. Everything is composed before the first file is
    replaced, and each file is replaced whole; figures that no section draws any more are removed.
    """
    found = [section(stem, evidence, templates) for stem in stems(templates)]
    template = environment(templates).get_template("report.md.j2")
    text = template.render(
        machine=evidence.machine,
        device=machine.device_words(evidence),
        measured=evidence.has_evidence(),
        facts=machine.facts_table(evidence),
        environments=len(machine.environments(evidence)),
        method=machine.method(evidence),
        summary=_summary(found),
        width=BESIDE,
        coverage=coverage.table(coverage.states(evidence, found)),
        sections=[part.text for part in found],
        without_section=_without_section(evidence, templates),
    )
    figures = {f"{part.stem}.svg": part.figure for part in found if part.figure}
    for name, svg in figures.items():
        _replace(directory / "figures" / name, svg)
    _replace(directory / "report.md", _tidy(text))
    for path in (directory / "figures").glob("*.svg"):
        if path.name not in figures:
            path.unlink()


def doubts(evidence: MachineEvidence, templates: Path) -> tuple[list[str], list[str]]:
    """The silent gaps among the tables, and the claims that the evidence contradicts."""
    found = [section(stem, evidence, templates, drawn=False) for stem in stems(templates)]
    judged = [judgement for part in found for judgement in part.judgements]
    contradicted = [j.sentence for j in judged if j.state == CONTRADICTED]
    return coverage.gaps(coverage.states(evidence, found)), contradicted


def render_index(
    evidences: list[MachineEvidence],
    here: str | None,
    directory: Path,
    templates: Path,
    reason: str | None = None,
) -> None:
    """Write ``directory/report.md``: the machine at hand and its comparison with all others.

    Args:
        evidences: every machine that has evidence.
        here: slug of the machine at hand; None, or one without evidence, is said in a sentence.
        directory: where the reports of the machines lie, each in a folder of its slug.
        templates: folder of the templates.
        reason: why the machine at hand was not measured, in words.
    """
    measured = [evidence for evidence in evidences if evidence.has_evidence()]
    measured.sort(key=lambda evidence: (evidence.machine != here, evidence.machine))
    at_hand = measured[0] if measured and measured[0].machine == here else None
    template = environment(templates).get_template("index.md.j2")
    text = template.render(
        here=here,
        reason=reason,
        at_hand=at_hand and at_hand.machine,
        device=machine.device_words(at_hand) if at_hand else "",
        summary=_findings(judgements(at_hand, templates)) if at_hand else {},
        machines=machines_table(measured),
        count=len(measured),
        ceilings=ceilings_table(measured),
        cells=cells_tables(measured),
        claims=[judge(claim, measured, environment(templates)) for claim in COMPARED],
    )
    _replace(directory / "report.md", _tidy(text))


def _summary(found: Sequence[Section]) -> dict:
    """The claims that matter most, by section with its figure, and the others that do not hold."""
    judged = [judgement for part in found for judgement in part.judgements]
    others = [judgement for judgement in judged if not judgement.summary]
    return {
        "parts": [_main(part) for part in found if any(j.summary for j in part.judgements)],
        "contradicted": [j.sentence for j in others if j.state == CONTRADICTED],
        "claims": len(judged),
        **{state: sum(j.state == state for j in judged) for state in (TRUE, MISSING)},
        "false": sum(j.state == CONTRADICTED for j in judged),
    }


def _main(part: Section) -> dict:
    return {
        "title": part.title,
        "figure": f"figures/{part.stem}.svg" if part.figure else None,
        "sentences": [j.sentence for j in part.judgements if j.summary],
    }


def _findings(judged: Iterable) -> dict:
    """The claims of the summary by state, and every contradicted one."""
    judged = list(judged)
    main = [judgement for judgement in judged if judgement.summary]
    return {
        "findings": [j.sentence for j in main if j.state == TRUE],
        "contradicted": [j.sentence for j in judged if j.state == CONTRADICTED],
        "missing": [j.sentence for j in main if j.state == MISSING],
    }


def _without_section(evidence: MachineEvidence, templates: Path) -> list[str]:
    known = stems(templates)
    everything = {*evidence.frames, *evidence.damaged, *evidence.missing}
    return sorted(stem for stem in everything if owner(stem, known) is None)


def _tidy(text: str) -> str:
    """At most one empty line in a row, and one newline at the end."""
    text = "\n".join(line.rstrip() for line in text.splitlines())
    return re.sub(r"\n{3,}", "\n\n", text).strip() + "\n"


def _replace(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        temporary.write_text(text, encoding="utf-8", newline="\n")
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)
