"""Tables and figure of the report section on whole model steps, except warm-up and the ladder.

The head table is the one table of the section in the write-up; E1, E3, E4 and E7 are tables on the
page of the section.
"""

import pandas as pd
import pytest
from step_evidence import (
    line_of,
    with_rows,
    with_sdpa,
    with_times,
    with_times_scaled,
    with_values,
    without_rows,
)
from synthetic import small_gpu_evidence

from lmperf.reporting import coverage
from lmperf.reporting.evidence import MachineEvidence, having
from lmperf.reporting.markdown import markdown
from lmperf.reporting.numbers import rounded, significant
from lmperf.reporting.sections import compose
from lmperf.reporting.sections.end_to_end import SECTION, ways
from lmperf.reporting.sections.end_to_end.tables import head

EAGER, BLOCKS, WHOLE, BF16 = ways.EAGER, ways.BLOCKS, ways.WHOLE, ways.BF16
SHOWN = ("E1", "E3", "E4")
CELL = {"size": "small", "context_length": 512, "batch": 4}


def test_table_e1_shows_times_memory_and_mfu_of_a_cell(gpu):
    frame = gpu.frame(ways.STEM)
    row = having(frame, **CELL, dtype="float32", implementation=EAGER, phase="train_step").iloc[0]
    first = SECTION.tables[0].make(gpu)[0]
    line = line_of(first, size="small", context=512, implementation="eager")
    assert line["train step, burst (ms)"].startswith(f"{row['mean_ms']:.1f} ± ")
    assert line["tokens/s, burst"] == rounded(4 * 512 / row["median_ms"] * 1e3)
    assert line["peak memory (MiB)"] == f"{row['peak_mib']:,.0f}"
    assert line["first calls, compilation and execution (s)"] == "–"
    work = row["flops"] / row["median_ms"] / 1e9
    assert line["MFU, burst (%)"] == f"{100 * work / 67:.1f}"
    of = "MFU of 67.0 TFLOP/s by the data sheet, sustained matmul 46.8 TFLOP/s, in float32"
    assert of in first.notes


def test_peak_of_a_cuda_graph_includes_its_pool(gpu):
    where = {"size": "small", "context_length": 1024, "batch": 4, "implementation": "graph"}
    row = having(gpu.frame(ways.STEM), **where).iloc[0]
    table = next(t for t in SECTION.tables[0].make(gpu) if t.caption.startswith("bf16 weights"))
    line = line_of(table, size="small", batch=4, implementation="CUDA graph")
    assert line["peak memory (MiB)"] == significant(row["peak_mib"] + row["pool_mib"])


def test_rates_have_the_marks_of_their_times(gpu):
    where = {"size": "small", "context_length": 1024, "batch": 4, "dtype": "float32"}
    frame = gpu.frames[ways.STEM].assign(stale=False)
    marked = {"marks": "drift", "stale": True}
    evidence = with_values(with_rows(gpu, frame), marked, **where, implementation=EAGER)
    for table in compose("end_to_end", evidence, drawn=False).parts["E1"][:2]:
        columns = {c.name.removeprefix("train_step."): c.cells for c in table.columns}
        line = next(
            place
            for place in range(table.length)
            if all(columns[n][place].value == v for n, v in where.items() if n in columns)
            and columns["implementation"][place].value == EAGER
        )
        found = {name: cells[line].marks for name, cells in columns.items()}
        for name in ("tokens", "mfu", "burst.tokens", "burst.mfu", "share_of_matmul"):
            assert found.get(name, ("drift", "stale")) == ("drift", "stale")
        for name in ("peak", "sustained.clock"):
            assert found.get(name, ("stale",)) == ("stale",)
        assert {"tokens", "burst.tokens"} & {*found} and {"peak", "sustained.clock"} & {*found}


