"""Plain attention: what is said of it, its tables, and where they say that it ends."""

import pandas as pd
import pytest
import synthetic
from answers import check_answers

from lmperf.reporting.coverage import gaps, states
from lmperf.reporting.figures import LIGHT, themed
from lmperf.reporting.findings import state
from lmperf.reporting.sections import compose
from lmperf.reporting.sections.attention import SECTION
from lmperf.reporting.sections.attention.findings import FINDINGS
from lmperf.reporting.tables import markdown


def edited(change, stem="attention"):
    """The GPU's evidence after ``change`` of a frame of its own, or None to leave the frame out."""
    evidence = synthetic.gpu_evidence()
    frame = evidence.frames[stem].copy()
    changed = change(frame)
    evidence.frames[stem] = frame if changed is None else changed
    return evidence


def within(frame, **where):
    wanted = pd.Series(True, frame.index)
    for column, value in where.items():
        wanted &= frame[column] == value
    return wanted


def asked(factor):
    """The grid fits; what was asked at its end is ``factor`` of the prediction."""
    evidence = edited(lambda frame: frame[frame["seq_len"] < 65536].assign(causal=False))
    evidence.frames["attention_limit"]["requested_mib"] *= factor
    return evidence


def kept(power):
    """Memory that grows with a power of the length."""

    def change(frame):
        frame["saved_mib"] = frame["resident_mib"] + (frame["seq_len"] / 256.0) ** power

    return edited(change)


def times(factor, share=1.0, **where):
    """Rows whose rounds take ``factor`` of those of eager float32; ``share`` of the widths."""

    def change(frame):
        keys = ["seq_len", "d_head", "phase"]
        frame["again_ms"] = None  # else what is changed here would widen the noise floor
        base = frame[within(frame, implementation="eager", dtype="float32")]
        rounds = base.set_index(keys)["rounds_ms"]
        widths = sorted(frame["d_head"].unique())
        chosen = widths[: max(1, int(share * len(widths)))]
        rows = within(frame, status="ok", **where) & frame["d_head"].isin(chosen)
        frame.loc[rows, "rounds_ms"] = [
            ";".join(str(float(t) * factor) for t in rounds[tuple(row)].split(";"))
            for row in frame.loc[rows, keys].itertuples(index=False)
        ]

    return edited(change)


COMPILED = {"implementation": "compiled", "dtype": "float32"}
CASES = {
    "attention_ends": {"predicted": lambda: asked(1.0), "other": synthetic.gpu_evidence},
    "attention_matrices": {"square": synthetic.gpu_evidence, "other": lambda: kept(1.0)},
    "attention_compiled": {
        "all": lambda: times(0.5, **COMPILED),
        "rest": lambda: times(2.0, 0.5, **COMPILED),
    },
    "attention_numerics": {
        "all": lambda: times(0.5, implementation="eager", dtype="tf32"),
        "rest": lambda: times(2.0, implementation="eager", dtype="tf32"),
    },
}


def said(name, evidence):
    finding = next(finding for finding in FINDINGS if finding.name == name)
    statement = state(finding, evidence)
    return statement and statement.sentence


def parts(name, evidence):
    return compose("attention", evidence, drawn=False).parts[name]


def test_every_answer_has_a_sentence():
    check_answers(FINDINGS, CASES)


def test_nothing_is_said_of_what_a_machine_did_not_measure(cpu_copy):
    assert said("attention_ends", cpu_copy) is None
    assert said("attention_numerics", cpu_copy) is None
    del cpu_copy.frames["attention"]
    assert all(state(finding, cpu_copy) is None for finding in FINDINGS)


def test_the_end_is_said_with_what_was_asked():
    assert said("attention_ends", asked(1.0)) == (
        "Plain attention's forward (float32, batch 8, d_head 64) exhausts memory at length 65,536,"
        " as predicted: 128 GiB asked, 10.6 free."
    )
    assert "as predicted" not in said("attention_ends", asked(2.0))


