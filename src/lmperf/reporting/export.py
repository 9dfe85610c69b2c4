"""The report of one machine as one file, HTML or PDF, to send or to hand in."""

from __future__ import annotations

import base64
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Mapping
from html import unescape
from importlib.metadata import version
from pathlib import Path

from lmperf.errors import UserError
from lmperf.reporting.evidence import Evidence
from lmperf.reporting.html import target
from lmperf.reporting.pages import REPORT, pages_of
from lmperf.reporting.render import Page, load_templates
from lmperf.reporting.site import ASSETS, title_of
from lmperf.workflow import TEMPLATES

BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
LIMIT_S = 120


def html(evidence: Evidence, own: Path | None = None) -> str:
    """The first page of a machine and all its other pages as one HTML document.

    It needs no other file and no network: figures and style are part of it, links between pages
    become links within it, and links to other files of a report become text.

    own: folder of the user's templates.
    """
    pages = pages_of(evidence, own, "html")
    inside = {target(f"{name}.md"): name for name in pages}
    texts = {name: within(page, inside) for name, page in pages.items()}
    return (
        load_templates(own)
        .get_template("site/export.html.j2")
        .render(
            title=title_of(pages[REPORT]),
            style=(TEMPLATES / "site" / ASSETS / "site.css").read_text(encoding="utf-8"),
            texts=texts,
            version=version("lmperf"),
        )
    )


def within(page: Page, inside: Mapping[str, str]) -> str:
    """A page as a part of the document, with its figures, and with anchors of its own.

    inside: link to a page -> the anchor of the page in the document.
    """

    def link(match: re.Match) -> str:
        path, _, place = unescape(match[1]).partition("#")
        if re.match(r"https?:", path):
            return match[0]
        name = inside.get(path) if path else page.name
        anchor = f"#{name}{'-' * bool(place)}{place}"
        return f'<a href="{anchor}">{match[2]}</a>' if name else match[2]

    text = re.sub(r'<a href="([^"]*)">(.*?)</a>', link, page.text, flags=re.DOTALL)
    text = re.sub(r' id="([^"]*)"', rf' id="{page.name}-\1"', text)
    for path, svg in page.svgs.items():
        data = base64.b64encode(svg.encode()).decode()
        text = text.replace(f'"{path}"', f'"data:image/svg+xml;base64,{data}"')
    return text


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
        source.write_text(document, encoding="utf-8")
        options = ["--headless", "--disable-gpu", "--no-pdf-header-footer"]
        options += [f"--user-data-dir={folder}/profile", f"--print-to-pdf={printed}"]
        options += ["--no-sandbox"] if os.geteuid() == 0 else []  # Chromium refuses root otherwise
        try:
            subprocess.run(
                [browser, *options, source.as_uri()], capture_output=True, timeout=LIMIT_S
            )
        except subprocess.TimeoutExpired:
            raise UserError(f"{browser} did not print the report within {LIMIT_S} s") from None
        if not printed.exists():
            raise UserError(f"{browser} did not print the report; export --format html instead")
        return printed.read_bytes()
