"""From reviewed evidence to files: what ``lmperf report`` does."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pandas as pd

from lmperf.benchmark import load, stems
from lmperf.evidence import cost
from lmperf.evidence.plan import Project
from lmperf.evidence.review import Review, review
from lmperf.reporting import coverage, pages, selftest
from lmperf.reporting.evidence import MachineEvidence, frame_of

TEMPLATES = Path("templates")


def machine_evidence(project: Project, reviewed: Review) -> MachineEvidence:
    """A machine's evidence as the renderer takes it."""
    return MachineEvidence(
        machine=reviewed.machine,
        facts=reviewed.facts,
        frames={s: frame_of(rows, load(s).kinds, s) for s, rows in reviewed.rows.items()},
        stale=reviewed.stale,
        damaged=reviewed.damaged,
        lost=reviewed.lost,
        missing=reviewed.missing,
        lacking={stem: pd.DataFrame(rows) for stem, rows in reviewed.lacking.items()},
        cost=frame_of(reviewed.cost, {}, cost.STEM) if reviewed.cost else None,
        left_out=_left_out(project, reviewed) if project.is_here(reviewed.machine) else {},
    )


def _left_out(project: Project, reviewed: Review) -> dict[str, str]:
    """Benchmarks that the configuration does not ask for whole, with the reason."""
    preset = reviewed.facts["preset"]
    asked, config = project.config.stems(preset), project.config
    narrowed = [stem for stem in stems() if config.grid_of(stem)]
    out = [stem for stem in stems() if stem not in asked and load(stem).grids.get(preset)]
    return {
        **dict.fromkeys(narrowed, "the configuration narrows its grid"),
        **dict.fromkeys(out, "the configuration leaves it out"),
    }


def render_machine(project: Project, machine: str) -> Path:
    """Write `report/<machine>/report.md`, its pages and figures; the path of the write-up."""
    evidence = machine_evidence(project, review(project, machine))
    templates = project.root / TEMPLATES
    sections = pages.composed(evidence, templates)
    files = pages.machine_files(evidence, sections, templates)
    directory = project.report_directory / machine
    files |= selftest.files(directory, templates)
    pages.replace_files(directory, files, (f"{pages.FIGURES}/*.svg", "*.md"))
    return directory / pages.WRITE_UP


def render_overview(project: Project) -> Path:
    """Write `report/report.md`, the write-up of the machine at hand; its path."""
    here = project.machine.slug
    evidences = [
        machine_evidence(project, review(project, machine))
        for machine in sorted(project.machines_with_evidence(), key=lambda name: name != here)
    ]
    evidences = [evidence for evidence in evidences if evidence.present()]
    templates = project.root / TEMPLATES
    own = [evidence for evidence in evidences if evidence.machine == here]
    sections = pages.composed(own[0], templates) if own else []
    reason = None
    if not project.can_measure:
        reason = "torch is not installed, so that nothing can be measured"
    files = pages.overview_files(evidences, here, sections, templates, reason)
    pages.replace_files(project.report_directory, files, ("*.md",))
    return project.report_directory / pages.WRITE_UP


def silent_gaps(project: Project, machines: Sequence[str]) -> list[str]:
    """By machine and name: the tables that are missing without a reason."""
    gaps = []
    for machine in machines:
        evidence = machine_evidence(project, review(project, machine))
        sections = pages.composed(evidence, project.root / TEMPLATES, drawn=False)
        found = coverage.gaps(coverage.states(evidence, sections))
        gaps += [f"{machine}: {gap}" for gap in found]
    return gaps
