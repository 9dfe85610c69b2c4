"""Untrusted text is shown as it was written, in every format, and never acts.

It comes from outside the project: names of implementations and folders, reasons of failures, facts
of a machine.
"""

import csv
import io
import json
import re
import unicodedata
import xml.etree.ElementTree as ElementTree
from urllib.parse import unquote

import commonmark
import pandas as pd
import pytest
from html_page import HtmlPage
from hypothesis import example, given, settings
from hypothesis import strategies as st

from lmperf.reporting import figures, formats, untrusted
from lmperf.reporting.cells import Cell, Table, TableColumn
from lmperf.reporting.html import inline, to_html

HOSTILE = (
    "<script>alert(1)</script>",
    "<img src=x onerror=alert(1)>",
    "a | b || c",
    "`x` ``",
    "{{7*7}} {% raw %}",
    "$(touch x) $x^2$ \\frac",
    "](javascript:alert(1))",
    "[x](javascript:alert(1)) ![y](z) [d]: e",
    "[x]: javascript:alert(1)",
    "two\nlines\r\n| of | a table |\n\n# heading",
    "\x00\x1b[31mred\x1b[0m\x7f\x85",
    "\u202eevil\u2066\u200b\ufeff",
    "\ud800\udfff",
    "**bold** _so_ ~~gone~~ &lt;b&gt; &#60; &amp;",
    "\ue03c\ue060 private",
    "</details></summary>",
    "\\",
    "x" * 10_000,
    "_hidden",
    "- item",
    "#",
    "===",
    "\\end{document} \\input{x} 100 % & more",
    '" onmouseover="alert(1)',
)
texts = st.one_of(
    st.sampled_from(HOSTILE),
    st.text(st.characters()),
    st.text(st.sampled_from("\\`*_{}[]()<>#+-.!|$~&;:ax1 \n\t")),
)


def as_seen(text):
    """What a reader should see for an untrusted text."""
    return untrusted.plain(untrusted.neutral(text))


def table_of(*texts):
    """A table with a column for each text, which is its header and its cell."""
    columns = [TableColumn(f"c{n}", text, (Cell(text, text),)) for n, text in enumerate(texts)]
    return Table(texts[0], tuple(columns), notes=texts[0])


@given(texts)
@example("&amp;\\*_x_ a__b")
@example("&lt AT&T &copy")
def test_markdown_text_reads_back_unchanged(text):
    (shown,) = commonmark.shown(f"x {untrusted.neutral(text)} y")
    assert " ".join(shown.split()) == " ".join(f"x {as_seen(text)} y".split())


@given(texts)
def test_text_at_line_start_opens_no_block(text):
    written = untrusted.neutral(text)
    if as_seen(text).strip():
        types = [token.type for token in commonmark.PARSER.parse(written)]
        assert types == ["paragraph_open", "inline", "paragraph_close"] or written[0].isdigit()


@given(texts)
def test_invisible_characters_are_replaced_and_text_is_cut(text):
    seen = as_seen(text)
    bad = [c for c in seen if unicodedata.category(c) in ("Cc", "Cf", "Cs", "Co", "Zl", "Zp")]
    assert not bad and len(seen) <= untrusted.LONGEST


@settings(max_examples=50)
@given(st.lists(texts, min_size=1, max_size=4))
def test_markdown_table_keeps_its_cells(texts):
    text = formats.markdown(table_of(*map(untrusted.neutral, texts)))
    assert not commonmark.ragged(text) and not commonmark.foreign_tags(text)
    opened = [token for token in commonmark.tokens(text) if token.type == "td_open"]
    assert len(opened) == len(texts) and not commonmark.targets(text)


@given(texts)
def test_html_shows_the_text_and_no_element(text):
    seen, neutral = " ".join(as_seen(text).split()), untrusted.neutral(text)
    for page in (HtmlPage(formats.html(table_of(neutral))), HtmlPage(to_html(f"x {neutral} y"))):
        tags = {tag for tag, _ in page.elements}
        assert tags <= {"div", "table", "caption", "span", "thead", "tbody", "tr", "th", "td", "p"}
        assert not any(key.startswith("on") for _, of in page.elements for key in of)
        assert seen in " ".join(page.text.split())
    assert HtmlPage(inline(neutral)).elements == []


@given(texts)
def test_csv_and_json_hold_the_text(text):
    table = table_of(untrusted.neutral(text))
    _, (caption, cell) = csv.reader(io.StringIO(formats.to_csv(table)))
    assert caption == cell == as_seen(text)
    (column,) = json.loads(formats.to_json(table))["columns"]
    assert column["cells"][0].get("value", "") == as_seen(text)


@given(texts)
def test_latex_has_no_command_of_the_text(text):
    written = formats.in_latex(as_seen(text))
    commands = set(re.findall(r"\\([a-z]+|.)", written))
    known = {"textbackslash", "textasciitilde", "textasciicircum", "textless", "textgreater"}
    known |= {"textbar", "ldots", "pm", "cdot", "times", "mu", "leq", "geq"}
    assert commands <= known | set("&%$#_{}") and written.isascii()
    bare = re.sub(r"\$\\[a-z]+\$|\$\^\{?\w\}?\$|\\.", "", written)
    assert not re.search(r"[%$#&_^~]", bare)


@given(texts)
def test_typst_has_no_markup_of_the_text(text):
    written = formats.in_typst(as_seen(text))
    assert re.sub(r"\\(.)", r"\1", written) == as_seen(text)
    assert not re.search(r"[\\#\[\]$*_@<>`~/]|^[-+=]", re.sub(r"\\.", "x", written))


@pytest.mark.slow
@given(texts)
def test_terminal_shows_the_text_and_is_not_controlled_by_it(text):
    written = formats.terminal(table_of(untrusted.neutral(text)))
    assert as_seen(text) in written and written.replace("\n", "").isprintable()


@pytest.mark.parametrize("form", formats.FORMATS)
def test_only_markdown_keeps_references(form):
    table = table_of(*map(untrusted.neutral, ("a|b", "*c*", "[d](e)")))
    shown = formats.FORMATS[form](table)
    assert ("&#" in shown) is (form == "markdown")


@settings(max_examples=30)
@given(st.text(st.characters(codec="utf-8"), min_size=1))
def test_folder_name_is_one_path_segment_of_a_link(name):
    link = untrusted.link(untrusted.neutral(name))
    assert re.fullmatch(r"[\w.~%-]*", link, re.ASCII) and unquote(link) == as_seen(name)


@pytest.mark.parametrize("text", HOSTILE)
def test_figure_shows_any_name_as_text(text):
    rows = pd.DataFrame({"implementation": untrusted.neutral(text), "x": [1, 2], "y": [1.0, 2.0]})
    spec = figures.line_chart(untrusted.neutral(text), rows, "x", "y", ("x", "y"))
    assert "&#" in text or "&#" not in json.dumps(spec)
    root = ElementTree.fromstring(figures.svgs(spec)["light"])
    words = " ".join(part for node in root.iter() for part in (node.text or "").split())
    assert all(part in words for part in as_seen(text).split() if len(part) < 40)
    assert not [node for node in root.iter() if node.tag.endswith(("script", "img", "}b"))]
