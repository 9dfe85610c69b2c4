"""What each template is given: one module per benchmark, with the stem of its evidence.

A module may define ``tables(evidence) -> dict[str, str]`` (Markdown), ``CLAIMS``,
``figure(evidence) -> matplotlib.figure.Figure | None`` and ``TABLES``, what its tables rest on (see
``coverage``). One that rests on the evidence of others names their stems in ``RESTS_ON``. A
benchmark without a module of its own has a template with the generic table of its rows (see
``generic``).
"""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

from lmperf.reporting.claims import Claim, Judgement, judge
from lmperf.reporting.coverage import Shown
from lmperf.reporting.environment import environment
from lmperf.reporting.evidence import MachineEvidence, in_order
from lmperf.reporting.figures import draw
from lmperf.reporting.sections.generic import measurements


@dataclass(frozen=True)
class Section(Shown):
    """A section of the report: its Markdown, its claims as judged, its figure as SVG text."""

    judgements: Sequence[Judgement]
    figure: str | None

    @property
    def title(self) -> str:
        """The heading of its text."""
        headings = [line for line in self.text.splitlines() if line.startswith("## ")]
        return headings[0].removeprefix("## ") if headings else self.stem


def stems(templates: Path) -> list[str]:
    """The stems that have a template, in the order of the report."""
    found = (templates / "sections").glob("*.md.j2")
    return in_order("stem", [path.name.removesuffix(".md.j2") for path in found])


def module_of(stem: str) -> ModuleType | None:
    """The module with tables, claims and figure of a stem; None where there is none."""
    name = f"{__name__}.{stem}"
    return importlib.import_module(name) if importlib.util.find_spec(name) else None


def parts(stem: str, evidence: MachineEvidence, templates: Path) -> list[str]:
    """The stem and those that it shows: ``<stem>_check`` where that has no template."""
    known = stems(templates)
    all_stems = {*evidence.frames, *evidence.stale, *evidence.damaged, *evidence.missing}
    further = sorted(s for s in all_stems - set(known) if owner(s, known) == stem)
    return [stem, *further]


def owner(stem: str, known: Sequence[str]) -> str | None:
    """The section that shows a stem: itself, or the longest known one that it extends."""
    fitting = [name for name in known if stem == name or stem.startswith(f"{name}_")]
    return max(fitting, key=len, default=None)


def judgements(evidence: MachineEvidence, templates: Path) -> list[Judgement]:
    """Every claim of every section, held against the evidence."""
    made = environment(templates)
    return [judge(claim, evidence, made) for stem in stems(templates) for claim in claims_of(stem)]


def claims_of(stem: str) -> Sequence[Claim]:
    """The claims of a section."""
    return getattr(module_of(stem), "CLAIMS", ())


def section(stem: str, evidence: MachineEvidence, templates: Path, drawn: bool = True) -> Section:
    """Render the section of a stem, with its figure unless it is not to be drawn."""
    module, made = module_of(stem), environment(templates)
    own = parts(stem, evidence, templates)
    rests_on = [*own, *getattr(module, "RESTS_ON", ())]
    measured = any(evidence.frame(part) is not None for part in rests_on)
    judged = [judge(claim, evidence, made) for claim in claims_of(stem)]
    draws = drawn and _draws(module, evidence, stem)
    svg = draw(lambda: module.figure(evidence)) if draws else None
    text = made.get_template(f"sections/{stem}.md.j2").render(
        stem=stem,
        measured=measured,
        stale=_of(evidence.stale, own),
        missing=_of(evidence.missing, own),
        damaged=[(part, evidence.damaged[part]) for part in own if part in evidence.damaged],
        tables=module.tables(evidence) if measured and hasattr(module, "tables") else {},
        claims={judgement.name: judgement.sentence for judgement in judged},
        figure=f"figures/{stem}.svg" if svg else None,
        measurements=_measurements(evidence, stem),
    )
    return Section(stem, text, getattr(module, "TABLES", {}), judged, svg)


def _draws(module: ModuleType | None, evidence: MachineEvidence, stem: str) -> bool:
    return hasattr(module, "figure") and evidence.frame(stem) is not None


def _of(names: dict[str, list[str]], own: list[str]) -> list[tuple[str, list[str]]]:
    return [(part, list(names[part])) for part in own if names.get(part)]


def _measurements(evidence: MachineEvidence, stem: str) -> Callable[[], str]:
    return lambda: measurements(evidence, stem)
