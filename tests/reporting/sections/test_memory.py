"""Report section on memory: findings, tables and figure.

The head table is the one table of the section in the write-up; Y1 to Y5 are tables on its page.
"""

import re
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import synthetic
from finding_checks import assert_answers_reached

from lmperf.reporting import coverage, figures
from lmperf.reporting.evidence import having
from lmperf.reporting.findings import state
from lmperf.reporting.markdown import markdown
from lmperf.reporting.numbers import EMPTY, significant
from lmperf.reporting.sections import compose
from lmperf.reporting.sections.memory import checkpoints, figure, timeline
from lmperf.reporting.sections.memory.chart import charts
from lmperf.reporting.sections.memory.figure import rungs_of, words_of
from lmperf.reporting.sections.memory.findings import FINDINGS

GIB = 2**30
AUTOCAST = "autocast_bfloat16"


def with_changed_rows(stem, change, make=synthetic.gpu_evidence):
    """A function that makes evidence with the rows of a benchmark replaced by ``change(frame)``."""

    def evidence():
        made = make()
        made.frames[stem] = change(made.frames[stem].copy())
        return made

    return evidence


def autocast_peaks(factor, **where):
    """A function that sets bf16 autocast's peaks to ``factor`` times float32's where selected."""

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


def in_sequence(*changes):
    def change(frame):
        for each in changes:
            frame = each(frame)
        return frame

    return change


def parameter_shares(short, long):
    """A function that sets the share of parameters in the predicted memory.

    Gradients and optimizer state become 0.

    short, long: the share at context lengths 128 and 1024; at others it is 0.5.
    """

    def change(frame):
        ends = frame["context_length"].map({128: short, 1024: long}).fillna(0.5)
        frame["parameters_mib"] = ends * frame["predicted_mib"]
        return frame.assign(gradients_mib=0.0, optimizer_mib=0.0)

    return change


def peak_excess(mib, workspace):
    """A function that sets peaks to the prediction, plus ``mib`` MiB for size small.

    workspace: the value of the column ``workspace_mib``.
    """

    def change(frame):
        small = np.where(frame["size"] == "small", mib, 0.0)
        return frame.assign(predicted_mib=500.0, peak_mib=500.0 + small, workspace_mib=workspace)

    return change


def peak_of(implementation, factor):
    """A function that multiplies the peaks of an implementation by ``factor``."""

    def change(frame):
        frame.loc[frame["implementation"] == implementation, "peak_mib"] *= factor
        return frame

    return change


SMALLER, LARGER = autocast_peaks(0.8), autocast_peaks(1.2)
CASES = {
    "memory_autocast_adds": {
        "little": with_changed_rows("memory", autocast_peaks(0.95)),
        "saves": with_changed_rows("memory", SMALLER),
        "other": with_changed_rows("memory", lambda f: f.assign(weight_copies_mib=0.0)),
    },
    "memory_by_context": {
        "turns": with_changed_rows("memory", parameter_shares(0.9, 0.2)),
        "stays": with_changed_rows("memory", parameter_shares(0.9, 0.6)),
    },
    "memory_autocast": {
        "saves": with_changed_rows("memory", SMALLER),
        "never": with_changed_rows("memory", LARGER),
        "not_everywhere": with_changed_rows(
            "memory", in_sequence(SMALLER, autocast_peaks(1.2, size="2.0B"))
        ),
    },
    "memory_predicted": {
        "within": synthetic.gpu_evidence,
        "workspace": with_changed_rows("memory", peak_excess(40.0, 32.0)),
        "outside": with_changed_rows("memory", peak_excess(40.0, np.nan)),
    },
}


CASES["memory_checkpoints"] = {
    "smallest": synthetic.gpu_evidence,
    "larger": with_changed_rows("checkpointing", peak_of("checkpoint_1", 1.5)),
}
ALL = (*FINDINGS, checkpoints.FINDING)


def sentence_of(name, evidence):
    finding = next(finding for finding in ALL if finding.name == name)
    return state(finding, evidence).sentence


def cell_of(lines, column, **where):
    """The cell of a column in the one table line that has the values ``where``."""
    frame = lines.frame
    for name, value in where.items():
        frame = frame[frame[name] == value]
    assert len(frame) == 1, frame
    return frame[column].iloc[0]


def test_findings_give_every_declared_answer():
    assert_answers_reached(ALL, CASES)


