"""Report section on plain attention: findings, tables, figure, and the length that runs OOM.

A finding prints one sentence that the measured rows choose. The head table is the one table of the
section in the write-up; A1 to A4 are the tables on the page of the section.
"""

import numpy as np
import pandas as pd
import pytest
import synthetic
from finding_checks import assert_answers_reached

from lmperf.attention.reference import bytes_moved
from lmperf.dtypes import dtype_of
from lmperf.reporting.ceilings import copy_ceiling, matmul_ceiling
from lmperf.reporting.coverage import gaps, states
from lmperf.reporting.evidence import having
from lmperf.reporting.figures import LIGHT, themed
from lmperf.reporting.findings import state
from lmperf.reporting.markdown import markdown
from lmperf.reporting.numbers import ratio
from lmperf.reporting.sections import compose
from lmperf.reporting.sections.attention import SECTION
from lmperf.reporting.sections.attention.bound import PASSES, PASSES_OF_MASK, bounds
from lmperf.reporting.sections.attention.figure import GAIN, NUMBER_INCHES, _numbered
from lmperf.reporting.sections.attention.findings import FINDINGS
from lmperf.reporting.sections.attention.tables import STEM
from lmperf.reporting.speedup import Series, resolved


def with_changed_rows(change, stem="attention"):
    """GPU evidence with the rows of a benchmark changed by ``change(frame)``.

    change: edits the data frame in place, or returns a new one.
    """
    evidence = synthetic.gpu_evidence()
    frame = evidence.frames[stem].copy()
    changed = change(frame)
    evidence.frames[stem] = frame if changed is None else changed
    return evidence


def matches(frame, **where):
    wanted = pd.Series(True, frame.index)
    for column, value in where.items():
        wanted &= frame[column] == value
    return wanted


def with_requested_bytes(factor):
    """Evidence with no OOM in the grid; the OOM request is ``factor`` times the prediction.

    The benchmark ``attention_limit`` still runs out of memory.
    """
    evidence = with_changed_rows(lambda frame: frame[frame["seq_len"] < 65536].assign(causal=False))
    evidence.frames["attention_limit"]["requested_mib"] *= factor
    return evidence


def with_saved_memory(power):
    """Evidence in which memory saved for the backward grows as length to the power ``power``."""

    def change(frame):
        frame["saved_mib"] = frame["resident_mib"] + (frame["seq_len"] / 256.0) ** power

    return with_changed_rows(change)


def with_times(factor, share=1.0, **where):
    """Evidence in which the rows selected by ``where`` take ``factor`` times eager float32's time.

    share: the fraction of the values of ``d_head`` for which the rows are changed.
    """

    def change(frame):
        keys = ["seq_len", "d_head", "phase"]
        frame["again_ms"] = None  # else the changed rounds would widen the noise floor
        base = frame[matches(frame, implementation="eager", dtype="float32")]
        rounds = base.set_index(keys)["rounds_ms"]
        widths = sorted(frame["d_head"].unique())
        chosen = widths[: max(1, int(share * len(widths)))]
        rows = matches(frame, status="ok", **where) & frame["d_head"].isin(chosen)
        frame.loc[rows, "rounds_ms"] = [
            ";".join(str(float(t) * factor) for t in rounds[tuple(row)].split(";"))
            for row in frame.loc[rows, keys].itertuples(index=False)
        ]

    return with_changed_rows(change)


