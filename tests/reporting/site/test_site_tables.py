"""Tests of the tables of the site."""

import json
from dataclasses import replace

from site_pages import Page

from lmperf.reporting.foreign import taken
from lmperf.reporting.site.rows import FIELDS, Rows
from lmperf.reporting.site.tables import MOST_LINES, html_table
from lmperf.results import AXIS, TIME, Cell, Column, Table


def table_of(*cells, role=TIME, lines=1):
    names = tuple(Cell(word, word) for word in ("3.4B", "small", "medium")[:lines])
    axis = Column("size", "size", names, role=AXIS)
    return Table("Steps", (axis, Column("t", "time (ms)", cells, "ms", role=role)))


def one_benchmark(evidence, stem):
    """The evidence of one benchmark only: keys of synthetic rows differ within a benchmark."""
    return replace(evidence, frames={stem: evidence.frames[stem]})


def page_of(table):
    return Page(html_table(table, Rows()))


def test_cell_has_its_unrounded_number_interval_and_samples():
    page = page_of(table_of(Cell("1.23 (1.2-1.3)", 1.2345678, 1.2, 1.3, 20, marks=("stale",))))
    attributes = page.all("td")[1]
    named = {name: attributes[f"data-{name}"] for name in ("value", "low", "high", "n")}
    assert named == {"value": "1.2345678", "low": "1.2", "high": "1.3", "n": "20"}
    assert page.cells[-1] == "1.23 (1.2-1.3)ˢ"
    assert "stale: code or environment has changed since" in page.text


def test_cell_without_a_number_has_none_to_sort_by():
    page = page_of(table_of(Cell("OOM", state="oom")))
    assert "data-value" not in page.all("td")[1]


def test_sizes_sort_in_the_order_of_reports():
    cells = tuple(Cell(str(n), n) for n in range(3))
    page = page_of(table_of(*cells, lines=3))
    words = page.cells[2::2]
    ranks = {word: of["data-sort"] for word, of in zip(words, page.all("td")[::2], strict=True)}
    assert sorted(ranks, key=ranks.get) == ["small", "medium", "3.4B"]


def test_hostile_words_stay_text():
    hostile = taken("<script>alert(1)</script>")
    table = table_of(Cell(hostile, hostile))
    page = page_of(Table(hostile, table.columns, notes=hostile))
    assert not page.all("script") and page.text.count("<script>alert(1)</script>") == 3


def test_long_table_refers_to_the_csv():
    cells = tuple(Cell(str(n), n) for n in range(MOST_LINES + 5))
    page = page_of(Table("Long", (Column("n", "n", cells),)))
    assert len(page.all("td")) == MOST_LINES
    assert "5 further lines left out here: see the CSV." in page.text


def test_row_behind_a_cell_has_clock_commit_key_and_command(gpu):
    gpu = one_benchmark(gpu, "flash_attention")
    frame = gpu.frame("flash_attention")
    row = frame[frame["status"] == "ok"].iloc[0]
    rows = Rows(gpu)
    page = Page(html_table(table_of(Cell("1", 1.0, row=row["key"])), rows))
    assert page.all("td")[1]["data-row"] == "0"
    names, found = json.loads(str(rows.script()))
    known = dict(zip(names, found, strict=True))
    assert tuple(names) == FIELDS
    assert known["median_ms"] == row["median_ms"] and known["commit"] == row["commit"]
    assert known["low_ms"] <= known["median_ms"] <= known["high_ms"]
    assert known["key"] == row["key"] and known["calls"] == row["repetitions"]
    assert known["command"].startswith("lmperf run flash_attention --only ")
    assert known["command"].endswith(f"--against {gpu.machine}")


def test_row_behind_a_cell_says_that_it_is_stale(gpu_copy):
    frame = gpu_copy.frames["flash_attention"]
    gpu_copy.frames["flash_attention"] = frame.assign(stale=frame.index == frame.index[0])
    rows = Rows(one_benchmark(gpu_copy, "flash_attention"))
    for key in frame["key"].iloc[:2]:
        rows.place(key)
    names, *found = json.loads(str(rows.script()))
    assert ["stale" in row[names.index("marks")] for row in found] == [True, False]


def test_script_block_cannot_be_closed_by_evidence(gpu_copy):
    frame = gpu_copy.frames["attention"].assign(commit="</script><script>alert(1)</script>")
    gpu_copy.frames["attention"] = frame
    rows = Rows(one_benchmark(gpu_copy, "attention"))
    rows.place(frame["key"].iloc[0])
    assert "<" not in rows.script() and "alert(1)" in rows.script()
