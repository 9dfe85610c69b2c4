"""`same_tables.py` reports each difference between two renderings, and no other."""

import pickle

import pytest
import rendered_evidence
import same_tables
import synthetic

PAGE = """# Attention

**Forward, bf16.**

| length | time (ms) | note |
|---:|---:|:---|
| 128 | 0.10 | a \\| b |
| 256 | 0.20 |  |

Median.

**Forward, bf16.**

| length | time (ms) |
|---:|---:|
| 128 | 0.30 |
"""


def test_equal_renderings_have_no_difference():
    assert same_tables.differences({"a.md": PAGE}, {"a.md": PAGE}) == []


@pytest.mark.parametrize(
    ("old", "new", "column", "row"),
    [
        ("0.20", "0.21", "time (ms)", "row 1: 256"),
        ("0.30", "0.31", "time (ms)", "row 0: 128"),
        ("a \\|", "c \\|", "note", "row 0: 128"),
        ("Median.", "Mean.", "", "text"),
        ("---:|---:|:---", "---|---:|:---", "", "white space or alignment"),
        ("| 256 | 0.20 |  |\n", "", "", "number of rows"),
        ("time (ms) | note", "time (s) | note", "", "headers"),
    ],
)
def test_planted_difference_is_found_at_its_place(old, new, column, row):
    assert old in PAGE
    found = same_tables.differences({"a.md": PAGE}, {"a.md": PAGE.replace(old, new)})
    assert (column, row) in {(one.column, one.row) for one in found}


def test_page_missing_from_one_rendering_is_a_difference():
    assert same_tables.differences({"a.md": PAGE}, {})


def test_tables_with_equal_captions_are_kept_apart():
    tables, _ = same_tables.parsed(PAGE)
    assert [len(table.rows) for table in tables.values()] == [2, 1]


@pytest.mark.process
def test_evidence_is_rendered_by_another_process(tmp_path):
    cpu = synthetic.small(synthetic.cpu_evidence())
    frames = {"attention": cpu.frames["attention"]}
    pickled = tmp_path / "evidence.pickle"
    pickled.write_bytes(
        pickle.dumps({"cpu": {"machine": "cpu", "facts": cpu.facts, "frames": frames}})
    )
    files = same_tables.rendered(same_tables.ROOT, pickled)
    tables, _ = same_tables.parsed(files["cpu/attention.md"])
    assert tables and "cpu/verdicts of attention" in files


@pytest.mark.slow
def test_faulty_evidence_has_marks_gaps_and_every_status():
    few = synthetic.small(synthetic.cpu_evidence())
    assert rendered_evidence.custom(few).frames["attention"]["implementation"].eq("mine").any()
    assert rendered_evidence.marked(few).frames["attention"]["marks"].notna().any()
    assert rendered_evidence.holes(few).frames["attention"]["median_ms"].isna().any()
    drawn = [rendered_evidence.drawn(few, seed) for seed in range(rendered_evidence.FAULTY)]
    seen = {status for e in drawn for frame in e.frames.values() for status in frame["status"]}
    assert {"crash", "failed_check", "nan", "ok", "oom", "timeout", "unsupported"} <= seen