def with_floors(flops, bytes, **columns):
    """Evidence in which FLOPs and bytes of eager forwards need these fractions of their time."""
    evidence = synthetic.gpu_evidence()
    frame = evidence.frames["attention"]
    rows = matches(frame, implementation="eager", phase="forward", status="ok")
    seconds = frame.loc[rows, "median_ms"] / 1e3
    rates = frame.loc[rows, "dtype"].map(lambda dtype: matmul_ceiling(evidence, dtype))
    scores = (
        frame["batch"] * frame["seq_len"] ** 2 * frame["dtype"].map(lambda d: dtype_of(d).bytes)
    )
    passes = PASSES["eager", "forward"] + PASSES_OF_MASK["eager"] * frame["causal"]
    frame.loc[rows, "flops"] = flops * seconds * rates * 1e12
    frame["bytes"] = bytes * seconds * copy_ceiling(evidence) * 1e9 - passes * scores
    evidence.derived.clear()
    return with_columns(evidence, rows, **{"host_ms": 0.0, **columns})


def with_columns(evidence, rows, **columns):
    for name, value in columns.items():
        evidence.frames["attention"].loc[rows, name] = value
    return evidence


def with_softmax(half, single, copies):
    """Evidence with these times of softmax in a model under autocast and in float32.

    copies: how much longer the copies of the forward take under autocast.
    """
    evidence = synthetic.gpu_evidence()
    frame = evidence.frames["profiles"]
    for dtype, ms, copy in (("autocast_bfloat16", half, 2.0 + copies), ("float32", single, 2.0)):
        own = matches(frame, dtype=dtype, implementation="eager", phase="forward", size="large")
        frame.loc[own & matches(frame, table="attention", name="softmax"), "total_ms"] = ms
        copied = frame["name"].str.contains("Memcpy", regex=False, na=False)
        frame.loc[own & copied, "total_ms"] = copy
    return evidence


COMPILED = {"implementation": "compiled", "dtype": "float32"}
CASES = {
    "attention_ends": {
        "matrix": lambda: with_requested_bytes(1.0),
        "other": synthetic.gpu_evidence,
    },
    "attention_bound": {
        "memory": lambda: with_floors(flops=0.1, bytes=0.5),
        "compute": lambda: with_floors(flops=0.5, bytes=0.1),
        "neither": lambda: with_floors(flops=0.1, bytes=0.1),
    },
    "attention_softmax": {
        "casts": lambda: with_softmax(8.0, 4.0, copies=3.0),
        "slower": lambda: with_softmax(8.0, 4.0, copies=1.0),
        "other": lambda: with_softmax(4.0, 4.0, copies=3.0),
    },
    "attention_matrices": {
        "square": synthetic.gpu_evidence,
        "other": lambda: with_saved_memory(1.0),
    },
    "attention_compiled": {
        "all": lambda: with_times(0.5, **COMPILED),
        "rest": lambda: with_times(2.0, 0.5, **COMPILED),
    },
    "attention_numerics": {
        "all": lambda: with_times(0.5, implementation="eager", dtype="tf32"),
        "rest": lambda: with_times(2.0, implementation="eager", dtype="tf32"),
    },
}


def sentence_of(name, evidence):
    finding = next(finding for finding in FINDINGS if finding.name == name)
    statement = state(finding, evidence)
    return statement and statement.sentence


def parts_of(name, evidence):
    return compose("attention", evidence, drawn=False).parts[name]


@pytest.mark.slow
def test_findings_give_every_declared_answer():
    assert_answers_reached(FINDINGS, CASES)


def test_findings_are_omitted_without_their_rows(cpu_copy):
    assert sentence_of("attention_ends", cpu_copy) is None
    assert sentence_of("attention_numerics", cpu_copy) is None
    del cpu_copy.frames["attention"]
    assert all(state(finding, cpu_copy) is None for finding in FINDINGS)


def test_oom_finding_states_length_and_requested_bytes():
    assert sentence_of("attention_ends", with_requested_bytes(1.0)) == (
        "Plain attention in float32 runs out of memory at length 65,536: its second matrix of"
        " scores takes 128 GiB, 10.6 are free."
    )
    other = sentence_of("attention_ends", with_requested_bytes(2.0))
    assert other.endswith("256 GiB requested, 10.6 free.")


