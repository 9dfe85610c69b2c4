"""The limits of write-ups: sentences, tables, lines and bytes, rendered and as published."""

from pathlib import Path

import pytest
from limits import WRITE_UP_BYTES, WRITE_UP_LINES, faults, sections, sentences

from lmperf.reporting import glossary

pytestmark = pytest.mark.machine

ROOT = Path(__file__).parents[2]
PUBLISHED = ["cpu-amd-epyc-avx2", "nvidia-h100-80gb-hbm3", "nvidia-h200", "nvidia-h200-x2"]
# Its lines name benchmarks and failed cells, as long as these are.
LISTED = "Limits and failed checks"


def test_sentences_are_counted_without_links_and_names():
    text = "- At 3.4B (E6) 1.5x, 20 % and -3 ms. Further 1,024 of 5. [Memory](memory.md)\n"
    assert sentences(text) == ["At 3.4B (E6) 1.5x, 20 % and -3 ms.", "Further 1,024 of 5."]
    assert faults(text) == []
    assert faults("One 1, 2, 3 and 4.") == ["6 words, 4 numbers: One 1, 2, 3 and 4."]
    assert faults("word " * 26)[0].startswith("26 words, 0 numbers")


def test_wide_and_long_tables_are_faults():
    assert faults("| a | b |\n|:--|:--|\n" + "| 1 | 2 |\n" * 12) == []
    assert faults("| a | b |\n|:--|:--|\n" + "| 1 | 2 |\n" * 13) == [
        "2 columns, 13 lines: | a | b |"
    ]
    assert faults("| a " * 8 + "|\n|:--|\n| 1 |\n")[0].startswith("8 columns, 1 lines")


@pytest.fixture
def write_up(rendered):
    return rendered[2]["report.md"]


def assert_within_limits(text):
    assert text.count("\n") <= WRITE_UP_LINES and len(text.encode()) <= WRITE_UP_BYTES
    found = {title: faults(part) for title, part in sections(text).items() if title != LISTED}
    listed = [f"{title}: {fault}" for title, part in found.items() for fault in part]
    assert not listed, "\n".join(listed)


def test_rendered_write_up_keeps_the_limits(write_up):
    assert_within_limits(write_up)


@pytest.mark.parametrize("machine", PUBLISHED)
def test_published_write_up_keeps_the_limits(machine):
    assert_within_limits((ROOT / "report" / machine / "report.md").read_text())


def test_glossary_stands_before_the_findings_and_their_terms(write_up):
    terms = [term for term in glossary.TERMS if f"- *{term}*:" in write_up]
    assert terms
    before, _, after = write_up.partition(f"- *{terms[0]}*:")
    assert "\n## In short\n" in after
    used = {term for term in glossary.TERMS if glossary.uses(before, term)}
    assert used <= {*glossary.FROM_ABOVE}


def test_glossary_explains_no_term_that_only_the_method_uses():
    text = "Two comparisons are unresolved.\n\n## Method\n\nA *burst* step is called singly.\n"
    assert [*glossary.terms(text)] == ["unresolved"]
    assert [*glossary.terms(f"A burst step.\n{text}")] == ["unresolved", "burst and sustained"]


def test_glossary_has_no_term_that_the_write_up_lacks(write_up):
    lines = [line for line in write_up.splitlines() if not line.startswith("- *")]
    used = glossary.terms("\n".join(lines))
    assert [line.split("*")[1] for line in write_up.splitlines() if line.startswith("- *")][
        : len(used)
    ] == list(used)
