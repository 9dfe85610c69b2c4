"""Tables in CSV, JSON, HTML, LaTeX and Markdown: numbers for programs, safe text for readers."""

import csv
import io
import json
import math
import re
import shutil
import subprocess
from html.parser import HTMLParser

import pandas as pd
import pytest
import rendered_evidence
import synthetic

from lmperf.reporting import numbers
from lmperf.reporting.diff.comparison import VERDICTS
from lmperf.reporting.foreign import plain
from lmperf.reporting.formats import FORMATS, in_latex
from lmperf.reporting.sections import compose, stems
from lmperf.reporting.tables import as_cell, from_frame, kernel_times, step_times
from lmperf.results import DERIVED, HIGHER, LOWER, ROLES, TIME, Cell, Column, Table

TIMED = {
    **{"status": "ok", "implementation": "eager", "median_ms": 1.25, "mean_ms": 1.5},
    **{"least_ms": 1.0, "host_ms": None},
    **{"std_ms": 0.1, "repetitions": 60, "rounds_ms": "1.0;1.1;1.2;1.3;1.4;1.5"},
    **{"requested_bytes": None, "free_bytes": None, "key": "k1"},
}


def tables_of(evidence):
    """(name of the section, table) for all tables that the sections of a machine show."""
    found = []
    for stem in stems(synthetic.TEMPLATES):
        made = compose(stem, evidence, drawn=False)
        parts = [part for of in made.parts.values() for part in of]
        found += [(stem, part) for part in [*parts, *([made.head] if made.head else [])]]
    return found


@pytest.fixture(scope="module")
def usual_tables():
    """(section, table) of evidence without failures."""
    return tables_of(synthetic.small_gpu_evidence())


@pytest.fixture(scope="module")
def tables(usual_tables):
    """(section, table) of evidence without failures, and of evidence with every kind of fault."""
    few = synthetic.small_gpu_evidence()
    spoilt = rendered_evidence.marked(rendered_evidence.custom(rendered_evidence.drawn(few, 99)))
    return usual_tables + tables_of(rendered_evidence.hostile(spoilt))


def frame(*rows):
    return pd.DataFrame([{**TIMED, **row} for row in rows])


def test_kernel_time_cell_has_interval_count_and_row_key():
    time, gone = kernel_times(frame({"marks": "capped"}, {"status": "oom", "key": "k2"}))
    assert time == Cell("1.25 (1.00-1.50; 60)", 1.25, 1.0, 1.5, 60, marks=("capped",), row="k1")
    assert gone == Cell("OOM", state="oom", row="k2")


def test_step_time_cell_has_mean_deviation_and_median():
    cell = step_times(frame({}))[0]
    assert (cell.value, cell.std, cell.n, cell.second) == (1.5, 0.1, 60, 1.25)
    assert cell.words == "1.50 ± 0.10 (60), median 1.25"


@pytest.mark.parametrize(
    ("row", "state"),
    [
        ({"status": "crash"}, "crash"),
        ({"max_error": 2.0, "error_bound": 1.0}, "failed_check"),
        ({"floor_ms": 2.0}, "impossible"),
        ({"median_ms": None}, "not_recorded"),
    ],
)
def test_cell_without_a_value_says_why(row, state):
    cell = kernel_times(frame(row))[0]
    assert cell.value is None and cell.state == state


@pytest.mark.machine
def test_column_names_are_unique_and_roles_are_known(tables):
    for _, table in tables:
        names = [column.name for column in table.columns]
        assert len(set(names)) == len(names), (table.caption, names)
        for column in table.columns:
            assert column.role in ROLES and column.better in ("", LOWER, HIGHER)
            assert not column.format or callable(getattr(numbers, column.format))
            assert not column.name.isspace() and column.name
            assert column.role != TIME or (column.unit in ("ms", "s") and column.better == LOWER)


@pytest.mark.machine
def test_column_names_are_words_and_dots(usual_tables):
    names = {column.name for _, table in usual_tables for column in table.columns}
    assert [name for name in names if not re.fullmatch(r"[\w.+-]+", name)] == []


@pytest.mark.machine
def test_cells_of_times_and_ratios_have_a_number_or_a_reason(tables):
    for _, table in tables:
        for column in table.columns:
            if column.role in (TIME, DERIVED):
                for cell in column.cells:
                    assert isinstance(cell.value, int | float) or cell.state, (column, cell)
                    assert cell.verdict is None or cell.verdict in VERDICTS


@pytest.mark.machine
def test_speedup_columns_name_both_implementations(tables):
    names = {column.name for stem, t in tables if stem == "flash_attention" for column in t.columns}
    assert "forward.triton.over.sdpa_cudnn" in names and "backward.triton.tflops" in names


@pytest.mark.machine
def test_csv_has_numbers_in_columns_of_stable_names(tables):
    for _, table in tables:
        header, *rows = csv.reader(io.StringIO(FORMATS["csv"](table)))
        assert len(rows) == table.length and {len(row) for row in rows} == {len(header)}
        assert len(set(header)) == len(header)
        for column in table.columns:
            values = [row[header.index(plain(column.name))] for row in rows]
            if column.role in (TIME, DERIVED):
                assert all(value == "" or math.isfinite(float(value)) for value in values)
    text = FORMATS["csv"](tables[0][1])
    assert "±" not in text


