"""Build the pages of a site from synthetic evidence, and read their HTML."""

from __future__ import annotations

from html.parser import HTMLParser
from pathlib import Path

from lmperf.config import load_config
from lmperf.evidence.project import Project
from lmperf.reporting.site.pages import Site

ROOT = Path(__file__).parents[3]


def site_of(*machines, histories=()) -> Site:
    """The site of these machines, with the templates of the checkout."""
    project = Project(load_config(ROOT / "config/config.yaml", {}), ROOT)
    return Site(project, machines, dict(histories))


class Page(HTMLParser):
    """The elements of a page: (name, attributes) in order, the text of each cell, and all text."""

    def __init__(self, text: str):
        super().__init__()
        self.elements: list[tuple[str, dict]] = []
        self.cells: list[str] = []
        self.text = ""
        self._inside: str | None = None
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.elements.append((tag, dict(attrs)))
        self._inside = tag
        if tag in ("td", "th"):
            self.cells.append("")

    def handle_endtag(self, tag):
        if tag in ("td", "th", "script"):
            self._inside = None

    def handle_data(self, data):
        self.text += data if self._inside != "script" else ""
        if self._inside in ("td", "th"):
            self.cells[-1] += data

    def all(self, name: str) -> list[dict]:
        """The attributes of all elements of this name."""
        return [attributes for tag, attributes in self.elements if tag == name]
