"""Marks of rows: conditions that made a time doubtful, such as a capped clock.

A table shows a mark as a superscript sign after the time, and explains and counts the signs.
"""

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
import synthetic

from lmperf.names import MARKS
from lmperf.reporting import coverage, machine, marks, pages
from lmperf.reporting.evidence import having
from lmperf.reporting.health import mostly_unresolved
from lmperf.reporting.markdown import markdown
from lmperf.reporting.sections import compose
from lmperf.reporting.sections.flash_attention.tables import filled_tables
from lmperf.reporting.sections.lrpe.tables import head as lrpe_head
from lmperf.reporting.speedup import Series, speedup_cells
from lmperf.reporting.tables import from_frame, kernel_times, medians, step_times
from lmperf.results import OTHER_GPU, OTHER_RUN, SIGNS, Cell

TIMED = {
    **{"status": "ok", "implementation": "eager", "median_ms": 1.25, "mean_ms": 1.25},
    **{"least_ms": 1.0, "host_ms": None},
    **{"std_ms": 0.1, "repetitions": 60, "rounds_ms": "1.0;1.1;1.2;1.3;1.4;1.5"},
    **{"requested_bytes": None, "free_bytes": None},
}
STALE = SIGNS["stale"]
CAPPED, LOADED, HOST_BOUND = (MARKS[name].sign for name in ("capped", "loaded", "host_bound"))


def frame(*rows):
    return pd.DataFrame([{**TIMED, **row} for row in rows])


def with_marks(evidence, stem, names, where=lambda frame: frame.index == frame.index):
    """Set marks on the rows selected by ``where``, in place; return the evidence.

    Every row gets a value in the column ``reference``, as rows that were checked for marks have.
    """
    rows = evidence.frames[stem].assign(reference=1.0, marks=None)
    rows["marks"] = rows["marks"].astype(object).mask(where(rows), names)
    evidence.frames[stem] = rows
    return evidence


def test_unknown_marks_come_after_known_marks():
    found = marks.marks_of(frame({"marks": "loaded;capped"}, {"marks": "odd;drift"}, {}))
    assert found.tolist() == [("capped", "loaded"), ("drift", "odd"), ()]


@pytest.mark.parametrize(
    ("throttle", "names"),
    [("0x4", ("capped",)), ("0x24", ("capped",)), ("0x0", ()), ("0x1", ()), ("0x12", ())],
)
def test_older_rows_get_the_capped_mark_from_throttle_bits(throttle, names):
    row = {"throttle": throttle}
    assert marks.marks_of(frame(row)).tolist() == [names]
    assert marks.marks_of(frame({**row, "marks": None, "reference": np.nan})).tolist() == [names]


def test_throttle_bits_are_ignored_if_a_row_was_checked():
    row = {"throttle": "0x4", "marks": np.nan, "reference": 1.01}
    assert marks.marks_of(frame(row)).tolist() == [()]


def test_rows_without_a_marks_column_have_no_marks():
    assert marks.names_of(frame({}, {})) == [(), ()]


@pytest.mark.parametrize("times", [kernel_times, step_times, medians])
def test_times_of_marked_rows_carry_their_signs(times):
    rows = frame({}, {"marks": "host_bound;capped"}, {"status": "oom", "marks": "capped"})
    clean, dirty, gone = map(str, times(rows))
    assert dirty == clean + HOST_BOUND + CAPPED
    assert gone == "OOM"


def test_stale_sign_comes_after_the_marks():
    rows = frame({"marks": "capped", "stale": True}, {"stale": True}, {"stale": False})
    assert marks.names_of(rows) == [("capped", "stale"), ("stale",), ()]
    cells = medians(rows)
    assert [str(cell).removeprefix("1.25") for cell in cells] == [CAPPED + STALE, STALE, ""]
    assert marks.legend(cells).endswith(f"{marks.MEANINGS['stale']} (2 cells).")
    assert marks.counts([rows]) == {"capped": 1}, "what is stale is counted apart"


def test_signs_are_distinct_single_non_ascii_characters():
    signs = [*(mark.sign for mark in MARKS.values() if mark.sign), STALE]
    assert len(set(signs)) == len(signs) and all(len(sign) == 1 for sign in signs)
    assert not any(sign.isascii() for sign in signs)