def test_head_table_leaves_sizes_of_oom_to_its_note(gpu):
    head = SECTION.head(gpu)
    assert "OOM" in set(head.frame["forward (ms)"])
    assert "OOM: out of memory (sizes: A3)." in head.notes


def test_bound_finding_gives_shares_of_bytes_and_flops():
    assert sentence_of("attention_bound", with_floors(flops=0.1, bytes=0.5)).startswith(
        "The longest float32 forward (16,384, d_head 64) is memory-bound. Bytes take 50 % of it"
        " at copy speed, FLOPs 10 % at the peak matmul."
    )
    head = SECTION.head(with_floors(flops=0.5, bytes=0.1))
    assert set(head.frame["bound by"]) == {"compute", "–"}
    assert "FLOPs at the peak matmul (" in head.notes and "TFLOP/s, single calls)" in head.notes
    late = with_floors(flops=0.1, bytes=0.5)
    late.frames["attention"].loc[late.frames["attention"]["seq_len"] <= 1024, "host_ms"] = 1e6
    words = sentence_of("attention_bound", late)
    assert words.endswith("Up to length 1,024 a forward takes longer to launch than to run.")
    assert set(SECTION.head(late).frame["bound by"]) == {"memory", "–"}  # of the device time


def test_head_table_explains_bounds_only_if_it_shows_them():
    evidence = synthetic.gpu_evidence()
    assert "Bound by:" in SECTION.head(evidence).notes
    del evidence.frames["ceilings"]
    evidence.derived.clear()
    head = SECTION.head(evidence)
    assert "bound by" not in head.frame and "Bound by:" not in head.notes


def test_bound_finding_names_head_widths_with_another_bound():
    evidence = with_floors(flops=0.1, bytes=0.5)
    assert "At d_head" not in sentence_of("attention_bound", evidence)
    frame = evidence.frames["attention"]
    frame.loc[frame["d_head"] == 128, "flops"] *= 9
    evidence.derived.clear()
    assert "At d_head 128 it is compute-bound." in sentence_of("attention_bound", evidence)


def test_table_of_bounds_has_least_times_of_flops_and_bytes():
    tables = parts_of("What bounds the forward", with_floors(flops=0.1, bytes=0.5))
    assert len(tables) == 3
    line = tables[0].frame.query("d_head == 64 and length == 4096").iloc[0]
    forward = float(line["forward (ms)"])
    assert float(line["bytes at copy speed (ms)"]) == pytest.approx(0.5 * forward, rel=0.01)
    assert float(line["FLOPs at the peak matmul (ms)"]) == pytest.approx(0.1 * forward, rel=0.01)
    assert line["bound by"] == "memory"
    assert tables[0].notes.endswith(
        "Host: the time to launch the forward, which its own time excludes."
    )


def test_bytes_of_plain_attention_have_no_logsumexp():
    def set_bytes(frame):
        sizes = frame[["seq_len", "d_head", "dtype"]].itertuples(index=False)
        storage = {"autocast_bfloat16": "bfloat16"}
        frame["bytes"] = [bytes_moved(8, 1, n, d, storage.get(t, t)) for n, d, t in sizes]
        frame["batch"] = 8

    rows = bounds(with_changed_rows(set_bytes))
    size = rows["dtype"].map(lambda dtype: dtype_of(dtype).bytes)
    tensors = 4 * 8 * rows["seq_len"] * rows["d_head"] * size
    passes = PASSES["eager", "forward"] + PASSES_OF_MASK["eager"] * rows["causal"]
    assert (rows["moved"] == tensors + passes * 8 * rows["seq_len"] ** 2 * size).all()


def test_softmax_finding_names_casts_as_the_cause():
    assert sentence_of("attention_softmax", with_softmax(8.0, 4.0, copies=3.0)) == (
        "Softmax, mask and casts take 8.00 ms under bf16 autocast, 4.00 in float32 (plain"
        " attention's forward, large, context 512). Softmax stays in float32, and autocast adds"
        " casts."
    )