def test_mfu_of_old_rows_with_other_flops_is_not_shown(gpu):
    """Rows measured before `full_flops` existed count all scores of causal attention."""
    where = {**CELL, "dtype": "float32", "implementation": EAGER, "phase": "train_step"}

    def cells(full_flops):
        frame = gpu.frames[ways.STEM].assign(stale=False, full_flops=full_flops)
        old = with_values(
            with_rows(gpu, frame), {"stale": True, "full_flops": float("nan")}, **where
        )
        line = line_of(
            SECTION.tables[0].make(old)[0], size="small", context=512, implementation="eager"
        )
        return line["MFU, burst (%)"], line["tokens/s, burst"]

    assert cells(1e30)[0] == "–" and cells(1e30)[1] != "–"
    assert cells(float("nan"))[0] != "–", "no row has another count"


@pytest.mark.slow
def test_head_table_names_columns_of_another_gpu(gpu):
    assert "another GPU" not in head(gpu).notes
    lost = MachineEvidence(gpu.machine, gpu.facts, gpu.frames)
    assert "another run" not in head(lost).notes, "steps that were timed in turn"
    apart = {"together": "another", "measured_at": "2027-01-01T00:00:00.000+00:00"}
    where = {"size": "small", "context_length": 1024, "phase": "train_step", "dtype": "tf32"}
    assert head(with_values(gpu, apart, **where)).notes.endswith(
        "At small, from another run, on another GPU or one not recorded: eager TF32."
    )


def test_sustained_steps_have_their_rates_in_a_table_of_their_own(gpu):
    where = {**CELL, "context_length": 1024, "dtype": "float32", "implementation": EAGER}
    row = having(gpu.frame(ways.STEM), **where, phase="train_step").iloc[0]
    table = SECTION.tables[0].make(gpu)[1]
    assert table.caption.startswith("float32, sustained, context 1024")
    line = line_of(table, size="small", implementation="eager")
    ms, blocks = row["sustained_ms"], [*map(float, row["sustained_rounds_ms"].split(";"))]
    cell = next(c for c in table.columns if c.name == "train_step.sustained").cells[0]
    assert cell.value == ms and min(blocks) <= cell.low < ms < cell.high <= max(blocks)
    assert cell.n == row["sustained_steps"]
    assert line["train step, sustained (ms)"].startswith(significant(ms))
    assert (line["its clock (MHz)"], line["its power (W)"]) == ("1575", "690")
    assert line["tokens/s"] == rounded(4 * 1024 / ms * 1e3)
    work = row["flops"] / ms / 1e9
    assert line["MFU (%)"] == significant(100 * work / 67)
    assert line["share of sustained matmul (%)"] == significant(100 * work / 46.8)


@pytest.mark.slow
def test_head_table_labels_burst_times_beside_sustained_ones(gpu):
    lacking = with_values(gpu, {"sustained_ms": None}, size="2.0B", context_length=1024, dtype=BF16)
    table = head(lacking)
    assert line_of(table, size="2.0B")["eager bf16 (ms)"].endswith(" burst")
    assert "burst" not in line_of(table, size="small")["eager bf16 (ms)"]
    assert "not comparable with steps back to back" in table.notes
    assert "not comparable" not in head(gpu).notes
    whole = head(with_values(gpu, {"sustained_ms": None}, dtype=BF16, implementation="eager"))
    assert line_of(whole, size="small")["eager bf16 (ms)"].endswith(" burst"), "all of a column"
    alone = head(with_values(gpu, {"sustained_ms": None}, phase="train_step"))
    assert "burst" not in line_of(alone, size="2.0B")["eager bf16 (ms)"] and "burst" in alone.notes


def test_without_data_sheet_there_is_no_mfu(cpu):
    tables = [*SECTION.first(cpu), *SECTION.tables[0].make(cpu)]
    headers = [header for table in tables for header in table.frame]
    assert not any("MFU" in header for header in headers) and "tokens/s" in headers
    assert any("share of sustained matmul" in header for header in headers)