def test_table_explains_and_counts_its_signs():
    cells = [Cell("1", marks=("capped",)), Cell("2", marks=("capped", "loaded")), Cell("3ᶜ")]
    table = from_frame("T", pd.DataFrame({"ms": cells}), "Median.")
    capped, loaded = MARKS["capped"].meaning, MARKS["loaded"].meaning
    words = f"{CAPPED} {capped} (2 cells). {LOADED} {loaded} (1 cell)."
    assert markdown(table).endswith(f"\n\nMedian. {words}")
    assert words in markdown(table, fold=1)
    assert markdown(from_frame("T", pd.DataFrame({"ms": ["3"]}))).endswith("| 3 |")


def test_one_of_several_signs_makes_a_comparison_unresolved():
    cells = [Cell("1.0x", 1.0, verdict="unresolved", marks=("drift", "host"))]
    signs = [MARKS[name].sign for name in ("drift", "host")]
    assert f"if one of its times has {signs[0]} or {signs[1]}." in marks.legend(cells)


def test_speedup_carries_the_mark_signs_of_both_rows(gpu):
    compiled, eager = (Series.of(implementation=name) for name in ("compiled", "eager"))
    clean = speedup_cells(gpu, "attention", compiled, eager)
    evidence = synthetic.gpu_evidence()
    with_marks(evidence, "attention", "capped", lambda f: f["implementation"] == "eager")
    capped = speedup_cells(evidence, "attention", compiled, eager)
    timed = clean.map(lambda cell: cell.value is not None).astype(bool)
    # The floor is less well known without the marked pairs, so that a verdict may differ.
    words = clean[timed].map(lambda cell: str(cell).removesuffix(f" {cell.verdict}"))
    assert timed.any() and capped[timed].map(str).str.endswith(CAPPED).all()
    both = zip(capped[timed].map(str), words, strict=True)
    assert all(ours.startswith(theirs) for ours, theirs in both)
    assert (capped[~timed].map(str) == clean[~timed].map(str)).all()
    assert marks.both(("capped",), ("capped", "host_bound")) == ("host_bound", "capped")


@pytest.mark.slow
@pytest.mark.parametrize(("stem", "make"), [("flash_attention", filled_tables), ("lrpe", None)])
def test_rate_cells_without_a_time_carry_mark_signs(gpu, stem, make):
    clean = "".join(markdown(t) for t in (make or (lambda e: [lrpe_head(e)]))(gpu))
    evidence = with_marks(synthetic.gpu_evidence(), stem, "loaded")
    text = "".join(markdown(t) for t in (make or (lambda e: [lrpe_head(e)]))(evidence))
    assert LOADED not in clean
    assert text.count(f"%){LOADED}") == clean.count("%) |") > 0


def files_of(evidence):
    sections = pages.composed(evidence, synthetic.TEMPLATES, drawn=False)
    return pages.machine_files(evidence, sections, synthetic.TEMPLATES)


def small_evidence():
    """CPU evidence with three benchmarks only."""
    evidence = synthetic.cpu_evidence()
    evidence.frames = {stem: evidence.frames[stem] for stem in ("ceilings", "attention", "lrpe")}
    return evidence


@pytest.mark.slow
def test_marked_rows_are_counted_on_pages_not_in_the_write_up():
    evidence = with_marks(small_evidence(), "attention", "loaded;capped")
    rows = len(having(evidence.frames["attention"], marks="loaded;capped"))
    files = files_of(evidence)
    words = f"{rows} rows capped, {rows} beside other load"
    assert words not in files["report.md"]
    assert f"> **Marked.** {words}" in files["attention.md"] and words not in files["lrpe.md"]
    assert f"In this report: {words}" in files["method.md"]
    assert "This evidence is older" not in files["method.md"]


def test_row_table_counts_marked_rows():
    evidence = with_marks(synthetic.cpu_evidence(), "attention", "loaded")
    table = machine.counts_table(evidence).frame.set_index("benchmark")["beside other load"]
    assert table["attention"] == len(evidence.frames["attention"]) and table["lrpe"] == 0