def test_finding_gives_memory_in_length_by_length_matrices(gpu, cpu):
    assert sentence_of("attention_matrices", gpu) == (
        "Plain attention keeps 2.0 matrices of length x length (float32) for the backward. The"
        " peak of its forward is 3.0 of them. That of its backward is 3.0. A published write-up"
        " (001) calls memory linear in the length."
    )
    assert sentence_of("attention_matrices", cpu).startswith("Plain attention keeps ")


def test_memory_in_matrices_excludes_the_inputs():
    def change(frame):
        one = frame["batch"] * frame["seq_len"] ** 2 * 4 / 2**20
        backward = matches(frame, phase="backward")
        frame["resident_mib"] = 7 * one
        frame["saved_mib"] = 9 * one
        frame["peak_mib"] = (10 * one).where(~backward, 12 * one)

    sentence = sentence_of("attention_matrices", with_changed_rows(change))
    assert "keeps 2.0 matrices" in sentence
    assert "its forward is 3.0 of them. That of its backward is 5.0." in sentence


def test_speedup_divides_eager_float32_time_by_other_time():
    evidence = with_times(0.25, **COMPILED)
    frame = evidence.frames["attention"]
    frame.loc[matches(frame, implementation="eager"), "peak_mib"] = 400.0
    frame.loc[matches(frame, implementation="compiled"), "peak_mib"] = 100.0
    sentence = sentence_of("attention_compiled", evidence)
    assert "Forward: 4.00x. Backward: 4.00x." in sentence
    assert "its backward's peak is 25.0 % of PyTorch's: fewer matrices" in sentence
    quick = with_times(0.25, implementation="eager", dtype="tf32")
    faster = sentence_of("attention_numerics", quick)
    assert "Forward: TF32 up to 4.00x" in faster and "Backward: TF32 up to 4.00x" in faster


def with_marked_widest_heads(evidence):
    frame = evidence.frames["attention"]
    widest = frame["d_head"] == frame["d_head"].max()
    evidence.derived.clear()
    return with_columns(evidence, widest, marks="drift", reference=1.0)


def test_finding_names_the_widths_that_it_leaves_out():
    quick = with_times(0.25, implementation="eager", dtype="tf32")
    assert "Left out" not in sentence_of("attention_numerics", quick)
    marked = sentence_of("attention_numerics", with_marked_widest_heads(quick))
    assert " Left out, since marked: d_head 128." in marked


def test_peaks_of_drifted_rows_count():
    evidence = with_times(0.25, **COMPILED)
    frame = evidence.frames["attention"]
    frame.loc[matches(frame, implementation="eager"), "peak_mib"] = 400.0
    compiled = matches(frame, implementation="compiled")
    frame.loc[compiled, "peak_mib"] = 100.0
    frame.loc[compiled & (frame["d_head"] == 128), "peak_mib"] = 200.0
    sentence = sentence_of("attention_compiled", with_marked_widest_heads(evidence))
    assert "peak is 25.0 to 50.0 % of PyTorch's" in sentence


def test_speedup_range_excludes_unresolved_comparisons():
    sentence = sentence_of("attention_compiled", with_times(2.0, 0.5, **COMPILED))
    assert " of 40 cells (float32), slower in 20. Forward: 0.50x to" in sentence
    nothing = sentence_of("attention_compiled", with_times(1.0, **COMPILED))
    assert "in 0 of 40 cells (float32), slower in none." in nothing
    assert "Forward:" not in nothing


def test_head_table_ends_at_the_first_length_out_of_memory(gpu):
    table = SECTION.head(gpu).frame
    assert table["length"].tolist() == [256, 1024, 4096, 8192, 16384, 65536]
    last = table.iloc[-1]
    assert last["forward (ms)"] == "OOM"
    assert last["bound by"] == last["peak of the backward (MiB)"] == "–"


