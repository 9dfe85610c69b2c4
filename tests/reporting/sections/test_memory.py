"""The section on memory: what its findings answer, its cells, and its picture."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import synthetic
from answers import check_answers

from lmperf.reporting import coverage, figures
from lmperf.reporting.evidence import having
from lmperf.reporting.findings import SHORT, state
from lmperf.reporting.numbers import EMPTY
from lmperf.reporting.sections import compose
from lmperf.reporting.sections.memory import figure, timeline
from lmperf.reporting.sections.memory.findings import FINDINGS
from lmperf.reporting.tables import markdown

GIB = 2**30
AUTOCAST = "autocast_bfloat16"


def edited(stem, change, make=synthetic.gpu_evidence):
    """Evidence whose frame of a stem is what ``change`` makes of it."""

    def evidence():
        made = make()
        made.frames[stem] = change(made.frames[stem].copy())
        return made

    return evidence


def peaks(factor, **where):
    """Autocast's peaks as a factor of float32's, in the rows that ``where`` names."""

    def change(frame):
        keys = ["size", "context_length", "phase"]
        single = frame[frame["dtype"] == "float32"].set_index(keys)["peak_mib"]
        chosen = frame["dtype"] == AUTOCAST
        for name, value in where.items():
            chosen &= frame[name] == value
        same = pd.MultiIndex.from_frame(frame.loc[chosen, keys])
        frame.loc[chosen, "peak_mib"] = factor * single.loc[same].to_numpy()
        return frame

    return change


def both(*changes):
    def change(frame):
        for each in changes:
            frame = each(frame)
        return frame

    return change


def shares(short, long):
    """Parameters' share at the shortest and at the longest context; no other state."""

    def change(frame):
        ends = frame["context_length"].map({128: short, 1024: long}).fillna(0.5)
        frame["parameters_mib"] = ends * frame["predicted_mib"]
        return frame.assign(gradients_mib=0.0, optimizer_mib=0.0)

    return change


def excess(mib, workspace):
    """Peaks as predicted, but those of the smallest size, which are so much higher."""

    def change(frame):
        small = np.where(frame["size"] == "small", mib, 0.0)
        return frame.assign(predicted_mib=500.0, peak_mib=500.0 + small, workspace_mib=workspace)

    return change


SMALLER, LARGER = peaks(0.8), peaks(1.2)
CASES = {
    "memory_made_of": {
        "alone": edited("memory", lambda frame: frame[frame["dtype"] == "float32"]),
        "both": edited("memory", both(SMALLER, peaks(1.2, size="xl"))),
    },
    "memory_by_context": {
        "turns": edited("memory", shares(0.9, 0.2)),
        "stays": edited("memory", shares(0.9, 0.6)),
    },
    "memory_autocast": {
        "saves": edited("memory", SMALLER),
        "never": edited("memory", LARGER),
        "not_everywhere": edited("memory", both(SMALLER, peaks(1.2, size="xl"))),
    },
    "memory_predicted": {
        "within": synthetic.gpu_evidence,
        "workspace": edited("memory", excess(40.0, 32.0)),
        "outside": edited("memory", excess(40.0, np.nan)),
    },
}


def said(name, evidence):
    finding = next(finding for finding in FINDINGS if finding.name == name)
    return state(finding, evidence).sentence


def cell(lines, column, **where):
    """The cell of a table in the only line that has these values."""
    frame = lines.frame
    for name, value in where.items():
        frame = frame[frame[name] == value]
    assert len(frame) == 1, frame
    return frame[column].iloc[0]


def test_every_answer_is_reached():
    check_answers(FINDINGS, CASES)


def test_the_first_sentence_says_how_much_autocast_changes():
    evidence = edited("memory", both(peaks(0.875), peaks(1.25, size="xl")))()
    assert "changes peaks by -12.5 to +25.0 %." in said("memory_made_of", evidence)
    assert "changes peaks by -20.0 %." in said("memory_made_of", edited("memory", SMALLER)())


@pytest.mark.parametrize("make", [synthetic.gpu_evidence, synthetic.cpu_evidence])
def test_sentences_are_short(make):
    for statement in compose("memory", make(), drawn=False).statements:
        for sentence in statement.sentence.replace(" %", "%").replace(" to ", "-").split(". "):
            assert len(sentence.split()) <= (20 if statement.place == SHORT else 35), sentence


def test_peaks_under_autocast_that_are_alike_are_neither_lower_nor_higher():
    evidence = edited("memory", both(peaks(0.995), peaks(0.8, size="small"), peaks(1.2, size="xl")))
    sentence = said("memory_autocast", evidence())
    assert "lower in 4 of 20 cells, within 1 % in 12 and higher in 4." in sentence