def test_first_sentence_states_what_autocast_saves_and_adds():
    def change(frame):
        half = frame["dtype"] == AUTOCAST
        frame["weight_copies_mib"] = np.where(half, 2048.0, 0.0)
        frame["activations_mib"] = np.where(half, 1024.0, 4096.0)
        return autocast_peaks(0.95)(frame)

    sentence = sentence_of("memory_autocast_adds", with_changed_rows("memory", change)())
    assert "Activations shrink by 3.0 GiB, bf16 copies of the weights add 2.0 GiB" in sentence
    assert sentence.startswith("bf16 autocast hardly saves memory")
    smaller = with_changed_rows("memory", SMALLER)()
    assert "changes peaks of train steps by -20.0 % (" in sentence_of(
        "memory_autocast_adds", smaller
    )


def test_autocast_peaks_within_1_percent_count_as_equal():
    evidence = with_changed_rows(
        "memory",
        in_sequence(
            autocast_peaks(0.995),
            autocast_peaks(0.8, size="small"),
            autocast_peaks(1.2, size="2.0B"),
        ),
    )
    sentence = sentence_of("memory_autocast", evidence())
    assert "lower in 4 of 20 train steps, higher in 4." in sentence


def test_head_table_has_shares_of_the_peak_per_size(gpu):
    head = compose("memory", gpu, drawn=False).head
    assert head.frame["size"].tolist() == ["small", "medium", "large", "2.0B", "3.4B"]
    frame = gpu.frames["memory"]
    where = {"size": "2.0B", "context_length": 512, "dtype": "float32", "phase": "train_step"}
    row = having(frame, **where).iloc[0]
    assert cell_of(head, "float32 (GiB)", size="2.0B") == f"{row['peak_mib'] / 1024:.1f}"
    share = 100 * row["activations_mib"] / row["predicted_mib"]
    assert cell_of(head, "activations (%)", size="2.0B") == f"{share:.0f}"


def test_head_table_uses_the_nearest_context_of_each_size(cpu_copy):
    frame = cpu_copy.frames["memory"]
    cpu_copy.frames["memory"] = frame[(frame["size"] != "small") | (frame["context_length"] == 128)]
    head = compose("memory", cpu_copy, drawn=False).head
    assert head.frame[["size", "context"]].values.tolist() == [["tiny", 256], ["small", 128]]


def test_out_of_memory_is_shown_beside_the_prediction(gpu_copy):
    frame = gpu_copy.frames["memory"]
    where = {"size": "3.4B", "context_length": 1024, "dtype": "float32", "phase": "train_step"}
    at = having(frame, **where).index
    frame.loc[at, ["status", "peak_mib"]] = ["oom", np.nan]
    frame["requested_bytes"], frame["free_bytes"] = 12 * GIB, 3.5 * GIB
    table = compose("memory", gpu_copy, drawn=False).parts["Y1"][1]
    where = {"size": "3.4B", "context": 1024}
    assert (
        cell_of(table, "measured, float32 (MiB)", **where) == "OOM (asked 12.0 GiB, 3.5 GiB free)"
    )
    predicted = frame.loc[at, "predicted_mib"].iloc[0]
    assert cell_of(table, "predicted, float32 (MiB)", **where) == f"{predicted:,.0f}"
    assert cell_of(table, "difference, float32", **where) == "–"


def test_table_y2_peak_is_where_most_memory_is_alive(gpu):
    lines = compose("memory", gpu, drawn=False).parts["Y2"][0]
    where = {"size": "2.0B", "dtype": "float32", "phase": "train step"}
    assert cell_of(lines, "peak in", **where) == "backward, 0.0 % through"
    curve = timeline.observed(gpu, "curve")
    total = timeline.levels(curve).sum(axis=1).groupby([curve[c] for c in timeline.CELL]).max()
    pd.testing.assert_series_equal(
        total, curve.groupby(timeline.CELL)["recorded_mib"].first(), check_names=False
    )


def test_failed_call_has_a_line_and_counts_as_measured(gpu_copy):
    frame = gpu_copy.frames["memory_timeline"]
    calls = having(frame, size="2.0B", dtype=AUTOCAST)
    failed = calls.drop_duplicates("phase").assign(status="oom", table=None)
    failed = failed.assign(requested_bytes=GIB, free_bytes=GIB / 2)
    rest = frame.drop(calls.index)
    gpu_copy.frames["memory_timeline"] = pd.concat([rest, failed], ignore_index=True)
    section = compose("memory", gpu_copy, drawn=False)
    where = {"size": "2.0B", "dtype": "bf16 autocast", "phase": "train step"}
    words = cell_of(section.parts["Y2"][0], "peak in", **where)
    assert words == "OOM (asked 1.0 GiB, 512 MiB free)"
    found = {s.table.id: (s.measured, s.owed, s.gap) for s in coverage.states(gpu_copy, [section])}
    assert found["Y2"] == found["Y5"] == (4, 4, False)


