"""Render reviewed evidence to the files of a report: the work of ``lmperf report``."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pandas as pd

from lmperf.benchmarks import load, stems
from lmperf.evidence import cost, despite
from lmperf.evidence.plan import row_name
from lmperf.evidence.project import Project
from lmperf.evidence.review import review
from lmperf.evidence.reviewed import Review
from lmperf.evidence.store import Row
from lmperf.reporting import coverage, marks, notes, pages, selftest, written
from lmperf.reporting.evidence import MachineEvidence, typed_rows
from lmperf.reporting.files import replace_files
from lmperf.reporting.sections import Composed


def machine_evidence(project: Project, reviewed: Review) -> MachineEvidence:
    """Convert the reviewed evidence of a machine to the form that reports read."""
    return MachineEvidence(
        machine=reviewed.machine,
        facts=reviewed.facts,
        frames={stem: _frame(reviewed, stem) for stem in reviewed.rows},
        stale=reviewed.stale,
        damaged=reviewed.damaged,
        lost=reviewed.lost,
        missing=reviewed.missing,
        lacking={stem: pd.DataFrame(rows) for stem, rows in reviewed.lacking.items()},
        repeats={stem: _repeats(stem, rows) for stem, rows in reviewed.repeats.items()},
        cost=typed_rows(reviewed.cost, {}, cost.STEM) if reviewed.cost else None,
        at_work=reviewed.at_work.with_causes,
        allowed=reviewed.at_work.allowed,
        despite=_despite(reviewed),
        left_out=_left_out(project, reviewed),
    )


def _despite(reviewed: Review) -> str:
    """What is wrong with rows that are published all the same, and why; empty if nothing is."""
    wrong = list(reviewed.of_rows())
    reason = despite.reason_for(reviewed.facts, wrong)
    return f"{despite.words(wrong)}; {reason}" if reason else ""


def _frame(reviewed: Review, stem: str) -> pd.DataFrame:
    """The rows of a benchmark, with a column ``stale`` if some of them are.

    Rows that contradict another cell, also when measured again, get the mark ``contradicts``.
    """
    benchmark, rows = load(stem), reviewed.rows[stem]
    if contradicting := reviewed.contradicting.get(stem):
        rows = [
            marks.with_mark(row, marks.CONTRADICTS)
            if row_name(benchmark, row) in contradicting
            else row
            for row in rows
        ]
    frame = typed_rows(rows, benchmark.kinds, stem)
    stale = set(reviewed.stale.get(stem, ()))
    is_stale = [row_name(benchmark, row) in stale for row in rows]
    return frame.assign(stale=is_stale) if any(is_stale) else frame


def _repeats(stem: str, rows: Sequence[Row]) -> pd.DataFrame:
    """Rows of a benchmark that were measured a second time, with the columns of its own rows."""
    kinds = load(stem).kinds  # the axes first
    return typed_rows([{name: row.get(name, "") for name in kinds} for row in rows], kinds, stem)


def _left_out(project: Project, reviewed: Review) -> dict[str, str]:
    """Benchmark -> why the configuration asks for only a part of it, or for none."""
    preset, config = reviewed.facts["preset"], project.config
    is_here = project.is_here(reviewed.machine)
    asked = config.stems(preset, reviewed.machine, is_here)
    narrowed = [stem for stem in stems() if is_here and config.grid_of(stem)]
    out = [stem for stem in stems() if stem not in asked and load(stem).grids.get(preset)]
    return {
        **dict.fromkeys(narrowed, "the configuration narrows its grid"),
        **dict.fromkeys(out, "the configuration leaves it out"),
    }


def render_machine(project: Project, machine: str) -> Path:
    """Write `report/<machine>/report.md`, its pages and figures; return the write-up's path."""
    directory = project.report_directory / machine
    files = _files_of_machine(project, machine)
    replace_files(directory, files, (f"{pages.FIGURES}/*.svg", "*.md"))
    return directory / pages.WRITE_UP


