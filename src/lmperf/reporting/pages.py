"""Which pages the report of a machine has: one for each benchmark or template with rows to show.

Every template of ours or of the user's folder is a page, named like a benchmark or not; those in
folders are parts of pages. A benchmark that neither has a template nor belongs to the page of
another one has a page with all its rows.
"""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path

from lmperf.benchmarks import in_order, load, stems
from lmperf.reporting.evidence import Evidence
from lmperf.reporting.render import Page, question, stems_of
from lmperf.reporting.sections.course import is_measured
from lmperf.reporting.user_templates import GENERIC, REPORT, pages_in
from lmperf.workflow import TEMPLATES

# Templates that are no page of a machine, or another one's frame.
FRAMES = ("page", GENERIC, REPORT, "machines", "unmeasured")
# Pages that are not of one benchmark, in the order of the links below the write-up.
FURTHER = ("course", "method", "published", "history", "selftest")


def pages_of(
    evidence: Evidence,
    own: Path | None = None,
    form: str = "markdown",
    due: Collection[str] | None = None,
) -> dict[str, Page]:
    """Name -> page, rendered, for the write-up of a machine and each of its other pages.

    own: folder of the user's templates. form: `markdown` or `html`. due: only these pages.
    """
    titles = titles_of(own, evidence)
    pages, shared = {}, {"printed": [], "quotable": {}}
    for name in (REPORT, *titles):
        if due is not None and name not in due:
            continue
        pages[name] = Page(name, evidence, form, own, **shared)
        pages[name].render(pages=titles)
    return pages


def titles_of(own: Path | None, evidence: Evidence) -> dict[str, str]:
    """Name -> title of each page of a machine but the write-up."""
    return {name: title(name, own) for name in page_names(own, evidence)}


def page_names(own: Path | None, evidence: Evidence) -> list[str]:
    """The names of the pages that a machine's report has, in the order of its links."""
    folders = [TEMPLATES, *([own] if own else [])]
    there = {name for folder in folders for name in pages_in(folder)}
    there -= {*FRAMES}
    benchmarks = in_order(stem for stem in stems() if stem in there or load(stem).section is None)
    others = sorted(there - {*benchmarks, *FURTHER})
    recorded = {*evidence.stems, *evidence.damaged}
    measured = [stem for stem in benchmarks if not recorded.isdisjoint(stems_of(stem))]
    has = {
        "course": is_measured(evidence.stems),
        "method": True,
        "published": "end_to_end" in evidence.stems,
        "selftest": evidence.selftest is not None,
        "history": evidence.report is not None,
    }
    return [*measured, *others, *(name for name in FURTHER if name in there and has[name])]


def title(name: str, own: Path | None = None) -> str:
    """The title of a page: of its benchmark, else what its question has before a colon."""
    if name in stems():
        return load(name).title
    words = question(name, own).partition(":")[0].strip()
    return words or name.replace("_", " ").capitalize()