def test_only_notes_of_tables_with_a_host_bound_step_name_one(gpu):
    group = next(table for table in SECTION.tables if table.id == "E1")
    device = with_values(gpu, {"host_ms": 1e-3}, status="ok")
    late = with_values(device, {"host_ms": 1e6}, **CELL, dtype="float32", implementation=EAGER)
    assert not any("host-bound step:" in table.notes for table in group.make(device))
    (named,) = (table for table in group.make(late) if "host-bound step:" in table.notes)
    assert named.caption.startswith("float32")


def test_host_bound_step_shows_least_time_and_median():
    evidence = with_times(small_gpu_evidence(), 10.0, **CELL, dtype="float32", implementation=EAGER)
    where = {**CELL, "dtype": "float32", "implementation": EAGER, "phase": "train_step"}
    for host_ms, words in ((9.1, "8.50 least, 10.0 median (100) host-bound"), (8.9, "20.0 ± ")):
        changed = with_values(evidence, {"host_ms": host_ms, "least_ms": 8.5}, **where)
        line = line_of(
            SECTION.tables[0].make(changed)[0], size="small", context=512, implementation="eager"
        )
        assert line["train step, burst (ms)"].startswith(words)


@pytest.mark.slow
def test_head_table_has_no_step_with_bf16_weights(gpu):
    fast = with_times_scaled(gpu, 0.1, dtype=ways.BF16_WEIGHTS)
    assert head(fast).frame.equals(head(gpu).frame)
    grown = with_values(gpu, {"loss": 9.0}, "ladder_loss", step=100, implementation="bf16_weights")
    notes = {table.caption: table.notes for table in SECTION.tables[0].make(grown)}
    (caption,) = (c for c in notes if c.startswith("bf16 weights, context"))
    assert "bf16 weights raise the loss: small +38.4 %, large +38.4 %" in notes[caption]


@pytest.mark.slow
def test_tables_withhold_times_of_failed_gates_and_show_oom():
    values = {"max_error": 1.0, "error_bound": 1e-3}
    both = {**CELL, "context_length": [512, 1024]}
    red = with_values(small_gpu_evidence(), values, **both, dtype="float32", implementation=EAGER)
    full = {"status": "oom", "requested_bytes": 2 * 2**30, "free_bytes": 2**30}
    red = with_values(red, full, **CELL, dtype="float32", implementation=BLOCKS)
    by_name = {table.id: table.make(red) for table in SECTION.tables if table.id in SHOWN}
    where = {"size": "small", "context": 512}
    line = line_of(by_name["E1"][0], **where, implementation="eager")
    assert line["forward (ms)"] == "gate failed, withheld" and line["MFU, burst (%)"] == "–"
    line = line_of(by_name["E1"][0], **where, implementation="compiled by block")
    assert line["train step, burst (ms)"] == "OOM (asked 2.0 GiB, 1.0 GiB free)"
    line = line_of(by_name["E3"][0], **where)
    assert line["float32, compiled over eager float32"] == "withheld"
    assert line_of(by_name["E4"][0], **where)["eager TF32 over eager float32"] == "withheld"
    line = line_of(head(red), size="small")
    assert line["eager float32 (ms)"] == "gate failed, withheld"


@pytest.mark.slow
def test_table_e3_counts_cells_of_both_ways_to_compile():
    one = without_rows(small_gpu_evidence(), implementation=WHOLE, size=["2.0B", "3.4B"])
    one = without_rows(one, implementation=WHOLE, context_length=[128, 1024])
    frame = one.frames[ways.STEM]
    one.lacking[ways.STEM] = having(frame, implementation=BLOCKS, size="2.0B").assign(size="huge")
    states = coverage.states(one, [compose("end_to_end", one, drawn=False)])
    found = {state.table.id: (state.measured, state.owed, state.words) for state in states}
    assert found["E3"] == (30, 39, "partly measured")
    assert found["E4"] == (9, 9, "measured")
    assert found["E2"] == (4, 4, "measured")
    assert not coverage.gaps(states)
    note = {t.id: t for t in SECTION.tables}["E3"].make(one)[0].notes
    assert "A dash: not configured (float32, compiled: 8 of 9 lines; TF32, compiled: 8 of" in note
    one.missing[ways.STEM] = ["a cell"]
    assert "dash" not in {t.id: t for t in SECTION.tables}["E3"].make(one)[0].notes


