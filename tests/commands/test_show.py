"""Tests of `lmperf show`, which prints tables of the evidence for a terminal or a paper."""

import csv
import io

import pytest
from made_up import OK, pretend

from lmperf.reporting.numbers import read_csv


@pytest.fixture
def measured(lmperf, monkeypatch):
    """Evidence of the one cell, whose rows are made up."""
    assert "no evidence of machine here" in lmperf("show", "attention")[2]
    pretend(monkeypatch, lambda *_: OK)
    assert lmperf("measure", "flash_attention")[0] == 0


@pytest.mark.machine
def test_show_prints_a_page_or_one_table(measured, folder, lmperf):
    code, out, said = lmperf("show", "flash_attention")
    assert code == 0, said
    assert "forward, PyTorch (ms)" in out
    code, out, said = lmperf("show")
    assert code == 0, said
    code, _, said = lmperf("show", "flash_attention", "--table", "F99")
    assert code == 2 and "--table: unknown table F99; choose one of: " in said
    name = said.rpartition("choose one of: ")[2].split(",")[0].strip()
    code, out, _ = lmperf("show", "flash_attention", "--table", name, "--format", "csv")
    assert code == 0 and list(csv.reader(io.StringIO(out)))
    code, out, said = lmperf("show", "--format", "csv", "--output", "tables")
    assert code == 0 and not out and "tables to tables" in said
    written = {path.name: path.read_text() for path in (folder / "tables").iterdir()}
    assert f"{name}-1.csv" in written
    for text in written.values():  # one table a file: a single header line
        header, *lines = csv.reader(io.StringIO(text))
        assert header[0] == "table" and lines and all(len(line) == len(header) for line in lines)
        assert header not in lines
    (folder / "file").touch()
    assert "cannot be written: not a directory" in lmperf("show", "--output", "file/tables")[2]


def test_missing_evidence_or_page_is_named(measured, lmperf):
    said = lmperf("show", "flash")[2]
    assert "unknown page flash; choose one of: report, flash_attention, course, method" in said
    assert "here has no evidence of lrpe; run: lmperf measure lrpe" in lmperf("show", "lrpe")[2]


@pytest.mark.slow
def test_printed_number_is_shown_with_its_rows(here, lmperf):
    entries = read_csv((here / "report/here/numbers.csv").read_text())
    one = next(one for one in entries if one.rows)
    code, out, said = lmperf("show", "--number", one.number)
    assert code == 0, said
    assert f"{one.page}: {one.value}" in out and one.where in out
    assert f"  {one.rows.split()[0]}  flash_attention_check: batch=" in out
    assert lmperf("show", one.page, "--number", one.number)[0] == 0
    code, _, said = lmperf("show", "--number", one.number, "--format", "csv")
    assert code == 2 and "leave --table, --format and --output out" in said
    code, _, said = lmperf("show", "method", "--number", one.number)
    assert code == 2 and said.startswith(f"lmperf: --number: no page prints {one.number}; ")