def test_csv_adds_interval_count_verdict_and_state_columns():
    cells = [Cell("1.0x same", 1.0, 0.9, 1.1, 7, verdict="same"), Cell("OOM", state="oom")]
    column = Column("a.over.b", "over b", tuple(cells), second="median later")
    assert FORMATS["csv"](Table("T", (column,))).splitlines() == [
        "table,a.over.b,a.over.b.low,a.over.b.high,a.over.b.n,a.over.b.verdict,a.over.b.state",
        "T,1.0,0.9,1.1,7,same,",
        "T,,,,,,oom",
    ]


@pytest.mark.machine
def test_json_is_read_back_with_the_same_numbers(tables):
    for _, table in tables:
        read = json.loads(FORMATS["json"](table))
        for column, of in zip(table.columns, read["columns"], strict=True):
            assert [cell.get("value") for cell in of["cells"] if "second" in cell] == [
                cell.value for cell in column.cells if cell.second is not None
            ]
            assert [cell.get("state") for cell in of["cells"]] == [c.state for c in column.cells]


class Html(HTMLParser):
    """Collects the tags of an HTML page and the sort values of its cells, and counts the cells."""

    def __init__(self, text):
        super().__init__()
        self.tags, self.values, self.cells = set(), [], 0
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.tags.add(tag)
        self.cells += tag == "td"
        self.values += [value for name, value in attrs if name == "data-value"]


@pytest.mark.machine
def test_html_sorts_by_numbers_and_runs_nothing(tables):
    for _, table in tables:
        page = Html(FORMATS["html"](table))
        assert page.tags <= {"table", "caption", "thead", "tbody", "tr", "th", "td", "p"}
        assert page.cells == table.length * len(table.columns)
        assert all(math.isfinite(float(value)) for value in page.values)


def test_html_value_is_the_unrounded_number():
    table = from_frame("T", pd.DataFrame({"ms": [Cell("1.2", 1.23456), as_cell(True)]}))
    assert '<td data-value="1.23456">1.2</td>' in FORMATS["html"](table)
    assert "data-value" not in FORMATS["html"](table).splitlines()[7]


@pytest.mark.machine
def test_latex_holds_ascii_and_no_open_command(tables):
    for _, table in tables:
        text = FORMATS["latex"](table)
        assert re.fullmatch(r"[ -~\n]*", text)
        body = text.partition("\n")[2]
        assert not re.search(r"(?<!\\)[#%]", body)
        assert body.count("{") - body.count(r"\{") == body.count("}") - body.count(r"\}")
        lines = [line for line in body.splitlines() if line.endswith(r"\\")]
        cells = {len(re.findall(r"(?<!\\)&", line)) + 1 for line in lines}
        assert cells == {len(table.columns)} and len(lines) == table.length + 1


def test_latex_emphasises_words_between_stars_in_notes():
    note = "*Host*: 2 * 3 launches. *Not ours*: others."
    text = FORMATS["latex"](from_frame("T", pd.DataFrame({"ms": [1]}), note))
    assert r"\par \emph{Host}: 2 * 3 launches. \emph{Not ours}: others." in text


def test_latex_marks_are_letters_with_a_note():
    cells = [Cell("1", 1, marks=("capped",)), Cell("2", 2, marks=("host_bound", "capped"))]
    text = FORMATS["latex"](from_frame("T", pd.DataFrame({"ms": cells})))
    assert r"1$^{b}$ \\" in text and r"2$^{a,b}$ \\" in text
    assert r"\par $^{a}$ host-bound" in text and r"\par $^{b}$ capped" in text


@pytest.mark.parametrize(
    ("text", "written"),
    [
        ("5 % & #1_2", r"5 \% \& \#1\_2"),
        ("504 ± 306", r"504 $\pm$ 306"),
        ("µs, é, \U0001d48f, 例", r"$\mu$s, e, n, ?"),
        ("\\frac{1}^~", r"\textbackslash{}frac\{1\}\textasciicircum{}\textasciitilde{}"),
    ],
)
def test_latex_prints_special_characters_of_text(text, written):
    assert in_latex(text) == written


@pytest.mark.machine
@pytest.mark.skipif(shutil.which("pdflatex") is None, reason="pdflatex is not installed")
def test_pdflatex_compiles_every_table(tables, tmp_path):
    body = "\n\n".join(FORMATS["latex"](table.last(3)) for _, table in tables)
    page = "\\documentclass{article}\\usepackage{booktabs}\\usepackage[T1]{fontenc}"
    (tmp_path / "t.tex").write_text(f"{page}\\begin{{document}}\n{body}\n\\end{{document}}\n")
    command = ["pdflatex", "-halt-on-error", "-interaction=nonstopmode", "t.tex"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-2000:]