def test_head_table_ends_at_the_oom_limit_if_the_grid_fits():
    table = SECTION.head(with_requested_bytes(1.0))
    assert table.frame["length"].tolist()[-2:] == [16384, 65536]
    assert table.frame["forward (ms)"].iloc[-1] == "OOM"
    assert table.notes.endswith("No length between 16,384 and 65,536 was run.")
    masked = with_changed_rows(lambda frame: frame[frame["seq_len"] < 65536])
    assert SECTION.head(masked).frame["length"].tolist()[-1] == 16384


def test_cpu_head_table_has_one_line_per_length(cpu):
    table = SECTION.head(cpu)
    assert table.frame["length"].tolist() == [128, 256, 512]
    assert "OOM" not in markdown(table)


def test_table_a1_shows_times_memory_and_status_per_cell(gpu):
    table = parts_of("A1", gpu)[0].frame
    row = table[(table["d_head"] == 64) & (table["length"] == 1024)].iloc[0]
    frame = gpu.frames["attention"]
    cell = dict(d_head=64, seq_len=1024, dtype="float32", implementation="eager")
    backward = frame[matches(frame, **cell, phase="backward")].iloc[0]
    assert row["backward (ms)"].startswith(f"{backward['median_ms']:.3f} (")
    assert row["memory before backward, with inputs (MiB)"] == f"{backward['saved_mib']:.1f}"
    assert row["status"] == "ok"
    full = table[table["length"] == 65536]
    assert set(full["status"]) == {"OOM"}
    assert full["forward (ms)"].str.startswith("OOM (asked 128.0 GiB").all()


def test_failed_accuracy_gate_withholds_time_and_speedup():
    def change(frame):
        cell = dict(d_head=64, seq_len=1024, dtype="float32", phase="forward")
        frame.loc[matches(frame, **cell, implementation="eager"), "max_error"] = 1.0

    evidence = with_changed_rows(change)
    plain, beside = parts_of("A1", evidence)[0].frame, parts_of("A2", evidence)[0].frame
    row = plain[(plain["d_head"] == 64) & (plain["length"] == 1024)].iloc[0]
    assert row["forward (ms)"] == row["status"] == "gate failed, withheld"
    assert row["backward (ms)"][0].isdigit()
    row = beside[(beside["d_head"] == 64) & (beside["length"] == 1024)].iloc[0]
    assert row["forward, compiled over PyTorch"] == "withheld"


def test_table_a2_compares_other_dtypes_with_float32(gpu):
    table = parts_of("A2", gpu)[-1]
    assert table.caption.startswith("Other dtypes over float32")
    assert "forward, PyTorch, TF32 over PyTorch, float32" in table.frame
    frame = gpu.frames["attention"]
    base = frame[matches(frame, implementation="eager", phase="forward", dtype="float32")]
    assert len(table.frame) == len(base)


def test_table_a4_shows_memory_step_by_step(gpu):
    table = parts_of("A4", gpu)[0].frame
    row = table[(table["d_head"] == 64) & (table["length"] == 1024)].iloc[0]
    assert row["kept for the backward (MiB)"] == "64.0"
    assert 65536 not in table["length"].tolist()
    note = parts_of("A4", gpu)[0].notes
    assert "(000, 001) differs by a factor of 1.83 to 7.13" in note
    assert "at length 8,192 it is 1.02 to 1.07 in the one and 1.90 to 1.97 in the other" in note


def test_table_a4_omits_tf32_which_is_stored_as_float32(gpu):
    captions = [table.caption for table in parts_of("A4", gpu)]
    assert any("float32" in caption for caption in captions)
    assert not any("TF32" in caption for caption in captions)


def test_table_a3_shows_the_memory_limit_per_dtype(gpu, cpu):
    table = parts_of("A3", gpu)[0].frame
    assert table["dtype"].tolist() == ["float32", "bf16"]
    assert table["asked for (MiB)"].tolist() == ["131,072", "262,144"]
    assert set(parts_of("A3", cpu)[0].frame["outcome"]) == {
        "not run: it would take the memory of the whole machine"
    }


