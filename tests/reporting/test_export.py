"""The report of a machine as one file."""

import shutil

import planted
import pytest
from html_page import HtmlPage

from lmperf.reporting import export

EVIL = "<script>alert(1)</script> \\input{x} 50 % & [y] *z*"
FIRST = """# Models on {{ machine.device }}

**Use bf16**, see [Lengths](mine.md#lengths) and [traces](traces/a.json.gz). *Italic* `a_b`.

- {{ machine.driver }}

{% filter table(rows("attention")) %}
{seq_len}
time: {time} | reason: {reason}
{% endfilter %}

```python
step()
```
"""
MINE = """# Lengths of mine

## Lengths

{% filter table(rows("attention")) %}
{seq_len}
time: {time}
{% endfilter %}

{{ line_chart("Lengths", rows("attention").frame, "seq_len", "ms", ("length", "ms")) }}
"""


@pytest.fixture(scope="module")
def own(tmp_path_factory):
    folder = tmp_path_factory.mktemp("templates")
    (folder / "report.md.j2").write_text(FIRST)
    (folder / "mine.md.j2").write_text(MINE)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("lmperf.reporting.pages.page_names", lambda *of: ["mine"])
        yield folder


@pytest.fixture(scope="module")
def evidence():
    rows = [
        planted.row("attention", ms, implementation="eager", seq_len=length, reason=EVIL)
        for length, ms in ((256, 1.0), (1024, 2.0))
    ]
    return planted.evidence(*rows, facts={**planted.H200, "driver": EVIL})


@pytest.fixture(scope="module")
def document(evidence, own):
    return export.html(evidence, own)


@pytest.mark.slow
def test_document_needs_no_other_file(document):
    page = HtmlPage(document)
    assert {of["content"] for of in page.all("meta") if "http-equiv" in of} == {
        "default-src 'none'; style-src 'unsafe-inline'; img-src data:; base-uri 'none';"
        " form-action 'none'"
    }
    assert not page.all("script") and not page.all("link")
    images = [of["src"] for of in page.all("img")] + [of["srcset"] for of in page.all("source")]
    assert len(images) == 2 and all(one.startswith("data:image/svg+xml") for one in images)
    assert EVIL in page.text


def test_links_between_pages_stay_within_the_document(document):
    page = HtmlPage(document)
    ids = [of["id"] for _, of in page.elements if "id" in of]
    assert len(ids) == len({*ids}) and "mine-lengths" in ids
    assert [of["href"] for of in page.all("a")] == ["#mine-lengths"]
    assert "traces" in page.text, "a link to another file becomes text"


@pytest.mark.process
def test_document_is_printed_as_pdf(document):
    if not any(map(shutil.which, export.BROWSERS)):
        pytest.skip("chromium is not installed")
    assert export.pdf(document).startswith(b"%PDF")
