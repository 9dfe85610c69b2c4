"""The tables of the evidence, on a terminal and in the forms of a paper."""

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

FRAME = pd.DataFrame({"name": [taken("a_b|c <i> 5 %")], "time (ms)": ["1.20 (1.1-1.3)"]})
TABLE = from_frame("Times of a & b", FRAME, "Median.")


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
def test_what_is_foreign_is_shown_as_it_is_in_every_form(form, words):
    text = FORMATS[form](TABLE)
    assert all(word in text for word in words), text


def test_a_spreadsheet_reads_the_cells_again():
    rows = list(csv.reader(io.StringIO(FORMATS["csv"](TABLE))))
    named = ["table", "name", "time"]
    assert rows == [named, ["Times of a & b", "a_b|c <i> 5 %", "1.20 (1.1-1.3)"]]


def test_a_link_in_a_sentence_is_its_words():
    assert sentence("see [the page](memory.md#m1), 2.1x") == "see the page, 2.1x"


def test_a_section_has_all_its_tables_and_one_can_be_had_alone(folder, lmperf):
    templates = Path(__file__).parents[2] / "templates"
    (folder / "templates").symlink_to(templates)
    only = ("--implementations", "eager")
    assert lmperf("run", "flash_attention", "--keep", *only)[0] == 0
    code, out, said = lmperf("show", "flash_attention")
    assert code == 0, said
    assert out.startswith("FlashAttention-2\n") and "32" in out
    code, _, said = lmperf("show", "flash_attention", "--table", "F99")
    assert code == 2 and "--table: there is no F99 here; there are: " in said
    name = said.rpartition("there are: ")[2].split(",")[0].strip()
    code, out, _ = lmperf("show", "flash_attention", "--table", name, "--format", "csv")
    assert code == 0 and list(csv.reader(io.StringIO(out)))


def test_what_was_not_measured_is_said(folder, lmperf):
    templates = Path(__file__).parents[2] / "templates"
    (folder / "templates").symlink_to(templates)
    assert "no evidence of machine here" in lmperf("show", "attention")[2]
    assert "there is no section nothing" in lmperf("show", "nothing")[2]


def test_a_table_that_several_sections_have_is_shown_of_each():
    shown, none = (SimpleNamespace(parts={"Host": parts, "F1": []}) for parts in ([TABLE], []))
    assert _parts([shown, none, shown], "Host") == [TABLE, TABLE]
    with pytest.raises(UserError, match="there is no F1 here; there are: Host"):
        _parts([none, shown], "F1")
