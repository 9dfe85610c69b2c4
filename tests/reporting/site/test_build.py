"""Tests of the pages of the site, without a browser."""

import posixpath
import re

import pytest
import synthetic
from rendered_evidence import HOSTILE
from site_pages import Page, site_of

from lmperf.errors import UserError
from lmperf.reporting.site import build, vega
from lmperf.reporting.site import pages as made

pytestmark = pytest.mark.machine
POLICY = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:;"
MOST_BYTES = 2_000_000


@pytest.fixture(scope="module")
def pages(site_files):
    return {name: Page(text) for name, text in site_files.items() if name.endswith(".html")}


def test_every_link_leads_to_a_file_of_the_site(site_files, pages):
    for name, page in pages.items():
        for tag, attributes in page.elements:
            link = attributes.get("href", attributes.get("src", ""))
            if tag not in ("a", "link", "script", "img") or re.match(r"https?:|data:|$", link):
                continue
            path, _, place = link.partition("#")
            there = posixpath.normpath(posixpath.join(posixpath.dirname(name), path or name))
            there = name if not path else there
            assert there in site_files or "/evidence/" in there or "/traces/" in there, (name, link)
            if place and there in pages:
                ids = {of.get("id") for _, of in pages[there].elements}
                assert place in ids, (name, link)


def test_evidence_adds_no_element_that_acts(pages):
    text = "".join(page.text for page in pages.values())
    assert HOSTILE[0] in text, "the hostile reason is shown, as text"
    for name, page in pages.items():
        for tag, attributes in page.elements:
            assert tag not in ("iframe", "object", "style", "base", "embed"), name
            assert not any(key.startswith("on") or key == "style" for key in attributes), name
            if tag == "script" and "src" not in attributes:
                assert attributes["type"] == "application/json", name
            assert not attributes.get("href", "").lower().startswith("javascript:"), name


def test_pages_allow_only_files_of_the_site(pages):
    for name, page in pages.items():
        (policy,) = [of["content"] for of in page.all("meta") if "http-equiv" in of]
        assert policy.startswith(POLICY), name
        for attributes in [*page.all("script"), *page.all("img"), *page.all("link")]:
            link = attributes.get("src", attributes.get("href", ""))
            assert not re.match(r"[a-z]+:(?!,)|//", link), (name, link)


def test_page_shows_the_cells_of_the_markdown():
    from lmperf.reporting import pages as markdown_pages

    site = site_of(gpu := synthetic.small_gpu_evidence())
    section = next(s for s in site.sections(gpu) if s.stem == "flash_attention")
    page = Page(site._page(gpu, section))
    tables = []
    markdown_pages.page(gpu, section, site.templates, lambda table, **_: tables.append(table) or "")
    cells = {str(cell) for table in tables for cell in table.cells}
    assert cells <= set(page.cells)
    assert len(page.all("table")) == len(tables) > 5


def test_pages_are_below_two_megabytes(site_files):
    assert max(map(len, site_files.values())) < MOST_BYTES


def test_too_large_page_shows_fewer_lines_of_its_tables(gpu, monkeypatch):
    site = site_of(gpu)
    section = next(s for s in site.sections(gpu) if s.stem == "flash_attention")
    whole = site._page(gpu, section)
    monkeypatch.setattr(made, "MOST_BYTES", len(whole.encode()) // 2)
    text = site._page(gpu, section)
    assert len(text.encode()) <= made.MOST_BYTES
    assert len(Page(text).all("table")) == len(Page(whole).all("table"))
    assert "further lines left out here: see the CSV." in Page(text).text


def test_site_without_evidence_is_an_error(monkeypatch):
    monkeypatch.setattr(build, "evidences", lambda project: [])
    with pytest.raises(UserError, match="run make report first"):
        build.files(None)


def test_without_the_extra_figures_are_static_and_the_page_says_so(gpu, monkeypatch):
    monkeypatch.setattr(vega, "is_installed", lambda: False)
    site = site_of(gpu)
    section = next(s for s in site.sections(gpu) if s.stem == "lrpe")
    page = Page(site._page(gpu, section))
    assert "Figures are static" in page.text and len(page.all("img")) == 1
    assert not any("chart" in str(of) for of in page.all("script"))
