"""From judged evidence to Markdown: what `lmperf report` does."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pandas as pd

from lmperf.benchmark import load, stems
from lmperf.evidence.plan import Project
from lmperf.evidence.review import Review as Judgement
from lmperf.evidence.review import review as judge
from lmperf.reporting.evidence import MachineEvidence, read_frame
from lmperf.reporting.render import doubts as report_doubts
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
        lacking={stem: pd.DataFrame(rows) for stem, rows in judgement.lacking.items()},
        cost=read_frame(directory / "cost.csv") if judgement.cost else None,
        left_out=_left_out(project, judgement.facts.get("preset", "cpu")),
    )


def _left_out(project: Project, preset: str) -> dict[str, str]:
    """Benchmarks that the configuration does not ask for whole, with the reason."""
    asked, config = project.config.stems(preset), project.config
    narrowed = [stem for stem in stems() if config.grid_of(stem)]
    out = [stem for stem in stems() if stem not in asked and load(stem).grids.get(preset)]
    return {
        **dict.fromkeys(narrowed, "the configuration narrows its grid"),
        **dict.fromkeys(out, "the configuration leaves it out"),
    }


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


def doubts(project: Project, machines: Sequence[str] = ()) -> tuple[list[str], list[str]]:
    """By machine and name: tables that are silently missing, claims that are contradicted.

    machines: of which; without any, of all that have evidence here.
    """
    gaps, contradicted = [], []
    for machine in machines or project.machines_with_evidence():
        evidence = evidence_for_report(project, judge(project, machine))
        silent, claims = report_doubts(evidence, project.root / TEMPLATES)
        gaps += [f"{machine}: {gap}" for gap in silent]
        contradicted += [f"{machine}: {claim}" for claim in claims]
    return gaps, contradicted
