"""Tables D2 to D6 and D8 to D12, their findings and the figure of the section on several GPUs."""

import json
from collections import defaultdict

import limits
import pytest
from finding_checks import assert_answers_reached
from rank_evidence import DTYPES, SIZES, as_long_as, evidence, larger, of, shares, slower, verdicts
from synthetic import builder, distributed

from lmperf.names import implementation_words
from lmperf.reporting import coverage, figures
from lmperf.reporting.findings import state
from lmperf.reporting.marks import legend
from lmperf.reporting.sections import compose
from lmperf.reporting.sections.distributed import (
    memory,
    overlap,
    rows,
    sharding,
    steps,
)
from lmperf.reporting.sections.distributed.chart import charts
from lmperf.reporting.sections.distributed.figure import figure, largest, spans_of
from lmperf.results import EMPTY

MINE = ("D2", "D3", "D4", "D5", "D6", "D8", "D9", "D10", "D11", "D12")


@pytest.fixture(scope="module")
def pair():
    return evidence()


@pytest.mark.slow
def test_steps_lead_to_every_answer():
    cases = {
        "distributed_overlapped_over_ddp": verdicts("overlapped", "ddp"),
        "distributed_flat_over_one_by_one": verdicts("flat", "one_by_one"),
        "distributed_buckets": {
            "best": of("distributed", slower("bucket_10", 0.5)),
            "alike": of("distributed", alike_buckets),
        },
    }
    assert_answers_reached(steps.FINDINGS, cases)


def test_buckets_are_not_named_unless_the_best_beats_all_others():
    bucket = next(one for one in steps.FINDINGS if one.name == "distributed_buckets")
    best = slower("bucket_10", 0.5)
    two = of("distributed", lambda f: as_long_as("bucket_1", "bucket_10")(best(f)))
    assert state(bucket, two()) is None


def alike_buckets(frame):
    """The rows with the times of the first bucket for every one of the same cell."""
    times = ["median_ms", "rounds_ms", "sustained_ms", "sustained_rounds_ms"]
    buckets = frame["implementation"].str.startswith("bucket")
    cell = ["size", "ranks", "dtype"]
    frame.loc[buckets, times] = frame[buckets].groupby(cell)[times].transform("first")
    return frame


def test_ledger_leads_to_every_answer():
    three = {"most": 0.95, "part": 0.5, "hardly": 0.02}
    idle, longer = {"idle": host_bound()}, {"longer": changed_by_profiler(5.0)}
    cases = {
        "distributed_hidden": shares("hidden_share", three) | idle | longer,
        "distributed_gathers": shares("gathers_hidden_share", three) | idle | longer,
    }
    assert_answers_reached(overlap.FINDINGS, cases)


def host_bound():
    """Evidence of a ledger whose profiled steps are twice as long as what fills them."""

    def change(frame):
        return frame.assign(step_ms=2 * frame["step_ms"])

    return of("distributed_overlap", change)


def changed_by_profiler(by):
    """Evidence whose profiled steps, with all that fills them, are `by` times as long."""

    def change(frame):
        names = ["step_ms", "compute_ms", "exposed_ms"]
        return frame.assign(**{name: by * frame[name] for name in names})

    return of("distributed_overlap", change)


@pytest.mark.parametrize("make", [host_bound(), changed_by_profiler(5.0)])
def test_hidden_share_of_a_changed_step_is_not_decided(make):
    parts = compose("distributed", make(), drawn=False).parts
    known = compose("distributed", evidence(), drawn=False).parts
    (steps,), (volume,) = parts["D4"], parts["D10"]
    for name in ("hidden", "exposed", "communication.share"):
        assert column(known["D4"][0], name, "overlapped by hooks").value is not None
        assert column(steps, name, "overlapped by hooks").words == "not decided"
    assert column(steps, "communication", "overlapped by hooks").value > 0
    assert column(volume, "sent.launched", "overlapped by hooks").value > 0
    assert "Not decided: a profiled rank was idle for long" in legend(
        [column(steps, "hidden", "overlapped by hooks")]
    )


def test_memory_of_steps_on_a_slow_host_counts():
    def smaller(frame):
        is_it = frame["implementation"] == "fsdp2"
        peak = frame["peak_mib"].where(~is_it, 0.5 * frame["peak_mib"])
        return frame.assign(peak_mib=peak, marks=is_it.map({True: "host", False: ""}))

    (finding,) = (one for one in memory.FINDINGS if one.name == "distributed_peaks")
    assert "The furthest is FSDP2" in state(finding, evidence(distributed=smaller)).sentence


