"""The site: pages in their frame, tables and figures as data, and what untrusted text can do."""

import json
import posixpath
import re
from multiprocessing import process

import planted
import pytest
from html_page import HtmlPage

from lmperf.reporting import formats, site
from lmperf.reporting.cells import Cell, Table, TableColumn
from lmperf.reporting.files import replace_files
from lmperf.reporting.html import target
from lmperf.reporting.sections.machines import compared, ratios

EVIL = "</script><script>alert(1)</script>"
POLICY = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:;"
FIRST = """# Models on {{ machine.device }}

{% filter table(rows("attention")) %}
{seq_len}
time: {time}
{% endfilter %}

[Lengths]({{ root }}mine.md#lengths-of-mine)

{% include "report/machines.md.j2" %}
"""
MINE = """# {% block question %}Lengths of mine: which?{% endblock %}

## Lengths of mine

[Models]({{ root }}report.md)

{% filter table(rows("attention")) %}
{seq_len}
time: {time} | commit: {commit} | reason: {reason}
{% endfilter %}

{{ line_chart("Lengths", rows("attention").frame, "seq_len", "ms", ("length", "ms")) }}
"""


def at(length, ms, **values):
    return planted.row("attention", ms, implementation="eager", seq_len=length, **values)


@pytest.fixture(scope="module")
def machines():
    """Two machines; the second has markup in its text, and is twice as slow."""
    rows = [at(256, 1.0), at(1024, 2.0)]
    others = [at(256, 2.0, commit=EVIL), at(1024, 4.0), at(4096, 9.0, reason=EVIL)]
    facts = {**planted.H200, "device": EVIL}
    made = [
        planted.evidence(*rows, machine="one"),
        planted.evidence(*others, machine="other", facts=facts),
    ]
    for evidence in made:
        evidence.others = [other for other in made if other is not evidence]
    return made


@pytest.fixture(scope="module")
def made(machines, tmp_path_factory):
    """A site of these machines with two templates of a user, and evidence to copy."""
    folder = tmp_path_factory.mktemp("project")
    own = folder / "templates"
    own.mkdir()
    (own / "report.md.j2").write_text(FIRST)
    (own / "mine.md.j2").write_text(MINE)
    for name in ("one", "other"):
        (folder / "report" / name / "evidence").mkdir(parents=True)
        (folder / "report" / name / "evidence" / "attention.csv").write_text("seq_len\n256\n")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("lmperf.reporting.pages.page_names", lambda *of: ["mine"])
        yield site.Site(machines, folder / "report", own)