def test_missing_cell_is_counted_in_every_timeline_table(gpu_copy):
    cell = {"size": "3.4B", "context_length": 512, "batch": 4, "dtype": "float32"}
    lacking = [{**cell, "implementation": "eager", "phase": "forward"}]
    gpu_copy.lacking["memory_timeline"] = pd.DataFrame(lacking)
    found = coverage.states(gpu_copy, [compose("memory", gpu_copy, drawn=False)])
    assert {(s.measured, s.owed, s.words) for s in found[1:5]} == {(4, 5, "partly measured")}


def test_table_y3_joins_equal_tensors_in_one_line(gpu):
    lines = compose("memory", gpu, drawn=False).parts["Y3"][0]
    where = {"size": "2.0B", "dtype": "float32", "phase": "train step"}
    assert cell_of(lines, "how many", category="activations", **where) == 2
    assert cell_of(lines, "made in", category="parameters", **where) == "before"


def test_table_y4_compares_residual_stream_with_closed_form(gpu_copy):
    frame = gpu_copy.frames["memory_timeline"]
    frame.loc[frame["table"].eq("stream") & frame["size"].eq("2.0B"), "size_mib"] *= 2
    lines = compose("memory", gpu_copy, drawn=False).parts["Y4"][0]
    assert lines.frame["measured (bytes an element)"].tolist() == ["4", "8"]
    assert "003" in lines.notes


def test_head_table_note_states_when_memory_peaks(gpu_copy):
    assert "before nearly any gradient" not in compose("memory", gpu_copy, drawn=False).head.notes
    gpu_copy.derived.clear()
    gpu_copy.frames["memory"]["gradients_mib"] = 0.0
    assert "before nearly any gradient" in compose("memory", gpu_copy, drawn=False).head.notes


def test_table_y5_counts_cast_weights_as_temporary(gpu_copy):
    frame = gpu_copy.frames["memory_timeline"]
    chosen = frame["table"].eq("category") & frame["phase"].eq("forward") & frame["size"].eq("2.0B")
    frame.loc[chosen & (frame["name"] == "activations"), "predicted_mib"] = 100.0
    frame.loc[chosen & (frame["name"] == "temporary"), ["predicted_mib", "size_mib"]] = [1, 101]
    lines = compose("memory", gpu_copy, drawn=False).parts["Y5"][0]
    where = {"size": "2.0B", "dtype": "float32", "phase": "forward"}
    assert cell_of(lines, "temporary (MiB)", **where) == "101.0 / 101.0"
    assert cell_of(lines, "activations (MiB)", **where) == "–"


def test_predicted_components_have_no_line_without_a_prediction(gpu_copy):
    frame = gpu_copy.frames["memory"]
    failed = frame["size"].eq("small") & frame["dtype"].eq("float32")
    numbers = [name for name in frame if name.endswith("_mib")]
    frame.loc[failed, numbers], frame.loc[failed, "status"] = np.nan, "oom"
    single, half = compose("memory", gpu_copy, drawn=False).parts["Y5"][1:]
    assert "small" not in " ".join(single.frame["size"]) and len(single.frame)
    assert "small" in " ".join(half.frame["size"])


def test_change_of_the_peak_within_a_percent_counts_as_neither(gpu):
    change = in_sequence(autocast_peaks(1.005), autocast_peaks(0.98, size="small"))
    evidence = with_changed_rows("memory", change)()
    said = str(state(next(f for f in FINDINGS if f.name == "memory_autocast"), evidence))
    assert "peaks are lower in 4 of 20 train steps. A change within 1 % counts as neither." in said


@pytest.mark.slow
def test_timeline_figure_starts_with_the_measured_call(gpu):
    drawn = figures.themed(lambda pen: figure(gpu, pen), figures.LIGHT)
    steps = drawn.axes[:2]
    titles = [axis.get_title() for axis in steps]
    assert titles == ["2.0B, context 512, float32", "2.0B, context 512, bf16 autocast"]
    for axis in steps:
        assert axis.get_xlim()[0] == 0
        for layer in axis.collections:
            vertices = layer.get_paths()[0].vertices
            assert vertices[:, 0].min() >= 0
        # The lowest layer (parameters) is constant: the figure omits the points that add tensors
        # which exist before the call.
        bottom = axis.collections[0].get_paths()[0].vertices
        assert len(set(bottom[bottom[:, 1] > 0][:, 1].round(6))) == 1