def test_saved_memory_is_of_the_larger_of_both_peaks():
    def raised(frame):
        is_it = frame["implementation"] == "fully_sharded"
        return frame.assign(peak_mib=frame["peak_mib"].where(~is_it, 1.25 * frame["peak_mib"]))

    def cell(name, line):
        table = steps.head(known)
        names = next(one.cells for one in table.columns if one.name == "implementation")
        place = [one.words for one in names].index(line)
        return next(one.cells for one in table.columns if one.name == name)[place]

    (finding,) = (one for one in memory.FINDINGS if one.name == "distributed_fully_sharded_memory")
    known = evidence(distributed=raised)
    said, apart = state(finding, known), state(finding, evidence())
    assert said.values["peak"] == pytest.approx(1.25 * apart.values["peak"])
    assert said.values["peak"] / 2**30 == pytest.approx(cell("peak", "fully sharded").value)
    assert "larger one of timed" in said.sentence and "timed" not in apart.sentence
    assert limits.faults(said.sentence) == []


def test_impossible_peaks_of_timed_steps_are_not_compared():
    def without_gradients(frame):
        is_it = frame["implementation"] == "fsdp2"
        return frame.assign(peak_mib=frame["peak_mib"].where(~is_it, 1.0), parameters=1e9)

    (finding,) = (one for one in memory.FINDINGS if one.name == "distributed_peaks")
    every, said = (
        state(finding, known) for known in (evidence(), evidence(distributed=without_gradients))
    )
    left = len(SIZES) * len(DTYPES)
    assert said.answer == "agree" and every.values["n"] - said.values["n"] == left
    assert f"Left out are {left} cells" in said.sentence and limits.faults(said.sentence) == []


def test_memory_leads_to_every_answer():
    def saved(name):
        return {"saves": evidence, "costs": of("distributed_memory", larger(9.0, name))}

    cases = {
        "distributed_optimizer_memory": saved("sharded_optimizer"),
        "distributed_fully_sharded_memory": saved("fully_sharded"),
        "distributed_peaks": {
            "agree": evidence,
            "differ": of("distributed_memory", larger(1.2, "ddp")),
        },
        "distributed_memory_predicted": {
            "within": evidence,
            "outside": of("distributed_memory", larger(1.2)),
        },
    }
    assert_answers_reached(memory.FINDINGS, cases)


@pytest.mark.slow
def test_sharding_leads_to_every_answer():
    def sent(factor, name):
        def change(frame):
            frame.loc[frame["implementation"] == name, "sent_bytes"] *= factor
            return frame

        return of("distributed", change)

    pairs = (("sharded_optimizer", "overlapped"), ("sharded_optimizer", "zero_redundancy"))
    pairs += (("fully_sharded", "ddp"), ("fully_sharded", "fsdp2"))
    cases = {f"distributed_{a}_over_{b}": verdicts(a, b) for a, b in pairs}
    cases["distributed_volume"] = {"all": evidence, "some": sent(1.5, "flat")}
    cases["distributed_stages"] = {"more": evidence, "no_more": sent(0.5, "fully_sharded")}
    assert_answers_reached(sharding.FINDINGS, cases)


def test_findings_are_silent_without_their_rows():
    nothing = evidence(distributed=None, distributed_memory=None)
    for finding in (*steps.FINDINGS, *memory.FINDINGS, *sharding.FINDINGS):
        assert state(finding, nothing) is None, finding.name


@pytest.mark.slow
def test_every_table_of_the_section_shows_its_rows(pair):
    section = compose("distributed", pair, drawn=False)
    found = {s.table.id: s for s in coverage.states(pair, [section]) if s.table.id in MINE}
    assert set(found) == set(MINE)
    assert {name: s.words for name, s in found.items()} == dict.fromkeys(MINE, "measured")


def column(table, name, line):
    """The cell of a column in the line of an implementation, at size 3.4B in float32."""
    names = {one.name: one.cells for one in table.columns}
    places = [
        place
        for place, cells in enumerate(zip(names["size"], names["implementation"], strict=True))
        if [cell.words for cell in cells] == ["3.4B", line]
        and ("dtype" not in names or names["dtype"][place].words == "float32")
    ]
    return names[name][places[0]]


def test_ledger_table_has_the_parts_and_their_intervals(pair):
    (table,) = compose("distributed", pair, drawn=False).parts["D5"]
    parts = [column(table, name, "overlapped by hooks") for name in ("hidden", "exposed")]
    whole = column(table, "communication", "overlapped by hooks")
    assert sum(cell.value for cell in parts) == pytest.approx(whole.value)
    assert whole.low == pytest.approx(0.98 * whole.value) and whole.n == distributed.STEPS
    assert column(table, "hidden.share", "one flat tensor").words == "0.0 (0.0-0.0)"


def test_speed_up_is_over_one_rank_and_compiled_over_compiled(pair):
    (table,) = compose("distributed", pair, drawn=False).parts["D4"]
    times = distributed.times("overlapped_compiled", "3.4B", 2, builder.GPU)
    step = times["compute"] + times["communication"] - times["hidden"]
    found = column(table, "over.one_rank", "overlapped by hooks, compiled")
    assert found.value == pytest.approx(times["one"] / step, rel=0.02)
    scaling = column(table, "scaling", "overlapped by hooks, compiled")
    assert scaling.value == pytest.approx(found.value / 2)