def render_overview(project: Project) -> Path:
    """Write `report/report.md`, the write-up of this machine; return its path."""
    replace_files(project.report_directory, _files_of_overview(project), ("*.md",))
    return project.report_directory / pages.WRITE_UP


def edited(project: Project, machine: str | None) -> list[str]:
    """Names of pages and figures that differ from a fresh rendering of a machine's evidence.

    Includes missing files and pages and figures that do not belong there. Nothing is rendered while
    the record of the last rendering holds (``written.is_current``).

    machine: the machine of the write-up; None is the overview.
    """
    if written.is_current(project, machine):
        return []
    files = _files_of_machine(project, machine) if machine else _files_of_overview(project)
    texts = {name: text.encode() for name, text in files.items()}
    folder = written.target(project, machine).parent
    paths = [*written.pages(project, machine), *written.figures(project, machine)]
    there = {str(path.relative_to(folder)): path for path in paths}
    known = {name: path.read_bytes() for name, path in there.items() if path.is_file()}
    return sorted(n for n in {*texts, *there} if known.get(n) is None or known[n] != texts.get(n))


def _files_of_machine(project: Project, machine: str) -> dict[str, str]:
    """File name -> text of all files of a machine."""
    evidence = machine_evidence(project, review(project, machine))
    templates = project.templates
    sections = sections_of(project, evidence)
    files = pages.machine_files(evidence, sections, templates)
    return files | selftest.files(project.report_directory / machine, templates)


def _files_of_overview(project: Project) -> dict[str, str]:
    """File name -> text of all files of the overview."""
    here, machines = project.machine.slug, evidences(project)
    this = next((evidence for evidence in machines if evidence.machine == here), None)
    sections = sections_of(project, this) if this else []
    reason = None
    if not project.can_measure:
        reason = "torch is not installed, so nothing can be measured"
    return pages.overview_files(machines, here, sections, project.templates, reason)


def evidences(project: Project) -> list[MachineEvidence]:
    """The evidence of every machine that has rows to show; first this one, then by rows."""
    here = project.machine.slug
    found = [
        machine_evidence(project, review(project, machine))
        for machine in project.machines_with_evidence()
    ]
    found = [evidence for evidence in found if evidence.present()]
    return sorted(found, key=lambda one: (one.machine != here, -one.row_count))


def sections_of(project: Project, evidence: MachineEvidence) -> list[Composed]:
    """The sections of a machine's report, with the author's notes that hold."""
    return _with_notes(project, evidence, pages.composed(evidence, project.templates))


def notes_left_out(project: Project, machines: Sequence[str], every: bool = False) -> list[str]:
    """The notes of the author that are left out, one line each with the file and the reason.

    every: also the notes for every machine whose rows a machine lacks.

    Raises:
        UserError: a note is wrong.
    """
    found = []
    for machine in machines:
        if not (written_notes := _notes_on(project, machine)):
            continue
        evidence = machine_evidence(project, review(project, machine))
        judged = [notes.judge(note, evidence) for note in written_notes]
        out = [note for note in judged if note.text is None and (every or not note.lacks_rows)]
        found += [f"{machine}: {note.message}" for note in out]
    return found


def _with_notes(
    project: Project, evidence: MachineEvidence, sections: Sequence[Composed]
) -> list[Composed]:
    found = _notes_on(project, evidence.machine)
    return notes.added(sections, [notes.judge(note, evidence) for note in found])


def _notes_on(project: Project, machine: str) -> list[notes.Note]:
    return notes.read_notes(project.templates, project.report_directory / machine, project.notes)


def silent_gaps(project: Project, machines: Sequence[str]) -> list[str]:
    """The tables that are missing without a reason, one line each with the machine."""
    gaps = []
    for machine in machines:
        evidence = machine_evidence(project, review(project, machine))
        sections = pages.composed(evidence, project.templates, drawn=False)
        found = coverage.gaps(coverage.states(evidence, sections))
        gaps += [f"{machine}: {gap}" for gap in found]
    return gaps
