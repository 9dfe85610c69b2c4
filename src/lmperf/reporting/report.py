"""The files of a report: write-up, pages and figures of a machine, and the overview of all."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from pathlib import Path
from types import MappingProxyType

from lmperf.errors import UserError
from lmperf.evidence.project import Project
from lmperf.evidence.repeatability import STEM as REPEATED
from lmperf.evidence.review import review
from lmperf.evidence.store import COST, EVIDENCE, as_written
from lmperf.reporting import numbers
from lmperf.reporting.evidence import Evidence, traces_in
from lmperf.reporting.files import NUMBERS, listed, remedy, replace_files
from lmperf.reporting.pages import REPORT, page_names, pages_of, titles_of
from lmperf.reporting.render import Page
from lmperf.reporting.selftest import read_selftest
from lmperf.reporting.site import Site
from lmperf.reporting.untrusted import plain
from lmperf.reporting.written import is_current, target

WRITE_UP = f"{REPORT}.md"
FIGURE = re.compile(r'"(figures/[^"]+\.svg)"')  # as `render.Page` writes it


def evidence_of(project: Project, machine: str) -> Evidence:
    """The evidence of a machine, compared with today's code and configuration.

    Raises:
        UserError: `report/` has no evidence of this machine.
    """
    folder = project.report_directory / machine
    config = project.config
    more = {
        "selftest": read_selftest(folder),
        "traces": traces_in(folder),
        "chosen": {stem: config.subjects(stem) for stem in config.implementations},
        "reference": config.reference,
        "course": config.course,
    }
    return Evidence.reviewed(review(project, machine), **more)


def evidences(project: Project) -> list[Evidence]:
    """The evidence of every machine that has rows; first this one, then by numbers of rows.

    Those after the first are its `others`.
    """
    machines = [evidence_of(project, machine) for machine in project.machines_with_evidence()]
    for evidence in machines:
        _require_whole(project, evidence)
    machines = [evidence for evidence in machines if evidence.stems]
    here = project.machine.slug
    machines.sort(key=lambda evidence: (evidence.folder != here, -evidence.row_count))
    for first in machines[:1]:
        first.others = machines[1:]
    return machines


def _require_whole(project: Project, evidence: Evidence) -> None:
    """Refuse to replace a write-up by one that lacks all rows of a file.

    Raises:
        UserError: there is a write-up, and all rows of a file are damaged, or no file has any.
    """
    folder = project.report_directory / evidence.folder
    if not (folder / WRITE_UP).exists():
        return
    there = {**evidence.raw, COST: evidence.cost_rows, REPEATED: evidence.again}
    gone = [plain(why) for stem, why in evidence.damaged.items() if not there.get(stem)]
    if not evidence.stems and not gone:
        gone = [f"{folder / EVIDENCE} has no rows (does an ignore file of Git name *.csv?)"]
    if gone:
        more = f" (and {len(gone) - 1} more)" if len(gone) > 1 else ""
        kept = f"{folder / WRITE_UP} stays as it is until the evidence is restored or removed"
        raise UserError(f"{gone[0]}{more}; {kept}")


def files_of_machine(
    evidence: Evidence, own: Path | None, due: Collection[str] | None = None, folder: Path = Path()
) -> dict[str, str]:
    """File name -> text of all files in `report/<machine>`.

    due: the pages to render; None: all. The others keep what they have in `folder`.
    """
    names = (REPORT, *page_names(own, evidence))
    kept = {name: _kept(folder, name) for name in names if due is not None and name not in due}
    before = numbers.read_csv(_text(folder / NUMBERS)) if kept else []
    pages = pages_of(evidence, own, due={name for name in names if not kept.get(name)})
    files: dict[str, str] = {}
    printed: list[numbers.Entry] = []
    for name in names:
        if name in pages:
            files |= {f"{name}.md": pages[name].text, **pages[name].svgs}
            printed += pages[name].numbers
        elif name in kept:
            files |= kept[name]
            printed += [entry for entry in before if entry.page == name]
    return files | {NUMBERS: numbers.to_csv(printed)}


def _kept(folder: Path, page: str) -> dict[str, str]:
    """The files of a page that is there; none if one of them is missing."""
    text = _text(folder / f"{page}.md")
    files = {name: _text(folder / name) for name in FIGURE.findall(text)}
    return {f"{page}.md": text, **files} if text and all(files.values()) else {}


def _text(path: Path) -> str:
    return path.read_bytes().decode() if path.is_file() else ""


def edited(project: Project, machine: str) -> list[str]:
    """Names of pages and figures that differ from a fresh rendering of a machine's evidence.

    Includes missing files, and those that lmperf wrote and that do not belong there any more.
    Nothing is rendered while the record of the last rendering holds.
    """
    if is_current(project, machine):
        return []
    files = files_of_machine(evidence_of(project, machine), project.own_templates)
    texts = {name: text.encode() for name, text in files.items()}
    folder = target(project, machine).parent
    names = {*texts, *listed(folder)}
    there = {n: as_written((folder / n).read_bytes()) for n in names if (folder / n).is_file()}
    return sorted(name for name in names if there.get(name) != texts.get(name))


def files_of_overview(project: Project) -> dict[str, str]:
    """File name -> text of the files in `report`: write-up of this machine, and of all machines."""
    here, machines, own = project.machine.slug, evidences(project), project.own_templates
    if machines and machines[0].folder == here:
        page = Page(REPORT, machines[0], own=own, root=f"{machines[0].link}/")
        text = page.render(pages=titles_of(own, machines[0]), overview=True)
    else:
        nobody = Evidence(here, {}, others=machines)
        page = Page("unmeasured", nobody, own=own)
        text = page.render(can_measure=project.can_measure)
    files = {WRITE_UP: text}
    if len(machines) > 1:
        files["machines.md"] = Page("machines", machines[0], own=own).render()
    return files


def site_of(project: Project) -> Site:
    """What the site of all machines is made from; the first page is that of this machine."""
    machines = evidences(project)
    for evidence in machines:
        evidence.report = project.report_directory
    return Site(machines, project.report_directory, project.own_templates)


def render(
    project: Project,
    due: Mapping[str | None, Collection[str] | None],
    force: bool = False,
    read: Mapping[str, Evidence] = MappingProxyType({}),
) -> list[Path]:
    """Write the write-ups of machines, with their pages and figures.

    due: machine -> the pages to render, None: all. The machine None is the overview. read: evidence
        that was read before, by machine. Further arguments and errors as for `replace_files`.
    """
    folders = {}
    for machine, pages in due.items():
        if machine is None:
            folders[project.report_directory] = files_of_overview(project)
            continue
        folder = project.report_directory / machine
        evidence = read.get(machine) or evidence_of(project, machine)
        _require_whole(project, evidence)
        folders[folder] = files_of_machine(evidence, project.own_templates, pages, folder)
    return replace_files(folders, remedy([*due]), force)
