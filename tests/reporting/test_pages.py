"""The write-up (report.md) and the pages of its sections: order, length and links."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

import pytest
import synthetic
from limits import WRITE_UP_BYTES, WRITE_UP_LINES
from limits import sections as headed

from lmperf.benchmarks import load
from lmperf.reporting import pages
from lmperf.reporting.findings import PLACES, SECTION, SHORT
from lmperf.reporting.sections import declared, stems
from lmperf.results import SIGNS

pytestmark = pytest.mark.machine

ROOT = Path(__file__).parents[2]
MOST_FINDINGS, MOST_WORDS = 80, 250
PAGE_BYTES = 250_000
HEAD_LINES = 12
# All tables that the report must have, except E5, which compares several machines.
NUMBERED = {
    *("E1", "E2", "E3", "E4", "P1", "P2", "P3", "P4", "M1", "M2", "Y1", "Y2", "Y3", "Y4", "Y5"),
    *("A1", "A2", "A3", "A4", "F1", "F2", "F3", "F4", "F5", "L1", "L2"),
}


def test_write_up_and_pages_keep_their_size_limits(rendered):
    _, _, files = rendered
    write_up = files["report.md"]
    assert write_up.count("\n") <= WRITE_UP_LINES and len(write_up.encode()) <= WRITE_UP_BYTES
    for name, text in files.items():
        assert not name.endswith(".md") or len(text.encode()) <= PAGE_BYTES, name


def words_before_the_first_table(write_up: str) -> int:
    """The number of words of the write-up before its first table, including the caption."""
    before = write_up[: write_up.index("\n|")]
    tokens = re.sub(r"\]\([^)]*\)", "]", before).split()
    return sum(any(sign.isalnum() for sign in token) for token in tokens)


def test_write_up_begins_with_a_short_summary(rendered):
    write_up = rendered[2]["report.md"]
    assert words_before_the_first_table(write_up) <= MOST_WORDS
    assert write_up.split("\n## ")[1].startswith(
        "What to run\n\n**Recommended train step, context "
    )
    short = [line for line in headed(write_up)["In short"].splitlines() if line[:2] == "- "]
    assert 4 <= len(short) <= 8
    assert all(re.search(r"\d.*\]\(\w+\.md\)$", line) for line in short), "a number, and a link"


@pytest.mark.parametrize(
    "path", sorted(ROOT.glob("report/*/report.md")), ids=lambda p: p.parent.name
)
def test_published_write_up_keeps_its_size_limits(path):
    write_up = path.read_text()
    assert words_before_the_first_table(write_up) <= MOST_WORDS
    assert write_up.count("\n") <= WRITE_UP_LINES and len(write_up.encode()) <= WRITE_UP_BYTES
    assert all(page.stat().st_size <= PAGE_BYTES for page in path.parent.glob("*.md"))


def test_clean_evidence_shows_no_mark_and_no_other_load(rendered):
    files = {name: text for name, text in rendered[2].items() if name.endswith(".md")}
    assert "Other processes used" not in files["report.md"]
    assert not any(sign in text for text in files.values() for sign in SIGNS.values())


def test_every_list_item_is_on_its_own_line(rendered):
    for name, text in rendered[2].items():
        assert not re.search(r"\S- \*\*", text), name


def test_sections_have_a_finding_a_short_head_table_and_a_link(rendered):
    _, sections, files = rendered
    for section in sections:
        if not (section.section.in_write_up and section.measured):
            continue
        assert f"]({section.page})" in files["report.md"]
        assert section.head is None or section.head.length <= HEAD_LINES, section.stem
        said = Counter(s.place for s in section.statements)
        assert said[SHORT] + said[SECTION] >= 1, f"{section.stem} says nothing"
        assert said[SECTION] <= 5, section.stem


def test_links_lead_to_existing_files_and_headings(rendered):
    _, _, files = rendered
    for name, text in files.items():
        for target in re.findall(r"\]\(([^)#:]*)(?:#[^)]*)?\)", text):
            assert target in files or target.startswith(("traces/", "../", "evidence")), (
                name,
                target,
            )
        for target, anchor in re.findall(r"\]\(([\w.]+)#([^)]+)\)", text):
            headings = re.findall(r"^#+ (.*)$", files[target], re.MULTILINE)
            assert anchor in {anchor_of(h) for h in headings}, (name, target, anchor)
        for figure in re.findall(r'(?:src|srcset)="([^"]*)"', text):
            assert figure in files, figure


def anchor_of(heading: str) -> str:
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")


def test_markdown_pages_contain_no_banned_words(rendered):
    for name, text in rendered[2].items():
        for word in ("ontradicted", "could not be judged", "×", "claim"):
            assert not name.endswith(".md") or word not in text, (name, word)


def test_finding_names_are_unique_and_few():
    found = [f for stem in stems(synthetic.TEMPLATES) for f in declared(stem).findings]
    assert len(found) <= MOST_FINDINGS
    assert max(Counter(f.name for f in found).values()) == 1
    assert {f.place for f in found} <= set(PLACES)


def test_every_specified_table_exists_once():
    tables = [t.id for stem in stems(synthetic.TEMPLATES) for t in declared(stem).tables if t.id]
    assert set(tables) >= NUMBERED and max(Counter(tables).values()) == 1


def test_sections_are_in_the_order_of_the_write_up():
    expected = ["end_to_end", "mixed_precision", "memory", "attention", "flash_attention"]
    expected += ["profiles", "lrpe"]
    assert [stem for stem in stems(synthetic.TEMPLATES) if stem in expected] == expected


def test_machine_without_rows_is_reported_as_unmeasured():
    from lmperf.reporting.evidence import MachineEvidence

    evidence = MachineEvidence("bare")
    sections = pages.composed(evidence, synthetic.TEMPLATES)
    files = pages.machine_files(evidence, sections, synthetic.TEMPLATES)
    assert "Nothing has been measured" in files["report.md"]


def test_overview_is_the_write_up_of_this_machine(rendered):
    evidence, sections, files = rendered
    made = pages.overview_files([evidence], evidence.machine, sections, synthetic.TEMPLATES)
    assert list(made) == ["report.md"]
    write_up = made["report.md"].replace(f"{evidence.machine}/", "")
    assert write_up == files["report.md"]


def test_overview_states_why_this_machine_is_unmeasured():
    other = synthetic.cpu_evidence()
    made = pages.overview_files([other], "here", [], synthetic.TEMPLATES, "torch is not installed")
    assert "torch is not installed" in made["report.md"] and "cpu-example" in made["report.md"]


def test_limits_and_trust_line_count_the_same_rows():
    evidence = synthetic.cpu_evidence()
    evidence.missing.update(repeatability=["a row"] * 3, lrpe=["a row"] * 2)
    evidence.stale.update(repeatability=["a row"] * 4)
    write_up = pages.write_up(
        evidence, pages.composed(evidence, synthetic.TEMPLATES, drawn=False), synthetic.TEMPLATES
    )
    assert "4 results are stale" in write_up and "5 results are missing" in write_up
    limits = headed(write_up)["Limits and failed checks"]
    assert "Repeatability (R1): 4 measurements stale" in limits
    assert "; 3 measurements of the grid missing" in limits


def test_benchmarks_without_rows_are_named_once_and_have_no_page():
    evidence = synthetic.small_gpu_evidence()
    asked = ("attention", "attention_limit", "lrpe", "flash_attention", "flash_attention_check")
    evidence.missing = dict.fromkeys(asked, ["a row"] * 7)
    for stem in ("flash_attention", "flash_attention_check"):
        evidence.frames.pop(stem, None)
    sections = pages.composed(evidence, synthetic.TEMPLATES, drawn=False)
    files = pages.machine_files(evidence, sections, synthetic.TEMPLATES)
    write_up, title = files["report.md"], load("flash_attention").title
    left_out = evidence.unmeasured
    words = f"{7 * len(left_out)} of them of {len(left_out)} benchmarks that were not measured"
    assert f"{7 * len(asked)} results are missing, {words}." in write_up
    limits = headed(write_up)["Limits and failed checks"]
    assert len([line for line in limits.splitlines() if title in line]) == 1
    assert f"- Not measured on this machine: {title}; {title}: kernel tests" in limits
    assert "flash_attention.md" not in files and "a row" in files["attention.md"]


def test_unchecked_rows_are_counted_and_explained():
    evidence = synthetic.small_gpu_evidence()
    steps = evidence.frames["end_to_end"]
    unchecked = steps["phase"].eq("train_step") & steps["implementation"].eq("eager")
    evidence.frames["end_to_end"] = steps.assign(
        status=steps["status"].mask(unchecked, "unchecked"),
        error_bound=steps["error_bound"].mask(unchecked),
    )
    sections = pages.composed(evidence, synthetic.TEMPLATES, drawn=False)
    write_up = pages.write_up(evidence, sections, synthetic.TEMPLATES)
    parts, number = headed(write_up), unchecked.sum()
    assert f"{number} results were not checked and are withheld: their checks" in parts[""]
    limits = parts["Limits and failed checks"]
    assert f"- End to end: {number} measurements not checked: their checks do not fit" in limits
    (section,) = (text for title, text in parts.items() if title.startswith("End to end"))
    assert f"{number} not checked" in section
    assert section.count("Not checked: the measured call fits into memory") == 1
    (composed,) = (section for section in sections if section.stem == "end_to_end")
    page = pages.page(evidence, composed, synthetic.TEMPLATES)
    assert "Not checked: the measured call fits into memory" in page


def test_failed_stale_and_missing_rows_are_counted_and_named():
    evidence = synthetic.cpu_evidence()
    evidence.stale["attention"] = ["a stale row"]
    evidence.missing["lrpe"] = ["a missing row"]
    evidence.frames["attention"].loc[0, "status"] = "failed_check"
    sections = pages.composed(evidence, synthetic.TEMPLATES, drawn=False)
    files = pages.machine_files(evidence, sections, synthetic.TEMPLATES)
    top = files["report.md"].split("## ")[0]
    assert " failed and is withheld. 1 result is stale: " in top and "1 result is missing." in top
    assert "a stale row" in files["attention.md"] and "a missing row" in files["lrpe.md"]
    assert "## Limits and failed checks" in files["report.md"]


def test_reason_that_benchmarks_share_is_a_limit_of_the_machine():
    evidence = synthetic.cpu_evidence()
    for stem, reason in (
        ("attention", "no <bf16>"),
        ("memory", "no <bf16>"),
        ("lrpe", "no kernel"),
    ):
        frame = evidence.frames[stem]
        frame["reason"] = frame.get("reason")
        frame.loc[frame.index[:2], ["status", "reason"]] = ["unsupported", reason]
    sections = pages.composed(evidence, synthetic.TEMPLATES, drawn=False)
    limits = headed(pages.write_up(evidence, sections, synthetic.TEMPLATES))
    lines = limits["Limits and failed checks"].splitlines()
    assert [line for line in lines if "Unsupported" in line] == [
        "- Unsupported, 4 rows: no &lt;bf16>."
    ]


def test_page_summarises_its_missing_rows():
    evidence = synthetic.cpu_evidence()
    rows = evidence.frames["lrpe"]
    evidence.missing["lrpe"] = [f"row {number}" for number in range(len(rows))]
    evidence.lacking["lrpe"] = rows
    (section,) = (
        one
        for one in pages.composed(evidence, synthetic.TEMPLATES, drawn=False)
        if one.stem == "lrpe"
    )
    page = pages.page(evidence, section, synthetic.TEMPLATES)
    listed = page.partition("List of missing measurements")[2].partition("</details>")[0]
    lines = [line for line in listed.splitlines() if line.startswith("- ")]
    assert 0 < len(lines) <= 12 and "row 0" not in page
    assert f"{len(rows)} measurements of the grid are missing; `lmperf verify --verbose`" in page
