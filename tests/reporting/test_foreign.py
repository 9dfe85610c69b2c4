"""The report shows untrusted text as it was written, without effect as markup or code.

Untrusted text comes from outside the project: names of implementations and folders, failure
reasons, facts of a machine.
"""

import re
import unicodedata
import xml.etree.ElementTree as ElementTree
from dataclasses import replace
from urllib.parse import unquote

import markdown
import pandas as pd
import pytest
import synthetic
from hypothesis import example, given
from hypothesis import strategies as st

from lmperf.reporting import figures, foreign, pages
from lmperf.reporting.evidence import MachineEvidence
from lmperf.reporting.markdown import markdown as as_markdown
from lmperf.reporting.markdown import pipe_table
from lmperf.reporting.tables import from_frame

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
)
texts = st.one_of(
    st.sampled_from(HOSTILE),
    st.text(st.characters()),
    st.text(st.sampled_from("\\`*_{}[]()<>#+-.!|$~&;:ax1 \n\t")),
)


def as_seen(text):
    """The text that a reader of the report should see for untrusted ``text``."""
    return foreign.plain(foreign.taken(text))


@given(texts)
@example("&amp;\\*_x_ a__b")
def test_markdown_text_reads_back_unchanged(text):
    seen = foreign.taken(text)
    (shown,) = markdown.shown(f"x {foreign.in_markdown(seen)} y")
    assert " ".join(shown.split()) == " ".join(f"x {as_seen(text)} y".split())


@given(texts)
def test_text_at_line_start_opens_no_block(text):
    written = foreign.in_markdown(foreign.taken(text))
    if as_seen(text).strip():
        types = [token.type for token in markdown.PARSER.parse(written)]
        assert types == ["paragraph_open", "inline", "paragraph_close"] or written[0].isdigit()


@given(texts)
def test_code_span_holds_the_whole_text(text):
    (block,) = markdown.blocks(f"x {foreign.code(text)} y")
    assert [token.type for token in block] == ["text", "code_inline", "text"] or not as_seen(text)


@given(texts)
def test_invisible_characters_are_replaced_and_text_is_cut(text):
    seen = as_seen(text)
    bad = [c for c in seen if unicodedata.category(c) in ("Cc", "Cf", "Cs", "Co", "Zl", "Zp")]
    assert not bad and len(seen) <= foreign.LONGEST
    assert foreign.taken(foreign.taken(text)) == foreign.taken(text)


@pytest.mark.slow
@given(st.lists(texts, min_size=1, max_size=4), st.integers(1, 3))
def test_table_row_keeps_its_cells(cells, lines):
    frame = pd.DataFrame([cells] * lines, columns=[f"{i} {text}" for i, text in enumerate(cells)])
    text = pages.tidy(pipe_table(foreign.taken_frame(frame)))
    assert not markdown.ragged(text) and not markdown.foreign_tags(text)
    opened = [token for token in markdown.tokens(text) if token.type == "td_open"]
    assert len(opened) == len(cells) * lines
    assert not markdown.targets(text)


@given(texts)
def test_title_of_a_folded_table_adds_no_tag(text):
    made = as_markdown(from_frame(foreign.taken(text), pd.DataFrame({"a": range(20)})))
    assert markdown.REPORT_TAGS.sub("", pages.tidy(made)).count("<") == 0


@given(st.text(st.characters(codec="utf-8"), min_size=1))
def test_folder_name_is_one_path_segment_of_a_link(name):
    link = foreign.link(name)
    assert re.fullmatch(r"[\w.~%-]+", link, re.ASCII) and unquote(link) == name


@pytest.mark.parametrize("text", HOSTILE)
def test_figure_accepts_any_name(text):
    def build(pen):
        drawn, (axis,) = figures.panels(foreign.taken(text))
        axis.plot([1, 2], [1, 2], label=foreign.taken(text))
        axis.set_xticks([1], [foreign.taken(text)])
        figures.legend_below(drawn, [axis])
        return drawn

    svg = figures.draw(build)["light"]
    root = ElementTree.fromstring(svg)
    words = " ".join(part for node in root.iter() for part in (node.text or "").split())
    assert all(part in words for part in as_seen(text).split() if len(part) < 40)
    assert not [node for node in root.iter() if node.tag.endswith(("script", "img", "}b"))]


def hostile(evidence, text):
    """The evidence with ``text`` in every name, reason and fact that can be untrusted."""
    named = ("reason", "trace", "tensor", "frame", "made_in", "outcome", "instrument", "commit")
    frames = {}
    for stem, frame in evidence.frames.items():
        columns = {name: text for name in named if name in frame}
        other = frame["implementation"].mask(frame["implementation"] == "compiled", text)
        if stem == "profiles":
            columns["name"] = frame["name"] + text
        frames[stem] = frame.assign(implementation=other, **columns)
        frames[stem].loc[frames[stem].index[::7], "status"] = "crash"
    facts = {**evidence.facts["environments"]["e1"], text: text, "settings": {text: [text, text]}}
    facts |= dict.fromkeys(("device", "cpu_model", "torch", "triton", "driver", "os"), text)
    named = {"attention": [text] * 3, "lrpe": [text]}
    return MachineEvidence(
        machine=text,
        facts={"environments": {"e1": facts}, text: text},
        frames=frames,
        stale=named,
        missing=named,
        damaged={"memory": text},
        cost=evidence.cost,
    )


@pytest.mark.machine
def test_report_of_hostile_evidence_is_inert():
    text = "".join(HOSTILE[:13])
    evidence = hostile(synthetic.cpu_evidence(), text)
    sections = pages.composed(evidence, synthetic.TEMPLATES)
    files = pages.machine_files(evidence, sections, synthetic.TEMPLATES)
    both = [evidence, replace(evidence, machine="{x}"), synthetic.cpu_evidence()]
    over = pages.overview_files(both, text, sections, synthetic.TEMPLATES, text)
    for name, written in [*files.items(), *over.items()]:
        assert not re.search(r"[\x00-\x09\x0b-\x1f\x7f-\x9f\u202a-\u202e\ue000-\uf8ff]", written), (
            name
        )
        if name.endswith(".svg"):
            ElementTree.fromstring(written)
            continue
        assert not markdown.foreign_tags(written), name
        assert not markdown.ragged(written), name
        for target in markdown.targets(written):
            assert re.match(r"[\w.%~-]+(/[\w.-]+)*(#.*)?$", target), (name, target)
        written.encode()
