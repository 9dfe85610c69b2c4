"""The report of one machine as one file: HTML, PDF or LaTeX, to send or to hand in."""

from __future__ import annotations

import base64
import os
import re
import shutil
import subprocess
import tempfile
from functools import partial
from html import escape
from pathlib import Path

from markupsafe import Markup

from lmperf.errors import UserError
from lmperf.reporting import pages
from lmperf.reporting.evidence import MachineEvidence
from lmperf.reporting.formats import FORMATS, in_latex, sentence
from lmperf.reporting.machine import device_words
from lmperf.reporting.sections import Composed
from lmperf.reporting.site.build import ASSETS, Site
from lmperf.reporting.site.rows import Rows
from lmperf.reporting.site.tables import html_table
from lmperf.reporting.site.words import Blocks, target
from lmperf.results import Table

BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
_LIMIT_S = 120
_ID = re.compile(r' id="([^"]*)"')
_LINK = re.compile(r'<a href="([^"]*)">(.*?)</a>', re.DOTALL)
_PREAMBLE = r"""\documentclass{article}
\usepackage[margin=2cm]{geometry}
\usepackage{booktabs,graphicx}
\begin{document}
"""


def html(site: Site, evidence: MachineEvidence) -> str:
    """The write-up of a machine and all its pages as one HTML document.

    It needs no other file and no network: figures and style are part of it, links between pages
    become links within it, and links to other files of a report become text.
    """
    sections = site.sections(evidence)
    figures = {
        pages.figure_name(section.stem, theme): svg
        for section in sections
        for theme, svg in section.figures.items()
    }
    blocks = partial(Blocks, partial(html_table, rows=Rows(evidence)), partial(_picture, figures))
    write_up = partial(pages.write_up, evidence, sections, site.templates, "", ())
    made = {pages.WRITE_UP: _html(blocks(), write_up)}
    for section in sections:
        if pages.has_page(evidence, section):
            page = partial(pages.page, evidence, section, site.templates)
            made[section.page] = _html(blocks(), page)
    inside = {target(name): Path(name).stem for name in made}
    texts = {Path(name).stem: _within(text, Path(name).stem, inside) for name, text in made.items()}
    title = Markup(made[pages.WRITE_UP].partition("</h1>")[0]).striptags()
    style = (site.templates / "site" / ASSETS / "site.css").read_text()
    template = site.html.get_template("export.html.j2")
    return template.render(title=title, style=Markup(style), texts=texts)


def _html(blocks: Blocks, make) -> str:
    # Not Markup, which escapes what is inserted. Print shows a folded table only if it is open.
    return str(blocks.html(make(blocks.form))).replace("<details>", "<details open>")


def _within(text: str, page: str, inside: dict[str, str]) -> Markup:
    """A page with anchors of its own among others, and its links.

    inside: link to a page -> the name of the page in the document.
    """

    def link(found: re.Match) -> str:
        path, _, place = found[1].partition("#")
        if re.match(r"https?:", path):
            return found[0]
        of = page if not path else inside.get(path)
        return f'<a href="#{of}{"-" * bool(place)}{place}">{found[2]}</a>' if of else found[2]

    return Markup(_LINK.sub(link, _ID.sub(rf' id="{page}-\1"', text)))


def _picture(figures: dict[str, str], title: str, dark: str, light: str) -> str:
    """The figure for both colour schemes, as part of the document."""
    night, day = (_data(figures[path]) for path in (dark, light))
    return (
        f'<figure><picture><source media="(prefers-color-scheme: dark)" srcset="{night}">'
        f'<img alt="Figure: {escape(title)}" src="{day}"></picture></figure>\n'
    )


def _data(svg: str) -> str:
    return f"data:image/svg+xml;base64,{base64.b64encode(svg.encode()).decode()}"


def pdf(document: str) -> bytes:
    """An HTML document as PDF, printed by headless Chromium.

    Raises:
        UserError: there is no Chromium, or it does not print the document.
    """
    browser = next(filter(None, map(shutil.which, BROWSERS)), None)
    if browser is None:
        raise UserError(
            f"PDF needs Chromium, and none of {', '.join(BROWSERS)} is installed; install one, or"
            " export --format html and print it in a browser"
        )
    with tempfile.TemporaryDirectory() as folder:
        source, printed = Path(folder) / "report.html", Path(folder) / "report.pdf"
        source.write_text(document)
        options = ["--headless", "--disable-gpu", "--no-pdf-header-footer"]
        options += [f"--user-data-dir={folder}/profile", f"--print-to-pdf={printed}"]
        options += ["--no-sandbox"] if os.geteuid() == 0 else []  # Chromium refuses root otherwise
        try:
            subprocess.run(
                [browser, *options, source.as_uri()], capture_output=True, timeout=_LIMIT_S
            )
        except subprocess.TimeoutExpired:
            raise UserError(f"{browser} did not print the report within {_LIMIT_S} s") from None
        if not printed.exists():
            raise UserError(f"{browser} did not print the report; export --format html instead")
        return printed.read_bytes()


def latex(site: Site, evidence: MachineEvidence) -> str:
    """The findings and the tables of a machine's write-up as a LaTeX document."""
    sections = [section for section in site.sections(evidence) if section.section.in_write_up]
    parts = [_latex(section) for section in sections if section.measured]
    title = f"\\section*{{Transformer language models on {in_latex(device_words(evidence))}}}"
    return "\n\n".join([_PREAMBLE + title, *parts, "\\end{document}\n"])


def _latex(section: Composed) -> str:
    tables = [*section.first, *([section.head] if section.head else [])]
    said = [f"\\item {in_latex(sentence(one.sentence))}" for one in section.statements]
    listed = ["\\begin{itemize}", *said, "\\end{itemize}"] if said else []
    return "\n".join([f"\\section{{{in_latex(section.title)}}}", *listed, *map(_float, tables)])


def _float(table: Table) -> str:
    """A table with its caption, no wider than the page."""
    body, end, notes = FORMATS["latex"](table).partition("\\end{tabular}")
    return (
        f"\\begin{{table}}[htbp]\n\\centering\n\\caption{{{in_latex(table.caption)}}}\n"
        f"\\resizebox{{\\ifdim\\width>\\linewidth\\linewidth\\else\\width\\fi}}{{!}}{{%\n"
        f"{body}{end}}}\n{notes.strip()}\n\\end{{table}}"
    )
