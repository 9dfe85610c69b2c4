"""The pages of the site, made from templates, which escape all text."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from html import escape
from importlib.metadata import version
from pathlib import Path

from jinja2 import FileSystemLoader, StrictUndefined
from jinja2.sandbox import SandboxedEnvironment
from markupsafe import Markup

from lmperf.evidence.project import Project
from lmperf.evidence.store import EVIDENCE
from lmperf.reporting import other_machines, pages, selftest
from lmperf.reporting.compared_machines import compared
from lmperf.reporting.evidence import MachineEvidence
from lmperf.reporting.foreign import plain
from lmperf.reporting.render import sections_of
from lmperf.reporting.sections import Composed
from lmperf.reporting.site import history, vega
from lmperf.reporting.site.rows import Rows, data_block
from lmperf.reporting.site.tables import MOST_LINES, html_table
from lmperf.reporting.site.words import Blocks, target
from lmperf.reporting.written import SELFTEST
from lmperf.results import Table

INDEX = "index.html"
MOST_BYTES = 2_000_000
FEWER_LINES = (300, 100, 30, 10)
# Makes HTML from a table.
Html = Callable[[Table], str]
HISTORY = "history.html"
MACHINES = target(other_machines.PAGE)


@dataclass
class Site:
    """The pages of the site.

    Attributes:
        project: the checkout with its templates.
        machines: the evidence of each machine; that of the front page is first.
        histories: machine -> function that returns its history; without a page if it is not there.
    """

    project: Project
    machines: Sequence[MachineEvidence]
    histories: Mapping[str, Callable[[], history.History]]
    _sections: dict[str, list[Composed]] = field(default_factory=dict, init=False)

    @property
    def templates(self) -> Path:
        return self.project.templates

    @cached_property
    def html(self) -> SandboxedEnvironment:
        """The Jinja environment of the templates of the site, which escapes all text."""
        made = SandboxedEnvironment(
            loader=FileSystemLoader(self.templates / "site"),
            undefined=StrictUndefined,
            autoescape=True,
            trim_blocks=True,
            lstrip_blocks=True,
            finalize=lambda value: plain(value) if type(value) is str else value,
        )
        made.globals["version"] = version("lmperf")
        return made

    def sections(self, evidence: MachineEvidence) -> list[Composed]:
        """The sections of a machine with the author's notes; composed once."""
        name = evidence.machine
        if name not in self._sections:
            self._sections[name] = sections_of(self.project, evidence)
        return self._sections[name]

    def front(self) -> str:
        """The write-up of the first machine, with links below its folder."""
        first = self.machines[0]
        return self._write_up(first, INDEX, f"{first.link}/", self.machines)

    def machine(self, evidence: MachineEvidence) -> dict[str, str | bytes]:
        """File name below `site/` -> content, for all files of a machine."""
        link, sections = evidence.link, self.sections(evidence)
        found: dict[str, str | bytes] = {
            f"{link}/{INDEX}": self._write_up(evidence, f"{link}/{INDEX}")
        }
        for section in sections:
            if pages.has_page(evidence, section):
                found[f"{link}/{target(section.page)}"] = self._page(evidence, section)
            for theme, svg in section.figures.items():
                found[f"{link}/{pages.figure_name(section.stem, theme)}"] = svg
        if evidence.machine in self.histories:
            found[f"{link}/{HISTORY}"] = self._history(evidence)
        directory = self.project.report_directory / evidence.machine
        for name, text in selftest.files(directory, self.templates).items():
            path = f"{link}/{target(name)}"
            found[path] = self._written(evidence, path, lambda form, text=text: text)
        for path in self._copied(directory):
            found[f"{link}/{path.relative_to(directory)}"] = path.read_bytes()
        return found

    def _write_up(
        self,
        evidence: MachineEvidence,
        path: str,
        root: str = "",
        others: Sequence[MachineEvidence] = (),
    ) -> str:
        of = (evidence, self.sections(evidence), self.templates, root, others)
        return self._written(evidence, path, lambda form: pages.write_up(*of, form))

    def _page(self, evidence: MachineEvidence, section: Composed) -> str:
        path = f"{evidence.link}/{target(section.page)}"
        sources = [f"{evidence.link}/{EVIDENCE}/{stem}.csv" for stem in section.benchmarks]
        kept = [each for each in sources if (self.project.report_directory / each).exists()]
        make = partial(pages.page, evidence, section, self.templates)
        return self._written(evidence, path, make, kept)

    def _written(
        self, evidence: MachineEvidence, path: str, make, sources: Sequence[str] = ()
    ) -> str:
        """A page as HTML.

        make: function from the form of tables (`Blocks.form`) to the Markdown of the page.
        """

        def page(rows: Rows, html: Html) -> str:
            blocks = Blocks(html, _picture)
            text = blocks.html(make(blocks.form))
            title = text.partition("<h1")[2].partition(">")[2].partition("</h1>")[0]
            values = {"title": Markup(title).striptags(), "text": text, "sources": sources}
            values["charts"] = self._charts(evidence, text)
            return self._rendered("page.html.j2", path, evidence, rows, **values)

        return _fitting(page, evidence)

    def _charts(self, evidence: MachineEvidence, text: str) -> dict[str, Markup]:
        """Stem -> specifications of the interactive figures of a page."""
        if not vega.is_installed():
            return {}
        found = {section.stem: section.charts for section in self.sections(evidence)}
        shown = {stem: of for stem, of in found.items() if f'data-figure="{stem}"' in text}
        return {stem: data_block(list(of)) for stem, of in shown.items() if of}

    def side_by_side(self) -> str:
        """The page that compares the first machine with each other one."""

        def page(rows: Rows, html: Html) -> str:
            values = compared(self.machines, html)
            values |= {"title": "Machines side by side", "text": "", "sources": (), "charts": {}}
            return self._rendered("machines.html.j2", MACHINES, self.machines[0], rows, **values)

        return _fitting(page, *self.machines)

    def _history(self, evidence: MachineEvidence) -> str:
        found, path = self.histories[evidence.machine](), f"{evidence.link}/{HISTORY}"

        def page(rows: Rows, html: Html) -> str:
            values = history.contents(found, html)
            values |= {"title": f"History of {evidence.name}", "text": ""}
            values |= {"sources": (), "charts": {}}
            return self._rendered("history.html.j2", path, evidence, rows, **values)

        return _fitting(page, evidence)

    def _rendered(
        self, template: str, path: str, evidence: MachineEvidence, rows: Rows, **values
    ) -> str:
        """A page of the site from one of its templates.

        Args:
            path: of the page below `site/`.
            evidence: of the machine whose pages the page links to.
            rows: those behind the cells of the page.
        """
        of_site = {"root": "../" * path.count("/"), "links": list(self._links(evidence))}
        return self.html.get_template(template).render(
            **values,
            **of_site,
            path=path,
            machine=evidence.name,
            rows=rows.script(),
            interactive=vega.is_installed(),
        )

    def _links(self, evidence: MachineEvidence) -> Iterator[Mapping[str, str]]:
        is_first = evidence is self.machines[0]
        yield {"title": "Write-up", "path": INDEX if is_first else f"{evidence.link}/{INDEX}"}
        for section in self.sections(evidence):
            if pages.has_page(evidence, section):
                path = f"{evidence.link}/{target(section.page)}"
                yield {"title": section.title, "path": path}
        if evidence.machine in self.histories:
            yield {"title": "History", "path": f"{evidence.link}/{HISTORY}"}
        if len(self.machines) > 1:
            yield {"title": "Machines", "path": MACHINES}

    def _copied(self, directory: Path) -> list[Path]:
        """The files of a machine that pages link to."""
        traces = [path for path in (directory / "traces").glob("*.json.gz")]
        tests = [directory / SELFTEST] if (directory / SELFTEST).exists() else []
        return sorted([*(directory / EVIDENCE).glob("*.csv"), *traces, *tests])


def _fitting(page: Callable[[Rows, Html], str], *machines: MachineEvidence) -> str:
    """A page of at most MOST_BYTES: its tables show fewer lines if it would be larger.

    page: makes the page, from what gives rows of these machines their places and makes tables.
    """
    text = ""
    for most in (MOST_LINES, *FEWER_LINES):
        rows = Rows(*machines)
        text = page(rows, lambda table, rows=rows, most=most: Markup(html_table(table, rows, most)))
        if len(text.encode()) <= MOST_BYTES:
            break
    return text


def _picture(title: str, dark: str, light: str) -> str:
    """The figure for both colour schemes."""
    return (
        f'<figure data-figure="{escape(Path(light).name.removesuffix("-light.svg"))}"><picture>'
        f'<source media="(prefers-color-scheme: dark)" srcset="{escape(dark)}">'
        f'<img alt="Figure: {escape(title)}" src="{escape(light)}"></picture></figure>\n'
    )