def test_index_counts_marked_cells_of_tables_with_times():
    evidence = with_marks(small_evidence(), "attention", "drift")
    sections = pages.composed(evidence, synthetic.TEMPLATES, drawn=False)
    words = {s.table.id: s.words for s in coverage.states(evidence, sections)}
    assert words["A1"].endswith(" marked") and words["L1"] == "measured"
    assert words["A4"] == "measured", "a table of memory has no time to be marked"


@pytest.mark.machine
def test_write_up_with_many_marks_stays_short():
    from test_pages import MOST_WORDS, words_before_the_first_table

    evidence = synthetic.cpu_evidence()
    for stem in ("end_to_end", "attention", "flash_attention", "lrpe"):
        with_marks(evidence, stem, "host_bound;capped;loaded")
    sections = pages.composed(evidence, synthetic.TEMPLATES, drawn=False)
    write_up = pages.write_up(evidence, sections, synthetic.TEMPLATES)
    assert words_before_the_first_table(write_up) <= MOST_WORDS


def signs_of(stem, evidence):
    return {mark for cell in compose(stem, evidence, drawn=False).head.cells for mark in cell.marks}


@pytest.mark.parametrize("stem", ["memory", "mixed_precision", "profiles"])
def test_stale_rows_have_their_sign_in_tables_without_times(gpu, stem):
    frame = gpu.frames[stem]
    assert "stale" not in signs_of(stem, gpu)
    old = frame.assign(stale=[row > 0 for row in range(len(frame))])
    assert "stale" in signs_of(stem, replace(gpu, frames={**gpu.frames, stem: old}))


@pytest.mark.slow
@pytest.mark.parametrize("every", [False, True])
def test_every_cell_of_a_stale_row_has_the_sign(gpu, every):
    """Also cells that a section makes without marks, and if all rows of a benchmark are stale."""
    changed = synthetic.small(gpu)
    frame = changed.frames["end_to_end"]
    changed.frames["end_to_end"] = frame.assign(stale=True if every else frame.index % 2 == 0)
    stale = changed.stale_keys()
    section = compose("end_to_end", changed, drawn=False)
    tables = [*section.first, section.head, *(t for part in section.parts.values() for t in part)]
    cells = [cell for table in tables for cell in table.cells if cell.value is not None]
    assert any(cell.row in stale for cell in cells)
    assert all("stale" in cell.marks for cell in cells if cell.row in stale)


def test_pair_of_rows_counts_once_however_many_tables_compare_it():
    one, again = (
        from_frame(caption, pd.DataFrame({caption: [Cell("1.0x", 1.0, verdict=said, **pair)]}))
        for caption, said, pair in (
            ("E3", "same", {"row": "a", "base": "b"}),
            ("E6", "unresolved", {"row": "a", "base": "b"}),
        )
    )
    other = from_frame(
        "E4", pd.DataFrame({"E4": [Cell("1.0x", 1.0, verdict="same", row="a", base="c")]})
    )
    assert str(marks.unresolved([one, again])) == "1 of 1"
    assert str(marks.unresolved([one, other, again])) == "1 of 2"
    unknown = replace(one.columns[0].cells[0], base=None)
    column = replace(one.columns[0], cells=(unknown,))
    assert marks.unresolved([one, replace(one, columns=(column,))]).n == 2


@pytest.mark.parametrize(
    ("counts", "said"),
    [
        ({"A": 3, "B": 1}, ("A", 3)),
        ({"A": 2, "B": 2}, ("A", 2)),
        ({"A": 1, "B": 1, "C": 1}, None),
        ({"A": 3}, None),
    ],
)
def test_section_with_half_of_the_unresolved_comparisons_is_found(counts, said):
    def section(title, number):
        cells = [Cell("1.0x", 1.0, verdict="unresolved", row=f"{title} {n}") for n in range(number)]
        made = from_frame(title, pd.DataFrame({"over": cells}))
        return SimpleNamespace(title=title, parts={"": [made]})

    assert mostly_unresolved([section(*pair) for pair in counts.items()]) == said


def test_legend_explains_cells_of_steps_from_two_gpus():
    assert marks.legend([Cell("another GPU", state=OTHER_GPU)]).startswith("Another GPU: not")
    both = [Cell("1.0", marks=("stale",)), Cell("another run", state=OTHER_RUN)]
    assert "Another run: not compared" in marks.legend(both)
    assert marks.legend(both).endswith("(1 cell).") and marks.legend([Cell("1.0")]) == ""
