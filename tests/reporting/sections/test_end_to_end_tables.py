"""The tables and the figure of the section end to end, but for warm-up and ladder."""

import pytest
from steps import cells, drawn, edited, scaled, with_attention, with_frame, without
from synthetic import cpu_evidence, gpu_evidence

from lmperf.reporting import coverage
from lmperf.reporting.evidence import MachineEvidence, having
from lmperf.reporting.numbers import ratio, rounded
from lmperf.reporting.sections import compose
from lmperf.reporting.sections.end_to_end import SECTION, ways
from lmperf.reporting.sections.end_to_end.tables import head
from lmperf.reporting.tables import markdown

EAGER, BLOCKS, WHOLE, BF16 = ways.EAGER, ways.BLOCKS, ways.WHOLE, ways.BF16
CELL = {"size": "small", "context_length": 512, "batch": 4}


def test_e1_has_each_number_in_its_cell(gpu):
    frame = gpu.frame(ways.STEM)
    row = having(frame, **CELL, dtype="float32", implementation=EAGER, phase="train_step").iloc[0]
    first = SECTION.tables[0].make(gpu)[0]
    line = cells(first, size="small", context=512, implementation="eager")
    assert line["train step (ms)"].startswith(f"{row['mean_ms']:.1f} ± ")
    assert line["tokens/s"] == rounded(4 * 512 / row["median_ms"] * 1e3)
    assert line["peak memory (MiB)"] == f"{row['peak_mib']:,.0f}"
    assert line["first calls, compilation and execution (s)"] == "–"
    work = row["flops"] / row["median_ms"] / 1e9
    assert line["MFU (%)"] == f"{100 * work / 46.8:.1f}"
    assert line["MFU of the data sheet (%)"] == f"{100 * work / 67:.1f}"
    ceilings = "MFU of 46.8 TFLOP/s, the matmul ceiling, 67.0 TFLOP/s by the data sheet, in float32"
    assert ceilings in first.notes


def test_a_red_gate_is_withheld_and_memory_that_ran_out_is_said(gpu):
    values = {"max_error": 1.0, "error_bound": 1e-3}
    both = {**CELL, "context_length": [512, 1024]}
    red = edited(gpu, values, **both, dtype="float32", implementation=EAGER)
    full = {"status": "oom", "requested_bytes": 2 * 2**30, "free_bytes": 2**30}
    red = edited(red, full, **CELL, dtype="float32", implementation=BLOCKS)
    by_name = {table.id: table.make(red) for table in SECTION.tables}
    where = {"size": "small", "context": 512}
    line = cells(by_name["E1"][0], **where, implementation="eager")
    assert line["forward (ms)"] == "gate failed, withheld" and line["MFU (%)"] == "–"
    line = cells(by_name["E1"][0], **where, implementation="compiled by block")
    assert line["train step (ms)"] == "OOM (asked 2.0 GiB, 1.0 GiB free)"
    line = cells(by_name["E3"][0], **where)
    assert line["float32, compiled over eager float32"] == "withheld"
    assert cells(by_name["E4"][0], **where)["eager TF32 over eager float32"] == "withheld"
    line = cells(head(red), size="small")
    assert line["eager float32 (ms)"] == "gate failed, withheld"


def test_e3_owes_every_cell_that_is_compiled_in_any_way(gpu):
    one = without(gpu, implementation=WHOLE, size=["medium", "large", "xl", "2.7B"])
    one = without(one, implementation=WHOLE, context_length=[128, 512, 1024])
    frame = one.frames[ways.STEM]
    one.lacking[ways.STEM] = having(frame, implementation=BLOCKS, size="xl").assign(size="huge")
    states = coverage.states(one, [compose("end_to_end", one, drawn=False)])
    found = {state.table.id: (state.measured, state.owed, state.words) for state in states}
    assert found["E3"] == (63, 75, "in part")
    assert found["E4"] == (20, 20, "measured")
    assert found["E2"] == (8, 8, "measured")
    assert not coverage.gaps(states)
    note = {t.id: t for t in SECTION.tables}["E3"].make(one)[0].notes
    assert (
        "A dash: not configured (float32, compiled: 19 of 20 lines; TF32, compiled: 19 of" in note
    )
    one.missing[ways.STEM] = ["a cell"]
    assert "dash" not in {t.id: t for t in SECTION.tables}["E3"].make(one)[0].notes