def test_the_head_has_a_line_a_size_and_the_shares_of_the_peak(gpu):
    head = compose("memory", gpu, drawn=False).head
    assert head.frame["size"].tolist() == ["small", "medium", "large", "xl", "2.7B"]
    frame = gpu.frames["memory"]
    where = {"size": "xl", "context_length": 512, "dtype": "float32", "phase": "train_step"}
    row = having(frame, **where).iloc[0]
    assert cell(head, "train step, float32 (GiB)", size="xl") == f"{row['peak_mib'] / 1024:.1f}"
    share = 100 * row["activations_mib"] / row["predicted_mib"]
    assert cell(head, "activations (%)", size="xl") == f"{share:.0f}"


def test_sizes_without_the_usual_context_stand_at_their_nearest(cpu_copy):
    frame = cpu_copy.frames["memory"]
    cpu_copy.frames["memory"] = frame[(frame["size"] != "small") | (frame["context_length"] == 128)]
    head = compose("memory", cpu_copy, drawn=False).head
    assert head.frame[["size", "context"]].values.tolist() == [["tiny", 256], ["small", 128]]
    assert "(predicted, size tiny, context 256)" in said("memory_made_of", cpu_copy)


def test_out_of_memory_is_said_with_its_bytes_beside_the_prediction(gpu_copy):
    frame = gpu_copy.frames["memory"]
    where = {"size": "2.7B", "context_length": 1024, "dtype": "float32", "phase": "train_step"}
    at = having(frame, **where).index
    frame.loc[at, ["status", "peak_mib"]] = ["oom", np.nan]
    frame["requested_bytes"], frame["free_bytes"] = 12 * GIB, 3.5 * GIB
    table = compose("memory", gpu_copy, drawn=False).parts["Y1"][1]
    where = {"size": "2.7B", "context": 1024}
    assert cell(table, "measured, float32 (MiB)", **where) == "OOM (asked 12.0 GiB, 3.5 GiB free)"
    predicted = frame.loc[at, "predicted_mib"].iloc[0]
    assert cell(table, "predicted, float32 (MiB)", **where) == f"{predicted:,.0f}"
    assert cell(table, "difference, float32", **where) == "–"


def test_the_peak_of_the_picture_is_where_most_is_alive(gpu):
    lines = compose("memory", gpu, drawn=False).parts["Y2"][0]
    where = {"size": "xl", "dtype": "float32", "phase": "train step"}
    assert cell(lines, "peak in", **where) == "backward, 0.0 % through"
    curve = timeline.observed(gpu, "curve")
    total = timeline.levels(curve).sum(axis=1).groupby([curve[c] for c in timeline.CELL]).max()
    pd.testing.assert_series_equal(
        total, curve.groupby(timeline.CELL)["recorded_mib"].first(), check_names=False
    )


def test_a_call_that_failed_has_a_line_and_counts_as_tried(gpu_copy):
    frame = gpu_copy.frames["memory_timeline"]
    calls = having(frame, size="xl", dtype=AUTOCAST)
    failed = calls.drop_duplicates("phase").assign(status="oom", table=None)
    failed = failed.assign(requested_bytes=GIB, free_bytes=GIB / 2)
    rest = frame.drop(calls.index)
    gpu_copy.frames["memory_timeline"] = pd.concat([rest, failed], ignore_index=True)
    section = compose("memory", gpu_copy, drawn=False)
    where = {"size": "xl", "dtype": "bf16 autocast", "phase": "train step"}
    words = cell(section.parts["Y2"][0], "peak in", **where)
    assert words == "OOM (asked 1.0 GiB, 0.500 GiB free)"
    found = {s.table.id: (s.measured, s.owed, s.gap) for s in coverage.states(gpu_copy, [section])}
    assert found["Y2"] == found["Y5"] == (4, 4, False)


def test_what_lacks_is_owed_to_every_table(gpu_copy):
    cell = {"size": "2.7B", "context_length": 512, "batch": 4, "dtype": "float32"}
    lacking = [{**cell, "implementation": "eager", "phase": "forward"}]
    gpu_copy.lacking["memory_timeline"] = pd.DataFrame(lacking)
    found = coverage.states(gpu_copy, [compose("memory", gpu_copy, drawn=False)])
    assert {(s.measured, s.owed, s.words) for s in found[1:]} == {(4, 5, "in part")}


