"""Build the site from reviewed evidence: the work of ``lmperf site``."""

from __future__ import annotations

from pathlib import Path

from lmperf.errors import UserError
from lmperf.evidence.project import Project
from lmperf.evidence.store import EVIDENCE
from lmperf.reporting.files import replace_files
from lmperf.reporting.published import FOLDER as SOURCES
from lmperf.reporting.render import evidences
from lmperf.reporting.site import history, vega
from lmperf.reporting.site.pages import INDEX, MACHINES, Site
from lmperf.reporting.site.words import PUBLISHED_FOLDER

FOLDER = Path("site")
ASSETS = "assets"
COPIED = (".css", ".csv", ".js", ".LICENSE")
# What a build replaces: files of an earlier build that no longer belong to the site are removed.
GLOBS = (
    *("*.html", "*/*.html", "*/figures/*.svg", f"*/{EVIDENCE}/*.csv", "*/traces/*"),
    f"{ASSETS}/*",
    f"{PUBLISHED_FOLDER}/*.csv",
)


def build(project: Project) -> Path:
    """Write the site of all machines with evidence to `site/`; return the path of its first page.

    Raises:
        UserError: no machine has evidence, or a file cannot be written.
    """
    folder = project.root / FOLDER
    replace_files(folder, files(project), GLOBS)
    return folder / INDEX


def files(project: Project) -> dict[str, str | bytes]:
    """File name below `site/` -> content."""
    machines = evidences(project)
    if not machines:
        raise UserError("there is no evidence in report/; run make report first")
    names = [evidence.machine for evidence in machines]
    return files_of_site(Site(project, machines, history.start(names, project.root)))


def files_of_site(site: Site) -> dict[str, str | bytes]:
    """File name below `site/` -> content."""
    found: dict[str, str | bytes] = {INDEX: site.front()}
    for evidence in site.machines:
        found |= site.machine(evidence)
    if vega.is_installed():
        found[f"{ASSETS}/{vega.FILE}"] = vega.bundle()
        found[f"{ASSETS}/{vega.COLOURS}"] = vega.colours()
    if len(site.machines) > 1:
        found[MACHINES] = site.side_by_side()
    for folder, source in ((ASSETS, site.templates / "site" / ASSETS), (PUBLISHED_FOLDER, SOURCES)):
        paths = [path for path in sorted(source.iterdir()) if path.suffix in COPIED]
        found |= {f"{folder}/{path.name}": path.read_bytes() for path in paths}
    return found