@pytest.fixture(scope="module", autouse=True)
def no_bundle():
    """Leave out the scripts of Vega, which take two seconds to bundle."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("vl_convert.javascript_bundle", lambda: "")
        yield


@pytest.fixture(scope="module")
def found(made):
    files = site.files_of_assets()
    for number in range(len(made.machines)):
        files |= site.files_of_machine(made, number)
    return files | site.files_of_machines(made)


@pytest.fixture(scope="module")
def pages(found):
    return {name: HtmlPage(text) for name, text in found.items() if name.endswith(".html")}


def test_every_link_leads_to_a_file_and_an_anchor(found, pages):
    assert {"index.html", "machines.html", "one/index.html", "other/mine.html"} <= {*pages}
    for name, page in pages.items():
        for tag, attributes in page.elements:
            link = attributes.get("href", attributes.get("src", attributes.get("srcset", "")))
            if tag not in ("a", "link", "script", "img", "source") or re.match(r"data:|$", link):
                continue
            path, _, place = link.partition("#")
            there = posixpath.normpath(posixpath.join(posixpath.dirname(name), path))
            there = there if path else name
            assert there in found, (name, link)
            assert not place or place in {of.get("id") for _, of in pages[there].elements}


def test_pages_allow_only_files_of_the_site(pages):
    for name, page in pages.items():
        (policy,) = [of["content"] for of in page.all("meta") if "http-equiv" in of]
        assert policy.startswith(POLICY), name
        for attributes in [*page.all("script"), *page.all("img"), *page.all("link")]:
            link = attributes.get("src", attributes.get("href", ""))
            assert not re.match(r"[a-z]+:(?!,)|//", link), (name, link)


def data_of(page, attribute):
    """The JSON in the data block with an attribute."""
    (text,) = re.findall(rf'<script type="application/json" {attribute}[^>]*>(.*?)</script>', page)
    return json.loads(text)


def test_row_behind_a_cell_has_its_facts_and_command(found, machines):
    page = found["other/mine.html"]
    behind = data_of(page, 'id="rows"')
    row = machines[1].rows("attention").iloc[0]
    texts = dict(zip(behind["labels"], behind["rows"][row["key"]], strict=True))
    assert texts["median"] == "2 ms" and texts["time"].startswith("2.0000 ms (")
    assert texts["commit"] == EVIL and texts["machine"] == "other"
    assert texts["measure it again"] == f"lmperf run --row {row['key']} --against other"
    keys = {of["data-row"] for of in HtmlPage(page).all("td") if "data-row" in of}
    assert keys == {*behind["rows"]}


def test_figure_has_a_specification_and_an_image_for_each_theme(found):
    spec = data_of(found["one/mine.html"], 'data-chart="mine"')
    assert len(spec["data"]["values"]) >= 2
    assert found["one/figures/mine-light.svg"].startswith("<svg")
    assert found["one/figures/mine-dark.svg"] != found["one/figures/mine-light.svg"]
    assert 'data-spec="mine"' in found["one/mine.html"]


@pytest.mark.machine
def test_build_replaces_what_it_wrote_before(made, tmp_path, monkeypatch):
    folder, long = tmp_path / "site", tmp_path / ("t" * 200)
    long.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(long))  # too long a path for a socket
    monkeypatch.delitem(process.current_process()._config, "tempdir", raising=False)
    replace_files({folder: {"gone/index.html": "former", "index.html": "former"}}, "")
    (folder / "CNAME").write_text("kept")
    assert site.build(made, folder, "") == []
    assert (folder / "index.html").read_text() != "former"
    assert (folder / "machines.html").exists() and (folder / "assets" / "site.js").exists()
    assert not (folder / "gone" / "index.html").exists() and (folder / "CNAME").exists()
    assert not [*folder.rglob("*.tmp")]


def html_table(*cells):
    axis = TableColumn(
        "size", "size", tuple(Cell(f"s{n}", f"s{n}") for n in range(len(cells))), is_axis=True
    )
    return HtmlPage(formats.html(Table("Steps", (axis, TableColumn("t", "time", cells, "ms")))))


def test_cell_has_its_unrounded_number_and_interval():
    page = html_table(Cell("1.23 (1.2-1.3)", 1.2345678, 1.2, 1.3, marks=("stale",), row="k"))
    named = {name: of for name, of in page.all("td")[1].items() if name.startswith("data")}
    values = {"data-value": "1.2345678", "data-low": "1.2", "data-high": "1.3", "data-row": "k"}
    assert named == values
    assert page.cells[-1] == "1.23 (1.2-1.3)ˢ" and "stale: code or environment" in page.text
    assert "data-axis" in page.all("th")[0] and "data-axis" not in page.all("th")[1]


@pytest.mark.parametrize(
    ("link", "there"),
    [
        ("report.md", "index.html"),
        ("../machines.md", "../machines.html"),
        ("nvidia/report.md#method", "nvidia/index.html#method"),
        ("traces/a.json.gz", "traces/a.json.gz"),
        ("https://example.org/report.md", "https://example.org/report.md"),
    ],
)
def test_links_between_pages_lead_to_their_html(link, there):
    assert target(link) == there


def test_ratio_of_machines_puts_the_faster_one_first(machines):
    (line,) = ratios(machines)
    assert line["machines"] == "one over other" and line["cells"] == 2
    assert line["mean"] == pytest.approx(2.0) and line["bound"] == "neither"
    (turned,) = ratios(machines[::-1])
    assert turned["machines"] == "one over other" and turned["mean"] == pytest.approx(2.0)


@pytest.mark.parametrize(
    ("flops", "bytes_", "bound", "expected"),
    [
        (0.6e12, 0, "compute", 1.0),  # 0.6 ms at the peak, of 1 ms
        (0.4e12, 0, "neither", None),
        (0, 0.6e9, "memory", 4800 / 3350),
        (0.2e12, 0.4e9, "memory", 4800 / 3350),
    ],
)
def test_bound_of_a_row_decides_which_data_sheet_counts(flops, bytes_, bound, expected):
    ceilings = [
        planted.row("ceilings", 1.0, operation="matmul", dtype="bfloat16", tflops=1000.0),
        planted.row("ceilings", 1.0, operation="copy", dtype="float32", bandwidth_gbps=1000.0),
    ]
    row = {"dtype": "bfloat16", "flops": flops, "bytes": bytes_}
    one, other = (
        planted.evidence(*ceilings, at(256, 1.0, **row), facts={**planted.H200, "device": device})
        for device in ("NVIDIA H200", "NVIDIA H100 80GB HBM3")
    )
    (found,) = compared(one, other, "attention").to_dict("records")
    assert found["bound"] == bound
    assert found["sheets"] == pytest.approx(expected or float("nan"), nan_ok=True)
