"""Whether a write-up is up to date with its evidence and the code that renders it.

Rendering writes a record to `.lmperf/written/`: digests of evidence, code and configuration, of the
resulting files, and of the templates of each page. While it matches, the write-up is not rendered
again; if only templates differ, only their pages are. Without `.lmperf/` the write-up is rendered
once more than necessary.
"""

from __future__ import annotations

import contextlib
import json
import re
import time
from collections.abc import Iterable, Iterator
from pathlib import Path

import lmperf
from lmperf.benchmarks import stems
from lmperf.errors import UserError
from lmperf.evidence.project import Project
from lmperf.evidence.repeatability import STEM as REPEATED
from lmperf.evidence.store import COST, EVIDENCE, as_written, file_digest, write_atomically
from lmperf.evidence.syntax import digest
from lmperf.machine.repository import git, git_text
from lmperf.reporting.files import LIST, SELFTEST, listed, names_in, remedy, require_free
from lmperf.reporting.user_templates import REPORT, template_digests

RECORDS = Path(".lmperf/written")
OVERVIEW = {REPORT, "machines", "unmeasured"}
PACKAGE = Path(lmperf.__file__).parent


def target(project: Project, machine: str | None) -> Path:
    """The write-up of a machine, or that of this checkout if `machine` is None."""
    return project.report_directory / (machine or "") / "report.md"


def pages(project: Project, machine: str | None) -> list[Path]:
    """The Markdown files of a write-up that lmperf wrote, including ``target``."""
    return [path for path in _listed(project, machine) if path.suffix == ".md"]


def drawn(project: Project, machine: str | None) -> list[Path]:
    """The figures of a write-up that lmperf wrote."""
    return [path for path in _listed(project, machine) if path.suffix == ".svg"]


def _listed(project: Project, machine: str | None) -> list[Path]:
    """The files of a write-up that lmperf wrote: pages, figures and numbers."""
    folder = target(project, machine).parent
    return [path for name in sorted(listed(folder)) if (path := folder / name).is_file()]


def require_free_paths(project: Project) -> None:
    """Raise UserError if a file of the user is where a first page of this machine will be."""
    for machine in (project.machine.slug, None):
        path = target(project, machine)
        require_free(path.parent, path.name, remedy([machine]))


def leads(project: Project, machine: str) -> list[str]:
    """The bold sentences that open paragraphs of a write-up, but no captions of tables.

    Snakemake's report shows them (`rules/write_up.smk`).
    """
    path = target(project, machine)
    text = path.read_text(encoding="utf-8") if path.exists() else ""
    return re.findall(r"^\*\*([^*\n]+)\*\*(?!\n\n\|)", text, re.MULTILINE)


def is_current(project: Project, machine: str | None) -> bool:
    """Whether the write-up is up to date: rendering it again would write the same files."""
    return due_pages(project, machine) == set()


def due_pages(project: Project, machine: str | None) -> set[str] | None:
    """The pages whose templates have changed; None: all, since evidence, code or files have."""
    recorded, now = _recorded(project, machine), _state(project, machine)
    if any(recorded.get(name) != now[name] for name in ("inputs", "files")):
        return None
    then = recorded.get("templates", {})
    return {page for page, code in now["templates"].items() if then.get(page) != code}


def edits(project: Project, every_s: float = 0.2) -> Iterator[set[str]]:
    """Wait for templates to be saved; yield the pages that are made from them, for ever."""
    before = template_digests(project.own_templates)
    while True:
        time.sleep(every_s)
        now = template_digests(project.own_templates)
        if changed := {page for page, code in now.items() if before.get(page) != code}:
            yield changed
        before = now


def record(project: Project, machine: str | None, only: str | None = None) -> None:
    """Record that the write-up was just rendered from the current evidence.

    only: the only page that was. If the record cannot be written, the write-up is rendered again
    next time.
    """
    then, now = _recorded(project, machine), _state(project, machine)
    if only is not None:
        if then.get("inputs") != now["inputs"]:
            return
        now["templates"] = then["templates"] | {only: now["templates"][only]}
    with contextlib.suppress(OSError):
        write_atomically(_record_of(project, machine), json.dumps(now).encode())