def test_memory_is_predicted_beside_measured(pair):
    first, _ = compose("distributed", pair, drawn=False).parts["D8"]
    assert "moment" in {one.name for one in first.columns}
    differences = [
        cell.value for one in first.columns if one.name == "difference" for cell in one.cells
    ]
    assert differences == pytest.approx([0.01] * len(differences))


def test_head_has_a_line_for_each_strategy_of_one_cell(pair):
    table = steps.head(pair)
    assert table.length == 12 and len(table.columns) <= 7
    assert {"size": "3.4B", "dtype": "autocast_bfloat16"}.items() <= table.axes.items()


def test_head_says_which_noise_floor_decides_its_speedups(pair):
    """Fewer than five pairs of processes were timed, so the floor is 10 %."""
    assert "Noise floor of speed-ups: 10.0 %." in steps.head(pair).notes

    def alone(frame):
        return frame[frame["ranks"] > 1]

    assert "Noise floor" not in steps.head(evidence(distributed=alone)).notes


def test_head_has_no_peak_below_weights_gradients_and_moments(pair):
    """Timed steps with FSDP2 lack its gradients; D11 measures them, of the eager strategy only."""

    def without_gradients(frame):
        is_it = frame["implementation"].str.startswith("fsdp2")
        state = 12e9 / frame["ranks"] / 2**20
        return frame.assign(parameters=1e9, peak_mib=frame["peak_mib"].where(~is_it, state))

    def peaks(known):
        table = steps.head(known)
        return dict(zip(column_of(table, "implementation"), column_of(table, "peak"), strict=True))

    def column_of(table, name):
        return next([*map(str, one.cells)] for one in table.columns if one.name == name)

    sound, lacking = peaks(pair), peaks(evidence(distributed=without_gradients))
    assert lacking["FSDP2"] == sound["FSDP2"] != EMPTY == lacking["FSDP2, compiled"]
    assert "A dash: not known" in steps.head(evidence(distributed=without_gradients)).notes
    assert EMPTY not in sound.values() and "A dash: not known" not in steps.head(pair).notes


@pytest.mark.parametrize("stem", ["distributed_memory", "distributed_overlap"])
def test_section_is_written_without_one_of_its_benchmarks(stem):
    made = compose("distributed", evidence(**{stem: None}), drawn=False)
    assert made.head.length == 12 and made.parts["D4"]


def test_charts_have_the_intervals_and_shares_of_the_figure(pair):
    timelines, bars = charts(pair)
    spans = spans_of(pair, largest(rows.ledger(pair)))
    drawn = timelines["data"]["values"]
    assert len(drawn) == sum(map(len, spans.values()))
    assert {record["name"] for record in drawn} == {"communication", "computation"}
    assert all(record["starts"] < record["ends"] for record in drawn)
    lengths = defaultdict(float)
    for record in bars["data"]["values"]:
        lengths[record["line"]] += record["y"]
    steps_of = largest(rows.ledger(pair)).set_index("implementation")["step_ms"]
    words = {implementation_words(name): ms for name, ms in steps_of.items()}
    assert lengths == pytest.approx(words)
    json.dumps([timelines, bars], allow_nan=False)


def test_figure_draws_both_timelines_and_a_bar_for_each_strategy(pair):
    drawn = figures.themed(lambda pen: figure(pair, pen), figures.LIGHT)
    *lines, bars = drawn.axes
    assert [axis.get_title() for axis in lines] == ["one flat tensor", "overlapped by hooks"]
    assert len(bars.get_yticklabels()) == len(distributed.names(compiled=True))
    nothing = evidence(distributed_overlap=None)
    assert figures.themed(lambda pen: figure(nothing, pen), figures.LIGHT) is None


def test_sustained_times_are_shown_only_where_a_step_has_one():
    def shown(lacking):
        def change(frame):
            frame.loc[frame["implementation"].isin(lacking), "sustained_ms"] = float("nan")
            return frame

        for table in steps.overlapped_table(evidence(distributed=change)):
            cells = {column.name: column.cells for column in table.columns}
            names = [cell.words for cell in cells["implementation"]]
            found = [cell.words for cell in cells.get("train_step.sustained", ())]
            yield dict(zip(names, found, strict=True)) if found else None

    every = evidence().frames["distributed"]["implementation"].unique()
    assert set(shown(every)) == {None}
    for words in shown(["ddp"]):
        assert words.pop(implementation_words("ddp")) == EMPTY
        assert all(float(word) > 0 for word in words.values())


def test_scaling_efficiency_has_the_marks_of_its_speedup():
    def marked(frame):
        is_it = frame["implementation"] == "overlapped"
        return frame.assign(marks=is_it.map({True: "host", False: ""}))

    table, *_ = steps.overlapped_table(evidence(distributed=marked))
    for name in ("scaling", "over.one_rank"):
        assert column(table, name, "overlapped by hooks").marks == ("host",)
        assert column(table, name, "DistributedDataParallel").marks == ()