def test_eager_of_a_model_has_one_name(gpu):
    failed = edited(gpu, {"status": "crash", "reason": "signal"}, **CELL, implementation=EAGER)
    made = compose("end_to_end", failed, drawn=False)
    text = "\n".join(markdown(lines) for parts in made.parts.values() for lines in parts)
    assert "PyTorch" not in text + made.reasons and "crash, eager (12 rows)" in made.reasons


def test_first_calls_are_named_for_what_they_hold_and_no_step_pays_them_back(gpu):
    parts = [part for table in SECTION.tables for part in table.make(gpu)]
    headers = {header for part in parts for header in part.frame.columns}
    assert any("first calls, compilation and execution (s)" in header for header in headers)
    assert not any("paid back" in header for header in headers)


def test_e7_has_the_other_attention_over_plain():
    table = {t.id: t for t in SECTION.tables}["E7"].make(with_attention(0.5))[0]
    assert table.caption.startswith("Train step, over eager bf16 autocast")
    speedup = cells(table, size="xl")["bf16 autocast, SDPA over eager bf16 autocast"]
    assert speedup.startswith("2.00x (2.00-2.00)")


def test_head_is_of_one_context_and_has_the_speedup_of_the_best(gpu):
    table = head(without(gpu, dtype="tf32", context_length=[128, 512, 1024]))
    assert list(table.frame["size"]) == ["small", "medium", "large", "xl", "2.7B"]
    assert "context 1024" in table.caption and not any("TF32" in h for h in table.frame.columns)
    best = ways.fastest(gpu).set_index("size").loc["xl"]
    line = cells(head(gpu), size="xl")
    assert line["best over eager float32"].startswith(f"{ratio(best['ratio'])} (")
    assert line["tokens/s"] == rounded(best["rate"])


def test_head_names_the_best_by_size_where_it_is_not_one(gpu):
    one = head(scaled(gpu, 0.1, implementation=BLOCKS, dtype=BF16))
    assert "Best: bf16 autocast, compiled by block." in one.notes
    several = head(scaled(gpu, 50, size="small", dtype=BF16))
    assert "Best" not in several.notes and several.frame["best"].nunique() > 1


def test_head_of_a_machine_that_measured_two_batches_has_a_line_a_size(cpu):
    frame = cpu.frames[ways.STEM]
    small = frame.index.isin(having(frame, size="small").index)
    frame = frame.assign(batch=frame["batch"].where(~small, 1))
    table = head(with_frame(cpu, frame))
    assert list(table.frame["size"]) == ["tiny", "small"]
    assert head(MachineEvidence("empty")) is None


@pytest.mark.parametrize("make", [gpu_evidence, cpu_evidence, with_attention])
def test_the_figure_is_drawn(make):
    assert drawn(make()) is not None


def test_the_figure_shows_the_context_of_what_others_lack():
    titles = [axis.get_title() for axis in drawn(with_attention()).axes]
    assert "context 1024" in titles


def test_the_figure_has_no_bar_where_eager_float32_is_withheld(gpu):
    values = {"max_error": 1.0, "error_bound": 1e-3}
    red = edited(gpu, values, size="xl", dtype="float32", implementation=EAGER)
    axis = drawn(red).axes[0]
    place = [label.get_text() for label in axis.get_xticklabels()].index("xl\nfloat32\nwithheld")
    middles = [bar.get_x() + bar.get_width() / 2 for bar in axis.patches]
    assert not any(abs(middle - place) < 0.5 for middle in middles)


def test_the_title_of_the_figure_is_what_the_data_say(gpu):
    assert "up to" in drawn(gpu).get_suptitle()
    slow = scaled(gpu, 1e-3, implementation=EAGER, dtype="float32")
    assert drawn(slow).get_suptitle() == "No train step is faster than in eager float32"
    assert drawn(without(gpu, implementation=[BLOCKS, WHOLE], dtype=["tf32", BF16])) is not None
    alone = with_frame(gpu, having(gpu.frames[ways.STEM], implementation=EAGER, dtype="float32"))
    assert drawn(alone) is None