@pytest.mark.parametrize("evidence", [synthetic.gpu_evidence, synthetic.cpu_evidence])
def test_coverage_counts_only_the_cells_of_each_table(evidence):
    evidence = evidence()
    found = states(evidence, [compose("attention", evidence, drawn=False)])
    frame = evidence.frames["attention"]
    cells = frame[frame["phase"] == "forward"]
    plain = matches(cells, implementation="eager")
    owed = {
        "A1": plain.sum(),
        "A2": (~matches(cells, implementation="eager", dtype="float32")).sum(),
        "A3": 2,
        "A4": (plain & (cells["dtype"] != "tf32")).sum(),
    }
    assert {s.table.id: (s.measured, s.owed) for s in found} == {
        name: (cells, cells) for name, cells in owed.items()
    }
    assert gaps(found) == []


def test_table_a2_is_empty_with_one_dtype_and_implementation(cpu_copy):
    frame = cpu_copy.frames["attention"]
    cpu_copy.frames["attention"] = frame[matches(frame, implementation="eager")]
    composed = compose("attention", cpu_copy, drawn=False)
    assert composed.parts["A2"] == []
    assert gaps(states(cpu_copy, [composed])) == []


def test_table_a3_is_shown_if_the_timing_rows_are_damaged():
    evidence = synthetic.gpu_evidence()
    evidence.damaged["attention"] = "a row was lost"
    composed = compose("attention", evidence)
    assert composed.parts["A3"]
    assert composed.head is None and not composed.parts["A1"]


@pytest.mark.slow
def test_figure_shows_the_gain_of_compiling_at_each_length(gpu):
    drawn = themed(lambda pen: SECTION.figure(gpu, pen), LIGHT)
    forward = drawn.axes[3]
    pair = (Series.of(implementation=name) for name in ("compiled", "eager"))
    found = resolved(gpu, STEM, *pair)
    found = having(found, phase="forward", dtype="float32", d_head=64)
    points = [line for line in forward.lines if line.get_label() == f"_{GAIN}"]
    assert list(points[0].get_ydata()) == list(found["ratio"])
    assert ratio(found["ratio"].max()) in [text.get_text() for text in forward.texts]
    panel = forward.get_window_extent()
    boxes = [text.get_window_extent() for text in forward.texts]
    assert all(panel.x0 <= box.x0 and box.x1 <= panel.x1 for box in boxes)


@pytest.mark.parametrize("outlier", [1.49, 0.8])
def test_figure_numbers_an_outlier_between_close_lengths(outlier):
    inches = np.array([0, 0.4, 0.8, 1.0, 1.2])
    values = np.array([1.12, 1.24, 1.35, outlier, 1.29])
    numbered = _numbered(inches, values)
    assert 3 in numbered
    gaps = np.diff(np.sort(inches[numbered]))
    assert (gaps >= NUMBER_INCHES).all() and len(set(numbered)) == len(numbered)


@pytest.mark.slow
def test_figure_without_compiled_rows_has_no_gain(gpu):
    frame = gpu.frames[STEM]
    alone = synthetic.with_frames(gpu, **{STEM: having(frame, implementation="eager")})
    assert len(themed(lambda pen: SECTION.figure(alone, pen), LIGHT).axes) == 3


@pytest.mark.slow
def test_figure_title_states_time_growth_and_oom_length(gpu, cpu):
    drawn = themed(lambda pen: SECTION.figure(gpu, pen), LIGHT)
    title = " ".join(drawn.get_suptitle().split())
    assert "8k to 16k: 3.8 times the forward time" in title
    assert title.endswith("64k does not fit")
    assert len(drawn.axes) == 6
    drawn = themed(lambda pen: SECTION.figure(cpu, pen), LIGHT)
    assert "fit" not in drawn.get_suptitle()