def test_memory_is_counted_in_matrices(gpu, cpu):
    assert said("attention_matrices", gpu) == (
        "In matrices of length squared (8,192 and 16,384, float32, inputs apart): 2.0 kept for the"
        " backward, 3.0 at the forward's peak, 3.0 at the backward's; a published"
        " write-up (001) says that memory is linear."
    )
    assert said("attention_matrices", cpu).startswith("In matrices of length squared (256 and 512")


def test_inputs_are_in_no_count_of_matrices():
    def change(frame):
        one = frame["batch"] * frame["seq_len"] ** 2 * 4 / 2**20
        backward = within(frame, phase="backward")
        frame["resident_mib"] = 7 * one
        frame["saved_mib"] = 9 * one
        frame["peak_mib"] = (10 * one).where(~backward, 12 * one)

    sentence = said("attention_matrices", edited(change))
    assert "2.0 kept" in sentence
    assert "3.0 at the forward's peak, 5.0 at the backward's" in sentence


def test_compiling_and_lower_numerics_gain_the_time_of_eager_float32_over_theirs():
    evidence = times(0.25, **COMPILED)
    frame = evidence.frames["attention"]
    frame.loc[within(frame, implementation="eager"), "peak_mib"] = 400.0
    frame.loc[within(frame, implementation="compiled"), "peak_mib"] = 100.0
    sentence = said("attention_compiled", evidence)
    assert "4.00x forward, 4.00x backward" in sentence
    assert "peaks at 25.0 % of eager's" in sentence
    quick = times(0.25, implementation="eager", dtype="tf32")
    assert "TF32 4.00x forward, 4.00x backward" in said("attention_numerics", quick)


def test_what_is_unresolved_is_in_no_range():
    sentence = said("attention_compiled", times(2.0, 0.5, **COMPILED))
    assert "40 comparisons (float32), slower in 20; where resolved, 0.50x to" in sentence
    nothing = said("attention_compiled", times(1.0, **COMPILED))
    assert "in 0 of 40 comparisons (float32), slower in none; at" in nothing
    assert "resolved" not in nothing


def test_the_head_ends_with_the_first_length_that_does_not_fit(gpu):
    table = SECTION.head(gpu).frame
    assert table["length"].tolist() == [256, 1024, 4096, 8192, 16384, 65536]
    last = table.iloc[-1]
    assert last["forward (ms)"].startswith("OOM (asked 128.0 GiB")
    assert last["kept for the backward (MiB)"] == "–"


def test_the_head_takes_the_end_from_the_limit_where_the_grid_fits():
    table = SECTION.head(asked(1.0))
    assert table.frame["length"].tolist()[-2:] == [16384, 65536]
    assert table.frame["forward (ms)"].iloc[-1] == "OOM (asked 128.0 GiB, 10.6 GiB free)"
    assert table.notes.endswith("No length between 16,384 and 65,536 was run.")
    masked = edited(lambda frame: frame[frame["seq_len"] < 65536])
    assert SECTION.head(masked).frame["length"].tolist()[-1] == 16384


def test_the_head_of_a_cpu_has_a_line_a_length(cpu):
    table = SECTION.head(cpu)
    assert table.frame["length"].tolist() == [128, 256, 512]
    assert "OOM" not in markdown(table)


def test_plain_attention_has_times_memory_and_status_by_cell(gpu):
    table = parts("A1", gpu)[0].frame
    row = table[(table["d_head"] == 64) & (table["length"] == 1024)].iloc[0]
    frame = gpu.frames["attention"]
    cell = dict(d_head=64, seq_len=1024, dtype="float32", implementation="eager")
    backward = frame[within(frame, **cell, phase="backward")].iloc[0]
    assert row["backward (ms)"].startswith(f"{backward['median_ms']:.3f} (")
    assert row["memory before backward, with inputs (MiB)"] == f"{backward['saved_mib']:.1f}"
    assert row["status"] == "ok"
    full = table[table["length"] == 65536]
    assert set(full["status"]) == {"OOM"}
    assert full["forward (ms)"].str.startswith("OOM (asked 128.0 GiB").all()


