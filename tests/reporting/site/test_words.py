"""Tests of the HTML that is made from the Markdown of reports."""

import re

import pytest

from lmperf.reporting.foreign import in_markdown, taken
from lmperf.reporting.markdown import markdown
from lmperf.reporting.site.words import Blocks, inline, target
from lmperf.results import Cell, Column, Table

TABLE = Table("Times", (Column("a", "a (ms)", (Cell("1.5", 1.5),)),))


@pytest.fixture
def blocks():
    return Blocks(lambda table: f"[{table.caption}]", lambda *names: f"[{' '.join(names)}]")


def test_table_replaces_its_markdown_with_commands_around(blocks):
    text = f"# Title\n\n{blocks.form(TABLE)}\n\nReproduce a cell: `lmperf run x`\n"
    assert markdown(TABLE) in text, "what reads the Markdown of a page still finds its words"
    html = blocks.html(text)
    assert html.index('<h1 id="title">') < html.index("[Times]") < html.index("<code>lmperf run x")
    assert "a (ms)" not in html


def test_figure_and_details_of_templates_keep_their_meaning(blocks):
    text = (
        "<picture>\n"
        '<source media="(prefers-color-scheme: dark)" srcset="f/a-dark.svg">\n'
        '<img alt="A &amp; b" src="f/a-light.svg" width="100%">\n</picture>\n\n'
        "<details>\n<summary>12 rows</summary>\n\n- one\n\n</details>\n"
    )
    html = blocks.html(text)
    assert html.startswith("[A & b f/a-dark.svg f/a-light.svg]")
    assert "<details>\n<summary>12 rows</summary>\n<ul>" in html and "</details>" in html


@pytest.mark.parametrize(
    "text",
    [
        "<script>alert(1)</script>",
        "a <img src=x onerror=alert(1)> b",
        '<picture>\n<img src="x" onerror="alert(1)">\n</picture>',
        "<details>\n<summary><b onclick=x>1</b></summary>",
        "[x](javascript:alert(1))",
    ],
)
def test_any_other_html_is_shown_as_text(blocks, text):
    html = blocks.html(text)
    assert not any(tag in html for tag in ("<script", "<img", "<b ", "<picture", 'href="java'))
    assert "alert(1)" in html or "onclick" in html


def test_repeated_headings_have_anchors_of_their_own(blocks):
    html = blocks.html("## Times\n\n## Memory\n\n## Times\n\n### Times\n")
    found = re.findall('id="([^"]*)"', html)
    assert found == ["times", "memory", "times-1", "times-2"]


def test_evidence_is_shown_literally():
    words = taken("<script>*a* [x](y) `b` & {{c}}")
    assert str(inline(words)) == "&lt;script&gt;*a* [x](y) `b` &amp; {{c}}"
    assert "<em>" not in Blocks(str, str).html(in_markdown(words))


@pytest.mark.parametrize(
    ("link", "there"),
    [
        ("report.md", "index.html"),
        ("../machines.md", "../machines.html"),
        ("nvidia/report.md#method", "nvidia/index.html#method"),
        ("method.md#model-sizes", "method.html#model-sizes"),
        ("traces/a.json.gz", "traces/a.json.gz"),
        ("https://example.org/report.md", "https://example.org/report.md"),
    ],
)
def test_links_between_pages_lead_to_their_html(link, there):
    assert target(link) == there