def _recorded(project: Project, machine: str | None) -> dict:
    """The record of the last rendering; empty if there is none that can be read."""
    with contextlib.suppress(OSError, ValueError):
        state = json.loads(_record_of(project, machine).read_text(encoding="utf-8"))
        return state if isinstance(state, dict) else {}
    return {}


def reformatted(project: Project, machine: str) -> list[Path]:
    """The text files of a machine whose line endings or first bytes Git or an editor changed."""
    contents = ((path, path.read_bytes()) for path in files_of(project, machine))
    return [path for path, content in contents if content != as_written(content)]


def files_of(project: Project, machine: str | None) -> list[Path]:
    """The files of a machine's evidence and write-up, or of the overview; no symbolic link, which
    Git would publish."""
    files = [*_evidence(project, machine), *_listed(project, machine)]
    files.append(target(project, machine).with_name(LIST))
    return [path for path in files if path.is_file() and not path.is_symlink()]


def deleted(project: Project, machine: str) -> list[str]:
    """Paths in Git's index of files that lmperf wrote for a machine or the overview, and that are
    not there any more."""
    gone = git_text(project.root, "ls-files", "--deleted", "-z", "--", project.config.report)
    own = {str(path.relative_to(project.root)) for path in _evidence(project, machine)}
    for whose in (machine, None):
        folder = target(project, whose).parent.relative_to(project.root)
        with contextlib.suppress(UserError):  # the list is not in the index
            names = names_in(git(project.root, "show", f":./{folder / LIST}"))
            own |= {f"{folder}/{name}" for name in names}
    traces = f"{project.config.report}/{machine}/traces/"
    return [name for name in gone.split("\0") if name in own or name.startswith(traces)]


def _record_of(project: Project, machine: str | None) -> Path:
    return project.root / RECORDS / target(project, machine).relative_to(project.report_directory)


def _state(project: Project, machine: str | None) -> dict:
    """Digests of what a write-up is made from, of its files, and of the templates of its pages."""
    here = [project.machine.slug, project.machine.environment, project.can_measure]
    here.append(project.config.peer_versions())
    templates = template_digests(project.own_templates)
    # The overview has the first page and that of all machines, a machine all but these.
    kept = OVERVIEW if machine is None else {*templates} - (OVERVIEW - {REPORT})
    machines = project.machines_with_evidence()  # a write-up is made from the evidence of all
    sources = [path for name in machines for path in _evidence(project, name)]
    inputs = [_code_key(project), here, _digests(project, sources)]
    return {
        "inputs": digest(json.dumps(inputs)),
        "files": digest(json.dumps(_digests(project, _listed(project, machine)))),
        "templates": {page: code for page, code in templates.items() if page in kept},
    }


def _digests(project: Project, paths: Iterable[Path]) -> list[list[str]]:
    return [
        [str(path.relative_to(project.root)), file_digest(path)] for path in paths if path.is_file()
    ]


def _code_key(project: Project) -> str:
    """Digest of code, published figures and configuration.

    All code of the package counts: a report names stale rows, and any module can make a row stale.
    Rendering again after a changed comment costs less than parsing every module each time. Keys of
    the configuration that only choose what is measured again do not count.
    """
    parts = [
        [str(path.relative_to(PACKAGE)), file_digest(path)]
        for files in ("*.py", "*.csv")
        for path in sorted(PACKAGE.rglob(files))
        if path.is_file()
    ]
    config = project.config.model_dump_json(exclude={"retry_failed"})
    return digest(json.dumps([parts, config]))


def _evidence(project: Project, machine: str | None) -> Iterator[Path]:
    """The files that a machine's write-up is made from; none of the overview's own."""
    if machine is None:
        return
    folder = project.report_directory / machine
    yield folder / "machine.json"
    yield folder / SELFTEST
    for stem in sorted((*stems(), COST, REPEATED)):
        yield folder / EVIDENCE / f"{stem}.csv"
