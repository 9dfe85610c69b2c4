"""Tests of the report as one file: HTML, PDF and LaTeX."""

import base64
import re
import shutil
import subprocess

import pytest
from rendered_evidence import HOSTILE
from site_pages import Page

from lmperf.errors import UserError
from lmperf.reporting import export

pytestmark = pytest.mark.machine
CHROMIUM = next(filter(None, map(shutil.which, export.BROWSERS)), None)


@pytest.fixture(scope="module")
def document(hostile_site, hostile_evidence):
    return export.html(hostile_site, hostile_evidence)


def test_document_refers_to_nothing_outside_itself(document):
    page = Page(document)
    ids = [of["id"] for _, of in page.elements if "id" in of]
    assert len(ids) == len(set(ids)) > 30
    links = [of["href"] for of in page.all("a")]
    assert len(links) > 30 and {link[0] for link in links} == {"#"}
    assert {link[1:] for link in links} <= set(ids)
    loaded = [of.get("src") or of.get("srcset") for of in page.all("img") + page.all("source")]
    assert len(loaded) > 6 and all(of.startswith("data:image/svg+xml;base64,") for of in loaded)
    assert not page.all("script") and not page.all("link")
    [policy] = [of["content"] for of in page.all("meta") if "http-equiv" in of]
    assert policy.startswith("default-src 'none'; style-src 'unsafe-inline'; img-src data:;")


def test_document_holds_write_up_pages_tables_and_figures(document):
    page = Page(document)
    articles = [of["id"] for of in page.all("article")]
    assert articles[0] == "report" and {"attention", "end_to_end", "method"} <= set(articles)
    assert len(page.all("table")) > 40
    assert all("open" in of for of in page.all("details"))
    figure = base64.b64decode(page.all("img")[0]["src"].partition(",")[2])
    assert b"<svg" in figure


def test_evidence_is_text_in_the_document(document):
    page = Page(document)
    assert HOSTILE[0] in page.text
    for tag, attributes in page.elements:
        assert tag not in ("script", "iframe", "object", "embed", "base", "form")
        assert not any(key.startswith("on") for key in attributes)


@pytest.mark.process
@pytest.mark.skipif(CHROMIUM is None, reason="Chromium is not installed")
def test_chromium_prints_the_document():
    printed = export.pdf("<!doctype html><title>A</title><p>words</p>")
    assert printed.startswith(b"%PDF-") and printed.rstrip().endswith(b"%%EOF")


def test_pdf_without_chromium_says_what_to_install(monkeypatch):
    monkeypatch.setattr(export, "BROWSERS", ("no-such-browser",))
    with pytest.raises(UserError, match=r"no-such-browser is installed.*--format html"):
        export.pdf("<p>words</p>")


def test_browser_that_prints_nothing_is_an_error(monkeypatch):
    monkeypatch.setattr(export, "BROWSERS", ("true",))
    with pytest.raises(UserError, match="true did not print the report"):
        export.pdf("<p>words</p>")


def test_latex_is_a_whole_document_in_ascii(hostile_site, hostile_evidence):
    text = export.latex(hostile_site, hostile_evidence)
    assert text.isascii() and text.startswith("\\documentclass")
    for name in ("document", "table", "tabular", "itemize"):
        assert text.count(f"\\begin{{{name}}}") == text.count(f"\\end{{{name}}}") > 0, name
    assert text.count("{") - text.count("\\{") == text.count("}") - text.count("\\}")
    assert not re.search(r"(?<!\\)[#_]", text.partition("\\section*")[2])


@pytest.mark.process
@pytest.mark.skipif(shutil.which("pdflatex") is None, reason="pdflatex is not installed")
def test_latex_compiles(hostile_site, hostile_evidence, tmp_path):
    (tmp_path / "report.tex").write_text(export.latex(hostile_site, hostile_evidence))
    command = ["pdflatex", "-interaction=nonstopmode", "-halt-on-error", "report.tex"]
    assert subprocess.run(command, cwd=tmp_path, capture_output=True).returncode == 0
