"""A whole report of hostile evidence shows its text, which never acts."""

import json
import re
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import commonmark
import pytest
from html_page import HtmlPage
from test_untrusted import HOSTILE

from lmperf.benchmarks import load
from lmperf.reporting import site
from lmperf.reporting.evidence import Evidence
from lmperf.reporting.pages import REPORT, pages_of
from lmperf.reporting.render import Page
from lmperf.reporting.revisions import evidence_in
from lmperf.reporting.untrusted import neutral, plain

pytestmark = [pytest.mark.machine, pytest.mark.slow]
MACHINE = Path(__file__).parents[2] / "report" / "cpu-amd-epyc-avx-512-bf16"
TEXT = "".join(HOSTILE[:13])
NAMED = ("reason", "trace", "tensor", "frame", "made_in", "outcome", "instrument", "commit")
SVG_TAGS = {"svg", "g", "path", "text", "tspan", "line", "rect", "defs", "clipPath", "title"}
HIDDEN = r"[\x00-\x09\x0b-\x1f\x7f-\x9f\u202a-\u202e\ue000-\uf8ff]"


def hostile(text: str, machine: str) -> Evidence:
    """Evidence of a CPU with a text in every name, reason and fact that can be untrusted."""
    facts = json.loads((MACHINE / "machine.json").read_text())
    for of in facts["environments"].values():
        of |= {text: text, "settings": {text: [text, text]}}
        of |= dict.fromkeys(("device", "cpu_model", "torch", "triton", "driver", "os"), text)
    raw = {stem: rows[::4] for stem, rows in evidence_in(MACHINE, MACHINE.name).raw.items()}
    for stem, rows in raw.items():
        columns = [name for name in NAMED if name in load(stem).kinds or name in rows[0]]
        for number, row in enumerate(rows):
            row |= dict.fromkeys(columns, text)
            row |= {"implementation": text} if row["implementation"] == "compiled" else {}
            row |= {"status": "crash"} if number % 7 == 0 else {}
            row |= {"name": row["name"] + text} if stem == "profiles" else {}
    return Evidence(
        machine, facts | {text: text}, raw, {"memory": text}, faults=[text], anyway=text
    )


@pytest.fixture(scope="module")
def evidence():
    made = hostile(TEXT, TEXT)
    made.others = [hostile(TEXT, "{x}"), evidence_in(MACHINE, MACHINE.name)]
    return made


def test_markdown_of_hostile_evidence_is_inert(evidence):
    pages = pages_of(evidence)
    texts = {name: page.text for name, page in pages.items()}
    first = Page(REPORT, evidence, root=f"{evidence.link}/")
    texts["overview"] = first.render(overview=True)
    texts["machines"] = Page("machines", evidence).render()
    for name, text in texts.items():
        assert not re.search(HIDDEN, text), name
        assert not commonmark.foreign_tags(text), name
        assert not commonmark.ragged(text), name
        for target in commonmark.targets(text):
            assert re.match(r"(https://|[\w.%~-]+(/[\w.%~-]+)*(#.*)?$)", target), (name, target)
        text.encode()


def test_site_of_hostile_evidence_is_inert(evidence, tmp_path):
    made = site.Site([evidence, *evidence.others[:1]], tmp_path)
    files = site.files_of_machine(made, 0) | site.files_of_machines(made)
    seen = " ".join(plain(neutral(TEXT)).split())
    for name, text in files.items():
        if name.endswith(".svg"):
            tags = {node.tag.rpartition("}")[2] for node in ElementTree.fromstring(text).iter()}
            assert tags <= SVG_TAGS, name
            continue
        page = HtmlPage(text)
        assert not re.search(HIDDEN, text), name
        for tag, attributes in page.elements:
            assert tag not in ("iframe", "object", "style", "base", "embed", "b"), name
            assert not any(key.startswith("on") or key == "style" for key in attributes), name
            if tag == "script" and "src" not in attributes:
                assert attributes["type"] == "application/json", name
            assert not re.match(r"\s*javascript:", attributes.get("href", ""), re.I), name
    assert seen[:40] in " ".join(HtmlPage(files["index.html"]).text.split())