def test_a_red_gate_withholds_a_time_and_its_speed_up():
    def change(frame):
        cell = dict(d_head=64, seq_len=1024, dtype="float32", phase="forward")
        frame.loc[within(frame, **cell, implementation="eager"), "max_error"] = 1.0

    evidence = edited(change)
    plain, beside = parts("A1", evidence)[0].frame, parts("A2", evidence)[0].frame
    row = plain[(plain["d_head"] == 64) & (plain["length"] == 1024)].iloc[0]
    assert row["forward (ms)"] == row["status"] == "gate failed, withheld"
    assert row["backward (ms)"][0].isdigit()
    row = beside[(beside["d_head"] == 64) & (beside["length"] == 1024)].iloc[0]
    assert row["compiled over PyTorch"] == "withheld"


def test_numerics_stand_beside_float32(gpu):
    captions = [table.caption for table in parts("A2", gpu)]
    assert captions[-2].startswith("Forward, the numerics")
    assert "PyTorch, TF32 over PyTorch, float32" in parts("A2", gpu)[-1].frame


def test_memory_is_shown_step_by_step(gpu):
    table = parts("A4", gpu)[0].frame
    row = table[(table["d_head"] == 64) & (table["length"] == 1024)].iloc[0]
    assert row["kept for the backward (MiB)"] == "64.0"
    assert 65536 not in table["length"].tolist()
    note = parts("A4", gpu)[0].notes
    assert "(000, 001) differ 1.83 to 7.13 times" in note
    assert "at 8,192 it is 1.02 to 1.07 against 1.90 to 1.97 matrices" in note


def test_where_it_ends_is_shown_tensor_by_tensor(gpu, cpu):
    table = parts("A3", gpu)[0].frame
    assert table["dtype"].tolist() == ["float32", "bf16"]
    assert table["asked for (MiB)"].tolist() == ["131,072", "262,144"]
    assert set(parts("A3", cpu)[0].frame["outcome"]) == {
        "not run: it would take the memory of the whole machine"
    }


@pytest.mark.parametrize("evidence", [synthetic.gpu_evidence, synthetic.cpu_evidence])
def test_each_table_owes_its_own_cells(evidence):
    evidence = evidence()
    found = states(evidence, [compose("attention", evidence, drawn=False)])
    frame = evidence.frames["attention"]
    cells = frame[frame["phase"] == "forward"]
    plain = within(cells, implementation="eager")
    owed = {
        "A1": plain.sum(),
        "A2": (~within(cells, implementation="eager", dtype="float32")).sum(),
        "A3": 2,
        "A4": plain.sum(),
    }
    assert {s.table.id: (s.measured, s.owed) for s in found} == {
        name: (cells, cells) for name, cells in owed.items()
    }
    assert gaps(found) == []


def test_one_numerics_and_one_implementation_leave_out_what_they_do_not_have(cpu_copy):
    frame = cpu_copy.frames["attention"]
    cpu_copy.frames["attention"] = frame[within(frame, implementation="eager")]
    composed = compose("attention", cpu_copy, drawn=False)
    assert composed.parts["A2"] == []
    assert gaps(states(cpu_copy, [composed])) == []


def test_damaged_times_leave_the_limit():
    evidence = synthetic.gpu_evidence()
    evidence.damaged["attention"] = "a row was lost"
    composed = compose("attention", evidence)
    assert composed.parts["A3"]
    assert composed.head is None and not composed.parts["A1"]


def test_the_title_of_the_figure_is_computed_and_the_end_is_marked(gpu, cpu):
    drawn = themed(lambda pen: SECTION.figure(gpu, pen), LIGHT)
    title = " ".join(drawn.get_suptitle().split())
    assert "8k to 16k: 3.8 times the forward time" in title
    assert title.endswith("64k does not fit")
    assert len(drawn.axes) == 3
    drawn = themed(lambda pen: SECTION.figure(cpu, pen), LIGHT)
    assert "fit" not in drawn.get_suptitle()


def test_host_and_loop_stand_beside_the_device_where_they_are_known(gpu, cpu):
    forward, _ = parts("Device, host and loop", gpu)
    assert set(forward.frame["length"]) > {256, 1024}
    assert {"PyTorch, host (ms)", "compiled, loop (ms)"} <= set(forward.frame)
    assert forward.frame["PyTorch, device (ms)"].iloc[-1].startswith("OOM")
    assert parts("Device, host and loop", cpu) == []
