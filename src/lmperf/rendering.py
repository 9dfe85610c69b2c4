"""From judged evidence to Markdown: what `lmperf report` does."""

from __future__ import annotations

from pathlib import Path

from lmperf.judgement import Judgement, judge
from lmperf.plan import Project
from lmperf.reporting.evidence import MachineEvidence, read_frame
from lmperf.reporting.render import render_index, render_machine

TEMPLATES = Path("templates")


def evidence_for_report(project: Project, judgement: Judgement) -> MachineEvidence:
    """A machine's evidence as the renderer takes it."""
    directory = project.report_directory / judgement.machine / "evidence"
    frames = {stem: read_frame(directory / f"{stem}.csv") for stem in judgement.rows}
    return MachineEvidence(
        machine=judgement.machine,
        facts=judgement.facts,
        frames=frames,
        stale=judgement.stale,
        damaged=judgement.damaged,
        missing=judgement.missing,
    )


def render_report(project: Project, machine: str) -> None:
    """Write `report/<machine>/report.md` and its figures."""
    evidence = evidence_for_report(project, judge(project, machine))
    directory = project.report_directory / machine
    render_machine(evidence, directory, project.root / TEMPLATES)


def render_overview(project: Project) -> None:
    """Write `report/report.md`: the machine at hand, and the comparison with the others."""
    machines = project.machines_with_evidence()
    evidences = [evidence_for_report(project, judge(project, machine)) for machine in machines]
    reason = None
    if not project.can_measure:
        reason = "torch is not installed, so that nothing can be measured"
    render_index(
        evidences,
        project.machine.slug,
        project.report_directory,
        project.root / TEMPLATES,
        reason,
    )