def test_tensors_that_are_alike_share_a_line(gpu):
    lines = compose("memory", gpu, drawn=False).parts["Y3"][0]
    where = {"size": "xl", "dtype": "float32", "phase": "train step"}
    assert cell(lines, "how many", category="activations", **where) == 2
    assert cell(lines, "made in", category="parameters", **where) == "before"


def test_a_tensor_of_the_residual_stream_is_held_against_its_closed_form(gpu_copy):
    frame = gpu_copy.frames["memory_timeline"]
    frame.loc[frame["table"].eq("stream") & frame["size"].eq("xl"), "size_mib"] *= 2
    lines = compose("memory", gpu_copy, drawn=False).parts["Y4"][0]
    assert lines.frame["measured (bytes an element)"].tolist() == ["4", "8"]
    assert "003" in lines.notes


def test_the_table_that_comes_first_says_when_memory_peaks(gpu_copy):
    assert "before nearly any gradient" not in compose("memory", gpu_copy, drawn=False).head.notes
    gpu_copy.derived.clear()
    gpu_copy.frames["memory"]["gradients_mib"] = 0.0
    assert "before nearly any gradient" in compose("memory", gpu_copy, drawn=False).head.notes


def test_weights_that_autocast_casts_are_temporary_in_a_forward(gpu_copy):
    frame = gpu_copy.frames["memory_timeline"]
    chosen = frame["table"].eq("category") & frame["phase"].eq("forward") & frame["size"].eq("xl")
    frame.loc[chosen & (frame["name"] == "activations"), "predicted_mib"] = 100.0
    frame.loc[chosen & (frame["name"] == "temporary"), ["predicted_mib", "size_mib"]] = [1, 101]
    lines = compose("memory", gpu_copy, drawn=False).parts["Y5"][0]
    where = {"size": "xl", "dtype": "float32", "phase": "forward"}
    assert cell(lines, "temporary (MiB)", **where) == "101.0 / 101.0"
    assert cell(lines, "activations (MiB)", **where) == "–"


def test_the_picture_begins_with_the_call(gpu):
    drawn = figures.themed(lambda pen: figure(gpu, pen), figures.LIGHT)
    forward, step = drawn.axes
    assert (forward.get_title(), step.get_title()) == ("forward", "train step")
    for axis in drawn.axes:
        assert axis.get_xlim()[0] == 0
        for layer in axis.collections:
            vertices = layer.get_paths()[0].vertices
            assert vertices[:, 0].min() >= 0
        # Parameters are there from the first point on: no ramp of what was only entered.
        bottom = axis.collections[0].get_paths()[0].vertices
        assert len(set(bottom[bottom[:, 1] > 0][:, 1].round(6))) == 1


@pytest.mark.parametrize("stem", ["memory", "memory_timeline"])
def test_either_benchmark_may_be_missing(gpu_copy, stem):
    del gpu_copy.frames[stem]
    section = compose("memory", gpu_copy)
    assert section.measured and any(section.parts.values()) and section.figures is not None
    assert bool(section.statements) == (stem == "memory_timeline")


def test_a_cpu_says_nothing_of_what_only_a_gpu_has(cpu):
    section = compose("memory", cpu)
    text = " ".join(s.sentence for s in section.statements)
    assert "cuBLAS" not in text and "nan" not in text and "–" not in text
    assert section.head is not None and set(section.figures) == {"light", "dark"}


def test_a_users_model_stands_beside_the_projects_and_changes_nothing_of_it(gpu):
    before = compose("memory", gpu, drawn=False)
    frame = gpu.frames["memory"]
    mine = frame[frame["size"] == "large"].assign(implementation="mine", predicted_mib=np.nan)
    both = [frame, mine.assign(peak_mib=mine["peak_mib"] * 1.1)]
    frames = {**gpu.frames, "memory": pd.concat(both, ignore_index=True)}
    gpu = replace(gpu, frames=frames)
    after = compose("memory", gpu, drawn=False)
    assert markdown(after.head) == markdown(before.head)
    assert [s.sentence for s in after.statements] == [s.sentence for s in before.statements]
    for lines, old in zip(after.parts["Y1"], before.parts["Y1"], strict=True):
        table = lines.frame
        columns = [name for name in table if "mine" in name]
        assert columns == [
            "measured, mine, float32 (MiB)",
            "mine, float32, against eager",
            "measured, mine, bf16 autocast (MiB)",
            "mine, bf16 autocast, against eager",
        ]
        assert table.drop(columns=columns).equals(old.frame)
        large = table["size"] == "large"
        assert set(table.loc[large, columns[1]]) == {"+10.0 %"}
        assert set(table.loc[~large, columns[1]]) == {EMPTY}
