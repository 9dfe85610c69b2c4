"""Tests of `lmperf show`, which prints tables of the evidence for a terminal or a paper."""

import csv
import io
from pathlib import Path
from types import SimpleNamespace

import pandas as pd
import pytest

from lmperf.commands.show import _parts
from lmperf.errors import UserError
from lmperf.reporting.foreign import taken
from lmperf.reporting.formats import FORMATS, sentence
from lmperf.reporting.tables import from_frame

FRAME = pd.DataFrame({"name": [taken("a_b|c <i> 5 %")], "time": ["1.20 (1.1-1.3)"]})
TABLE = from_frame("Times of a & b", FRAME, "Median.", headers={"time": "time (ms)"})


@pytest.mark.parametrize(
    ("form", "words"),
    [
        ("text", ["Times of a & b", "a_b|c <i> 5 %", "1.20 (1.1-1.3)", "Median."]),
        ("markdown", ["**Times of a & b.**", "a_b\\|c &lt;i> 5 %"]),
        ("html", ["<caption>Times of a &amp; b</caption>", "<td>a_b&#124;c &#60;i&gt; 5 %"]),
        (
            "latex",
            [
                "% Times of a \\& b\n",
                r"a\_b\textbar{}c \textless{}i\textgreater{} 5 \%",
                r"\bottomrule",
            ],
        ),
    ],
)
def test_foreign_text_is_escaped_in_every_format(form, words):
    text = FORMATS[form](TABLE)
    assert all(word in text for word in words), text


def test_csv_cells_round_trip():
    rows = list(csv.reader(io.StringIO(FORMATS["csv"](TABLE))))
    named = ["table", "name", "time"]
    assert rows == [named, ["Times of a & b", "a_b|c <i> 5 %", "1.20 (1.1-1.3)"]]


def test_link_in_a_sentence_becomes_its_text():
    assert sentence("see [the page](memory.md#m1), 2.1x") == "see the page, 2.1x"


@pytest.mark.machine
def test_show_prints_a_section_or_one_table(folder, lmperf):
    templates = Path(__file__).parents[2] / "templates"
    (folder / "templates").symlink_to(templates)
    only = ("--implementations", "eager")
    assert lmperf("run", "flash_attention", "--keep", *only)[0] == 0
    code, out, said = lmperf("show", "flash_attention")
    assert code == 0, said
    assert out.startswith("FlashAttention-2\n") and "32" in out
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
    assert "--output: file/tables cannot be written" in lmperf("show", "--output", "file/tables")[2]


def test_missing_evidence_or_section_is_named(folder, lmperf):
    templates = Path(__file__).parents[2] / "templates"
    (folder / "templates").symlink_to(templates)
    assert "no evidence of machine here" in lmperf("show", "attention")[2]
    assert "unknown section nothing" in lmperf("show", "nothing")[2]


def test_table_of_several_sections_is_shown_for_each():
    shown, none = (SimpleNamespace(parts={"Host": parts, "F1": []}) for parts in ([TABLE], []))
    assert _parts([shown, none, shown], "Host") == [TABLE, TABLE]
    with pytest.raises(UserError, match="unknown table F1; choose one of: Host"):
        _parts([none, shown], "F1")