@pytest.mark.slow
def test_figure_shows_the_peak_of_each_rung_with_a_graph_s_pool(gpu):
    drawn = figures.themed(lambda pen: figure(gpu, pen), figures.LIGHT)
    axis = next(axis for axis in drawn.axes if axis.get_title() == "large, context 1024")
    graph = having(gpu.frame("end_to_end"), implementation="graph", size="large", batch=4).iloc[0]
    peak = (graph["peak_mib"] + graph["pool_mib"]) / 1024
    lowest = max(text.xy[1] for text in axis.texts)
    assert [t.get_text() for t in axis.texts if t.xy[1] == lowest] == [significant(peak)]
    kept, added = (max(bars.patches, key=lambda bar: bar.get_y()) for bars in axis.containers)
    assert kept.get_width() == pytest.approx(graph["resident_mib"] / 1024)
    assert kept.get_width() + added.get_width() == pytest.approx(peak)


@pytest.mark.slow
def test_figure_splits_peaks_without_gradients_of_earlier_phases(gpu_copy):
    frame = gpu_copy.frames["end_to_end"]
    before = rungs_of(gpu_copy).set_index(["size", "implementation"])[["kept", "peak"]]
    rows = having(frame, implementation="compiled_blocks").index
    frame.loc[rows, "resident_mib"] += 4 * frame.loc[rows, "parameters"] / 2**20
    after = rungs_of(gpu_copy).set_index(["size", "implementation"])[["kept", "peak"]]
    assert before.equals(after)
    kept = before["kept"].xs("3.4B")
    assert kept["float32"] == kept["compiled_blocks"] == 2 * kept["bf16_weights"]


@pytest.mark.slow
def test_figure_says_where_activations_have_cast_weights(gpu):
    cast = "activations, weights cast by autocast"
    drawn = figures.themed(lambda pen: figure(gpu, pen), figures.LIGHT)
    words = {text.get_text() for part in drawn.subfigs for text in part.legends[0].get_texts()}
    assert cast in words and "activations" not in words
    assert cast in {record["name"] for record in charts(gpu)[0]["data"]["values"]}
    assert words_of(["float32", "tf32"])["activations"] == "activations"


@pytest.mark.parametrize("stem", ["end_to_end", "memory_timeline"])
def test_figure_is_drawn_with_recordings_or_rungs_alone(gpu_copy, stem):
    del gpu_copy.frames[stem]
    drawn = figures.themed(lambda pen: figure(gpu_copy, pen), figures.LIGHT)
    assert len(drawn.axes) == (2 if stem == "end_to_end" else 3)


@pytest.mark.slow
@pytest.mark.parametrize("stem", ["memory", "memory_timeline"])
def test_section_works_without_either_benchmark(gpu_copy, stem):
    del gpu_copy.frames[stem], gpu_copy.frames["checkpointing"]
    section = compose("memory", gpu_copy)
    assert section.measured and any(section.parts.values()) and section.figures is not None
    assert bool(section.statements) == (stem == "memory_timeline")


@pytest.mark.slow
def test_cpu_section_mentions_nothing_of_a_gpu(cpu):
    section = compose("memory", cpu)
    text = " ".join(s.sentence for s in section.statements)
    assert "cuBLAS" not in text and "nan" not in text and "–" not in text
    assert section.head is not None and set(section.figures) == {"light", "dark"}


@pytest.mark.slow
def test_custom_model_adds_columns_and_changes_no_others(gpu):
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


def test_table_y6_predicts_steps_that_run_out_of_memory(gpu):
    larger = compose("memory", gpu, drawn=False).parts["Y6"][-1]
    assert "3.4B" in larger.caption
    none = {"implementation": "eager"}
    assert cell_of(larger, "measured (GiB)", **none) == "OOM (asked 4.0 GiB, 512 MiB free)"
    assert cell_of(larger, "predicted (GiB)", **none) == "182"
    assert cell_of(larger, "difference", **none) == "–"


def test_table_y6_compares_steps_with_those_without_checkpoints(gpu):
    large, larger = compose("memory", gpu, drawn=False).parts["Y6"]
    over = cell_of(large, "over no checkpoints", implementation="checkpoints of 1 layer")
    assert over.startswith("0.76x")
    assert "over no checkpoints" not in larger.frame


def test_finding_on_checkpoints_explains_the_best_size(gpu):
    sentence = sentence_of("memory_checkpoints", gpu)
    assert "from 182.5 GiB (predicted) to" in sentence
    assert "a layer would keep 4,276 MiB for its backward, its input takes 80.0" in sentence
    assert re.search(r"\(large\)\. Nested ones need [0-9.]+ GiB, and their step takes ", sentence)
    steps = having(gpu.frames["checkpointing"], size="3.4B").set_index("implementation")
    times = steps["median_ms"]["nested_4"] / steps["median_ms"]["checkpoint_1"]
    assert sentence.endswith(f"takes {significant(times)} times as long.")


def test_finding_on_checkpoints_is_silent_without_valid_rows(gpu_copy):
    frame = gpu_copy.frames["checkpointing"]
    frame["status"] = "crash"
    assert state(checkpoints.FINDING, gpu_copy) is None
