"""Tables: lines, columns, captions and notes from judged rows."""

import json
from dataclasses import replace
from math import nan

import pandas as pd
import pytest
from planted import evidence, row

from lmperf.reporting import formats
from lmperf.reporting.columns import across, number, over, rate, status, time
from lmperf.reporting.rows import Rows
from lmperf.reporting.tables import Layout

GRID = [(n, d, who) for n in (1024, 4096) for d in (64, 128) for who in ("triton", "sdpa_cudnn")]


@pytest.fixture(scope="module")
def here():
    rows = [
        row("flash_attention", 1.0 if who == "triton" else 2.0, seq_len=n, d_head=d, flops=1e11)
        | {"implementation": who}
        for n, d, who in GRID
    ]
    lost = row("flash_attention", implementation="triton", seq_len=8192, status="oom")
    return evidence(*rows, lost)


def tables(here, lines, columns, **options):
    rows = Rows(here, "flash_attention", here.rows("flash_attention"))
    return Layout(lines.split(), columns, **options).tables(rows)


def shown(table):
    return [[str(cell) for cell in line] for line in table.lines]


def test_rows_of_a_line_stand_side_by_side(here):
    (table,) = tables(
        here, "seq_len d_head", [time("triton"), time("sdpa_cudnn"), over("triton", "sdpa_cudnn")]
    )
    assert [column.header for column in table.columns] == [
        *("length", "d_head", "lmperf's kernel (ms)", "SDPA cuDNN (ms)", "over SDPA cuDNN")
    ]
    assert shown(table)[0][:2] == ["1,024", "64"] and shown(table)[0][4].startswith("2.00x")
    assert shown(table)[-1][2:] == ["OOM", "–", "–"]


def test_values_that_lines_share_go_to_the_caption(here):
    found = tables(here, "seq_len d_head", [rate("triton")], split=["d_head"], what="Rates")
    assert [table.caption for table in found] == ["Rates, d_head 64", "Rates, d_head 128"]
    assert all(table.columns[0].name == "seq_len" for table in found)


def test_table_without_an_axis_and_a_key_is_json(here):
    rows = pd.DataFrame([{"seq_len": n, "cuda_graph": nan, "ms": 1.0, "key": nan} for n in (1, 2)])
    (table,) = Layout(["seq_len", "cuda_graph"], [number("ms")]).tables(Rows(here, "", rows))
    assert (
        json.loads(formats.to_json(table))["columns"][1]["cells"]
        == [{"words": "1.00", "value": 1.0}] * 2
    )


def test_column_in_which_nothing_ran_is_left_out(here):
    (table,) = tables(here, "seq_len d_head", [time("triton"), time("flex")])
    assert [column.name for column in table.columns[2:]] == ["triton.ms"]
    assert tables(here, "seq_len", [time("flex")]) == []


def test_caption_keeps_a_users_name_without_notes_on_nothing():
    rows = [row("lrpe", implementation=name, status="oom") for name in ("mine", "triton")]
    lines = Rows(here := evidence(*rows), "lrpe", here.rows("lrpe"))
    found = Layout(["implementation"], [time()], split=["implementation"]).tables(lines)
    assert [table.caption.partition(",")[0] for table in found] == ["Lmperf's kernel", "mine"]
    assert not any(table.notes for table in found)


def test_columns_are_repeated_across_an_axis(here):
    (table,) = tables(
        here,
        "seq_len",
        across("d_head", [64, 128], number("ms", "Triton", unit="ms", owner="triton")),
    )
    assert [c.header for c in table.columns] == ["length", "64, Triton (ms)", "128, Triton (ms)"]
    assert shown(table)[0] == ["1,024", "1.00", "1.00"]


def test_cells_hold_numbers_and_keys(here):
    (table,) = tables(here, "seq_len d_head", [time("triton"), over("triton", "sdpa_cudnn")])
    cell = table.columns[3].cells[0]
    assert cell.value == pytest.approx(2.0) and cell.low <= 2 <= cell.high and cell.n == 8
    assert cell.verdict == "faster" and cell.row and cell.base and cell.row != cell.base


def test_expressions_and_second_numbers_make_columns(here):
    columns = [
        number("ms * 1000", "time", "whole", unit="us", owner="triton"),
        number("ms", "both", "fixed", words="{value} of {second}", second=("seq_len", "whole")),
        status(),
    ]
    (table,) = tables(here, "implementation seq_len d_head", columns)
    assert shown(table)[0][3:] == ["1,000", "1.0 of 1,024", "ok"]
    assert table.columns[3].header == "time (us)"


@pytest.fixture(scope="module")
def table():
    rows = [
        row("end_to_end", 10.0, size="0.13B", bound="host", phase="train_step"),
        row("end_to_end", 20.0, size="0.42B", marks="capped", phase="train_step"),
        row("end_to_end", size="0.97B", status="oom", phase="train_step"),
    ]
    here = evidence(*rows)
    rows = Rows(here, "end_to_end", here.rows("end_to_end"))
    (table,) = Layout(["size"], [time("", "a|b")], what="Steps | of <us>").tables(rows)
    return replace(table, id="E1", again=True)


def test_markdown_has_italics_signs_and_their_legend(table):
    shown = formats.markdown(table)
    assert "| *10.0 (9.98-10.0)* |" in shown and "20.0 (20.0-20.0)ᶜ" in shown
    assert "ᶜ capped: power or heat held the device back (1 cell)." in shown
    assert "*Italic: the step waited for the CPU.*" in shown and "a&#124;b (ms)" in shown


def test_long_markdown_is_folded(table):
    assert "<details>" not in formats.markdown(table)
    long = type(table)("Long", tuple(type(c)(c.name, c.header, c.cells * 6) for c in table.columns))
    assert formats.markdown(long).startswith("<details>\n<summary>Long (18 lines)</summary>")


def test_csv_and_json_have_unrounded_numbers(table):
    lines = formats.to_csv(table).splitlines()
    assert lines[0] == "table,size,ms,ms.low,ms.high,ms.state,ms.marks,ms.waits"
    assert lines[1].startswith("Steps | of <us>,small,10.0,9.98,10.02,,,True")
    assert lines[3].split(",")[5] == "oom"
    cells = formats.document(table)["columns"][1]["cells"]
    assert cells[0]["value"] == 10.0 and cells[0]["waits"] and "value" not in cells[2]


def test_numbers_that_json_lacks_are_texts(here):
    rows = pd.DataFrame([{"seq_len": 1, "error": float("inf"), "key": "k"}])
    (table,) = Layout(["seq_len"], [number("error")]).tables(Rows(here, "", rows))
    (cell,) = json.loads(formats.to_json(table))["columns"][1]["cells"]
    assert cell["value"] == "inf"


def test_typst_shows_the_same_words_and_no_markup_of_theirs(table):
    typst = formats.typst(table)
    assert "[_10.0 (9.98-10.0)_]" in typst and "table.header(" in typst and "OOM" in typst
    assert r"\<us\>" in typst and formats.in_typst("- *a* $x$ [b]") == r"\- \*a\* \$x\$ \[b\]"


def test_latex_and_terminal_show_the_same_words(table):
    latex, terminal = formats.latex(table), formats.terminal(table)
    assert r"\emph{10.0 (9.98-10.0)}" in latex and r"a\textbar{}b (ms)" in latex
    assert "Steps | of <us>" in terminal and "OOM" in terminal and "&#" not in terminal