@pytest.mark.slow
def test_eager_model_is_never_called_pytorch():
    evidence, crash = small_gpu_evidence(), {"status": "crash", "reason": "signal"}
    failed = with_values(evidence, crash, **CELL, implementation=EAGER)
    made = compose("end_to_end", failed, drawn=False)
    text = "\n".join(markdown(lines) for parts in made.parts.values() for lines in parts)
    assert "PyTorch" not in text + made.reasons and "crash, eager (12 rows)" in made.reasons


@pytest.mark.slow
def test_first_calls_are_labelled_without_a_payback_column():
    evidence = small_gpu_evidence()
    parts = [part for table in SECTION.tables for part in table.make(evidence)]
    headers = {header for part in parts for header in part.frame.columns}
    assert any("first calls, compilation and execution (s)" in header for header in headers)
    assert not any("paid back" in header for header in headers)


def test_table_e7_compares_sdpa_with_plain_attention():
    table = {t.id: t for t in SECTION.tables}["E7"].make(with_sdpa(0.5))[0]
    assert table.caption.startswith("Train step, burst, over eager bf16 autocast")
    speedup = line_of(table, size="2.0B")["bf16 autocast, SDPA over eager bf16 autocast"]
    assert speedup.startswith("2.00x (2.00-2.00)")


@pytest.mark.slow
def test_head_table_has_a_line_per_size_and_seven_columns(gpu):
    table = head(without_rows(gpu, dtype="tf32", context_length=[128, 512, 1024]))
    assert list(table.frame["size"]) == ["small", "medium", "large", "2.0B", "3.4B"]
    assert "context 1024" in table.caption and not any("TF32" in h for h in table.frame.columns)
    assert [*head(gpu).frame] == [
        *("size", "eager float32 (ms)", "eager TF32 (ms)", "eager bf16 (ms)"),
        *("bf16, compiled (ms)", "and flash attention (ms)", "recommended (ms)"),
    ]


@pytest.mark.slow
def test_head_table_compares_two_times_of_a_size_at_least(gpu):
    frame = gpu.frames[ways.STEM]
    where = {"context_length": 1024, "batch": 4, "phase": "train_step", "implementation": EAGER}
    tf32, plain = (having(frame, **where, dtype=dtype) for dtype in ("tf32", "float32"))
    both = head(with_rows(gpu, pd.concat([tf32, plain])))
    assert "Recommended:" in both.notes and "bf16" not in both.notes and "bf16" in head(gpu).notes
    apart = pd.concat([having(tf32, size="small"), having(plain, size="large")])
    marked = with_rows(gpu, apart.assign(marks="drift"))
    assert head(marked) is None


def test_head_table_names_batches_that_differ_by_size(cpu):
    frame = cpu.frames[ways.STEM]
    small = frame.index.isin(having(frame, size="small").index)
    frame = frame.assign(batch=frame["batch"].where(~small, 1))
    table = head(with_rows(cpu, frame))
    assert list(table.frame["size"]) == ["tiny, batch 4", "small, batch 1"]
    assert head(MachineEvidence("empty")) is None


@pytest.mark.parametrize("mhz", [1600.0, None])
def test_note_names_clock_and_power_only_if_they_are_known(mhz):
    rows = pd.DataFrame({"sustained_mhz": [mhz], "sustained_w": [None]})
    assert ("clock and power" in ways.sustained_note(rows)) is (mhz is not None)
